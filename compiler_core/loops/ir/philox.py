"""The random numbers of eager's dropout on a GPU, reproduced so that our kernels draw the same ones.

PyTorch's kernel (``aten/src/ATen/native/cuda/Dropout.cu``) runs a number of threads, each with its own Philox 4x32-10
stream.  The key is the generator's seed.  The upper half of the counter is the thread; the lower half starts at a
quarter of the generator's offset and is incremented after every four numbers.  In each turn a thread computes
`vector` adjacent elements and consumes `numbers_per_turn` numbers, whether it needs all of them or not.  The element
with number `position` in memory gets

    turn, thread = divmod(position // vector, threads)
    number = turn * numbers_per_turn(vector) + position % vector
    word number % 4 of philox(seed, offset // 4 + number // 4, thread)

and is kept if that word, as a float in (0, 1], is less than the probability of keeping it.  `difference_from_eager`
compares this with PyTorch's own kernel before any of our kernels relies on it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

BLOCK = 256
"""Threads in a block of eager's kernel."""
LOW_WORD = 0xFFFFFFFF


def vector_width(dtype: torch.dtype, numel: int, offset: int) -> int:
    """Returns how many adjacent elements a thread of eager's kernel computes at a time.

    The tensor has `numel` elements and starts `offset` elements after an aligned address.
    """
    widest = 16 // dtype.itemsize
    return next(n for n in (8, 4, 2, 1) if n <= widest and numel % n == 0 and offset % n == 0)


def numbers_per_turn(vector: int) -> int:
    """Returns how many random numbers a thread consumes in a turn: Philox makes four at a time."""
    return 1 if vector == 1 else max(vector, 4)


@functools.cache
def max_threads(device: int) -> int:
    """Returns how many threads eager's kernel runs at most on GPU number `device`."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK) * BLOCK


def thread_count(numel: int, device: int) -> int:
    """Returns how many threads eager's kernel runs for a tensor of `numel` elements."""
    return min(-(-numel // BLOCK) * BLOCK, max_threads(device))


def draw(numel: int, device: int) -> tuple[int, int, int]:
    """Advances the generator as dropout of `numel` elements does.

    Returns the seed as an int64, a quarter of the generator's offset before the call, and the number of threads.
    """
    generator, threads = torch.cuda.default_generators[device], thread_count(numel, device)
    offset = generator.get_offset()
    generator.set_offset(offset + -(-numel // (4 * threads)) * 4)
    seed = generator.initial_seed()
    return seed - 2**64 if seed >= 2**63 else seed, offset // 4, threads  # the same 64 bits as a signed number


def uniform(position: torch.Tensor, seed: int, offset: int, threads: int, vector: int) -> torch.Tensor:
    """Computes the random numbers of the elements at `position` (int64) with PyTorch's operations.

    This is the reference that kernels are compared with.  `seed`, `offset` and `threads` are those of `draw`.
    """
    group = position // vector
    number = group // threads * numbers_per_turn(vector) + position % vector
    counter = offset + number // 4
    words = _philox([counter & LOW_WORD, counter >> 32, group % threads, torch.zeros_like(position)], seed)
    word = torch.stack(words).gather(0, (number % 4).unsqueeze(0)).squeeze(0)
    return word.float() * 2**-32 + 2**-33


def _philox(counter: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Runs the ten rounds of Philox 4x32-10 on 32-bit words held in int64 tensors."""
    a, b, c, d = counter
    key, other = seed & LOW_WORD, seed >> 32 & LOW_WORD
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57  # overflow wraps around and keeps the 64 bits
        a, b, c, d = (
            (right >> 32 & LOW_WORD) ^ b ^ key,
            right & LOW_WORD,
            (left >> 32 & LOW_WORD) ^ d ^ other,
            left & LOW_WORD,
        )
        key, other = key + 0x9E3779B9 & LOW_WORD, other + 0xBB67AE85 & LOW_WORD
    return [a, b, c, d]


@functools.cache
def difference_from_eager(device: int, dtype: torch.dtype) -> str:
    """Returns how this PyTorch's dropout differs from this module on GPU number `device`; empty if it does not."""
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being recorded"
    several_turns = 16 * max_threads(device) + 8 * BLOCK
    with torch.random.fork_rng([device]), torch.cuda.device(device):
        for start, numel in (
            *((start, several_turns) for start in (0, 1, 2, 4)),
            *((0, several_turns + more) for more in (1, 2, 4)),
            (0, 3 * BLOCK + 8),
        ):
            if why := _difference_for_size(device, dtype, start, numel):
                return why
    return ""


def _difference_for_size(device: int, dtype: torch.dtype, start: int, numel: int) -> str:
    """The same for one size, of a tensor that starts `start` elements after an aligned address."""
    generator = torch.cuda.default_generators[device]
    x = torch.ones(start + numel, dtype=dtype, device=f"cuda:{device}")[start:]
    generator.manual_seed(2**63 + 5)
    generator.set_offset(2**34 - 8)  # a quarter of it is just below 2**32
    numbers, after = draw(numel, device), generator.get_offset()
    generator.set_offset(2**34 - 8)
    _, mask = torch.native_dropout(x, 0.3, True)
    if generator.get_offset() != after:
        return f"eager's dropout of {numel} elements leaves the generator at another offset than expected"
    drawn = uniform(torch.arange(numel, device=x.device), *numbers, vector_width(dtype, numel, start))
    same = bool(((drawn.to(torch.promote_types(dtype, torch.float32)) < 0.7) == mask).all())
    return "" if same else f"eager's dropout of {numel} elements of {dtype} draws other numbers than expected"
