"""What eager's dropout draws on a GPU, so that kernels of ours draw the same numbers.

PyTorch's kernel runs some number of threads, each with a Philox 4x32-10 stream of its own: the key is the generator's
seed, the counter's upper half the thread, its lower half begins at a quarter of the generator's offset and goes up by
one for each four numbers.  A thread does `vector` neighbouring elements in each turn.  So the element at `place` in
memory gets

    turn, thread = divmod(place // vector, threads)
    number = turn * width + place % vector                    a turn takes `width` numbers, whether it needs them or not
    word number % 4 of philox(seed, offset // 4 + number // 4, thread)

and is kept where that, as a float in (0, 1], is less than the probability.  `differs` holds this against PyTorch's
own kernel before any kernel of ours relies on it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

BLOCK = 256
"""Threads of a block of eager's."""
LOW = 0xFFFFFFFF


def vector(dtype: torch.dtype, numel: int, offset: int) -> int:
    """How many elements a thread does at a time, of a tensor that is `offset` elements behind an aligned address."""
    widest = 16 // dtype.itemsize
    return next(n for n in (8, 4, 2, 1) if n <= widest and numel % n == 0 and offset % n == 0)


def width(vector: int) -> int:
    """How many numbers a turn takes: philox makes four at a time."""
    return 1 if vector == 1 else max(vector, 4)


@functools.cache
def most_threads(device: int) -> int:
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK) * BLOCK


def threads(numel: int, device: int) -> int:
    return min(-(-numel // BLOCK) * BLOCK, most_threads(device))


def draw(numel: int, device: int) -> tuple[int, int, int]:
    """Seed, a quarter of the offset, and threads, for a tensor of so many elements; the generator goes on."""
    generator, many = torch.cuda.default_generators[device], threads(numel, device)
    offset = generator.get_offset()
    generator.set_offset(offset + -(-numel // (4 * many)) * 4)
    seed = generator.initial_seed()
    return seed - 2**64 if seed >= 2**63 else seed, offset // 4, many  # an int64 holds its bits


def uniform(place: torch.Tensor, seed: int, offset: int, threads: int, vector: int) -> torch.Tensor:
    """The numbers for elements at `place` (int64), in PyTorch's operations: what kernels are held against."""
    group = place // vector
    number = group // threads * width(vector) + place % vector
    counter = offset + number // 4
    words = _philox([counter & LOW, counter >> 32, group % threads, torch.zeros_like(place)], seed)
    word = torch.stack(words).gather(0, (number % 4).unsqueeze(0)).squeeze(0)
    return word.float() * 2**-32 + 2**-33


def _philox(counter: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Ten rounds over 32-bit words, which are held in int64."""
    a, b, c, d = counter
    key, other = seed & LOW, seed >> 32 & LOW
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57  # wraps around, which leaves the 64 bits as they are
        a, b, c, d = (right >> 32 & LOW) ^ b ^ key, right & LOW, (left >> 32 & LOW) ^ d ^ other, left & LOW
        key, other = key + 0x9E3779B9 & LOW, other + 0xBB67AE85 & LOW
    return [a, b, c, d]


@functools.cache
def differs(device: int, dtype: torch.dtype) -> str:
    """How this PyTorch's dropout is unlike the above on that GPU; nothing where it is not."""
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being recorded"
    several_turns = 16 * most_threads(device) + 8 * BLOCK
    with torch.random.fork_rng([device]), torch.cuda.device(device):
        for start, numel in (
            *((start, several_turns) for start in (0, 1, 2, 4)),
            *((0, several_turns + more) for more in (1, 2, 4)),
            (0, 3 * BLOCK + 8),
        ):
            if why := _differs(device, dtype, start, numel):
                return why
    return ""


def _differs(device: int, dtype: torch.dtype, start: int, numel: int) -> str:
    """The same for one size, of a tensor that begins `start` elements behind an aligned address."""
    generator = torch.cuda.default_generators[device]
    x = torch.ones(start + numel, dtype=dtype, device=f"cuda:{device}")[start:]
    generator.manual_seed(2**63 + 5)
    generator.set_offset(2**34 - 8)  # where a quarter of it is about to fill 32 bits
    numbers, after = draw(numel, device), generator.get_offset()
    generator.set_offset(2**34 - 8)
    _, mask = torch.native_dropout(x, 0.3, True)
    if generator.get_offset() != after:
        return f"eager's dropout of {numel} elements leaves the generator elsewhere than expected"
    drawn = uniform(torch.arange(numel, device=x.device), *numbers, vector(dtype, numel, start))
    same = bool(((drawn.to(torch.promote_types(dtype, torch.float32)) < 0.7) == mask).all())
    return "" if same else f"eager's dropout of {numel} elements of {dtype} draws other numbers than expected"
