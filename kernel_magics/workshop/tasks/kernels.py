"""The tasks of lessons 6 and 9 to 11: a backward by hand, the policy of sizes, launches, a record read by a program."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kernel_magics.workshop.checks import Misconception
from kernel_magics.workshop.tasks.task import Function, Task


def _swish() -> Any:
    import torch

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (x,) = ctx.saved_tensors
            sigmoid = torch.sigmoid(x)
            return grads[0] * (sigmoid + x * sigmoid * (1 - sigmoid))

    return Swish


def _swish_function(x: Any) -> Any:
    return _swish().apply(x)


def _saved_and_gradient(function: Function) -> Function:
    """Returns the result, the gradient, how many tensors autograd was given to save, each counted once, and how many
    functions of the learner's are in its graph."""
    import torch
    from torch.autograd.function import BackwardCFunction

    def run(values: list[float], upstream: list[float]) -> dict[str, Any]:
        packed: list[Any] = []

        def pack(tensor: Any) -> Any:
            packed.append(tensor)
            return tensor

        x = torch.tensor(values, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = function(x)
        nodes = [result.grad_fn]
        for node in nodes:
            nodes += [each for each, _ in node.next_functions if each is not None and each not in nodes]
        result.backward(torch.tensor(upstream))
        return {
            "result": result.detach(),
            "gradient": x.grad,
            "tensors saved": len({tensor.data_ptr() for tensor in packed}),
            "functions of yours": sum(isinstance(node, BackwardCFunction) for node in nodes),
        }

    return run


def _gradients() -> Mapping[str, tuple[Any, ...]]:
    values = [random.uniform(-3, 3) for _ in range(5)]
    return {
        "x = 1": ([1.0], [1.0]),
        "x = 0": ([0.0], [1.0]),
        "x = 1, and the loss has twice the gradient": ([1.0], [2.0]),
        "five numbers": (values, [1.0, -1.0, 0.5, 0.0, 3.0]),
    }


def _gradient(value: float) -> Any:
    return lambda got: abs(got["gradient"][0].item() - value) < 1e-3


def _compiles(sizes: list[int]) -> int:
    """By the compiler itself."""
    import torch

    import compiler_core

    graphs: list[Any] = []

    def backend(gm: Any, _: object) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = compiler_core.compile(lambda x: x - x.mean(0), backend=backend)
    for rows in sizes:
        compiled(torch.ones(rows, 4))
    return len(graphs)


def _sizes() -> Mapping[str, tuple[Any, ...]]:
    a, b, c = random.sample(range(2, 60), 3)
    return {
        f"[{a}]": ([a],),
        f"[{a}, {a}]": ([a, a],),
        "[8, 16]": ([8, 16],),
        "[8, 8, 16, 8, 8]": ([8, 8, 16, 8, 8],),
        "[8, 16, 24, 8, 100]": ([8, 16, 24, 8, 100],),
        "[5, 1]": ([5, 1],),
        "[5, 1, 6]": ([5, 1, 6],),
        "[5, 6, 1, 1]": ([5, 6, 1, 1],),
        "[1, 5, 1, 7]": ([1, 5, 1, 7],),
        f"[{a}, {b}, {a}, {c}]": ([a, b, a, c],),
    }


def _one_by_one(times: list[float], launch: float) -> float:
    now = 0.0
    for number, time in enumerate(times, 1):
        now = max(now, number * launch) + time
    return now


def _queues() -> Mapping[str, tuple[Any, ...]]:
    time = float(random.randint(6, 90))
    return {
        f"one kernel of {time:.0f} us": ([time], 5.0),
        "[2, 2, 2]": ([2.0, 2.0, 2.0], 5.0),
        "[50, 50, 50]": ([50.0, 50.0, 50.0], 5.0),
        "[50, 2, 2]": ([50.0, 2.0, 2.0], 5.0),
        "[2, 2, 50]": ([2.0, 2.0, 50.0], 5.0),
        "none": ([], 5.0),
        "[1, 9, 1, 9, 1, 9], with a launch of 4 us": ([1.0, 9.0] * 3, 4.0),
    }


def _culprit(record: Any) -> str | None:
    causes = Counter(compile_.cause.subject for compile_ in record.compiles if compile_.cause)
    return causes.most_common(1)[0][0] if causes else None


def _records() -> Mapping[str, tuple[Any, ...]]:
    import torch

    import compiler_core

    def record_of(*calls: tuple[Any, ...]) -> Any:
        def step(x: Any, flag: str) -> Any:
            return x + 1 if flag.startswith("a") else x * 2

        with compiler_core.record() as record:
            compiled = compiler_core.compile(step, backend="eager")
            for call in calls:
                compiled(*call)
        return record

    three, four = torch.ones(3), torch.ones(4)
    return {
        "a job without recompiles": (record_of((three, "a")),),
        "flag twice": (record_of((three, "a"), (three, "b"), (three, "c")),),
        "dtype, then flag twice": (record_of((three, "a"), (three.double(), "a"), (three, "b"), (three, "c")),),
        "flag twice, then dtype": (record_of((three, "a"), (three, "b"), (three, "c"), (three.double(), "a")),),
        "the size": (record_of((three, "a"), (four, "a")),),
    }


TASKS = {
    "joint/swish": Task(
        _gradients,
        _swish_function,
        (
            Misconception(
                "You probably call PyTorch's operations, which have a backward. Write one in an autograd.Function.",
                {"x = 1": lambda got: got["functions of yours"] == 0},
            ),
            Misconception(
                "You probably save more than x, such as the sigmoid. The backward can compute that again from x.",
                {"x = 1": lambda got: got["tensors saved"] > 1},
            ),
            Misconception(
                "You probably keep x as an attribute of ctx. Autograd knows only of what save_for_backward gets.",
                {"x = 1": lambda got: got["tensors saved"] == 0},
            ),
            Misconception(
                "You probably forgot the gradient of the result: multiply by what the backward gets.",
                {"x = 1, and the loss has twice the gradient": _gradient(0.9277)},
            ),
            Misconception(
                "You probably differentiate one factor only. The product rule has two terms.",
                {"x = 1": lambda got: _gradient(0.7311)(got) or _gradient(0.1966)(got)},
            ),
            Misconception(
                "You probably take the result for x. What the backward needs is the operand.",
                {"x = 1": _gradient(0.9126)},
            ),
            Misconception(
                "You probably add the gradient of the result. The chain rule multiplies.",
                {"x = 1": _gradient(1.9277)},
            ),
            Misconception(
                "You probably took the derivative of the sigmoid for the sigmoid: it is s * (1 - s).",
                {"x = 1": _gradient(0.7311 + 0.7311)},
            ),
        ),
        _saved_and_gradient,
    ),
    "sizes/compiles": Task(
        _sizes,
        _compiles,
        (
            Misconception(
                "You probably compile once for each size. When a size has changed, a symbol takes its place.",
                {"[8, 16, 24, 8, 100]": 4},
            ),
            Misconception(
                "You probably compile whenever the size changes. Code of earlier calls is used again, too.",
                {"[8, 8, 16, 8, 8]": 3},
            ),
            Misconception(
                "You probably compile once for each call. Code is used again while its guards hold.",
                {"[8, 16, 24, 8, 100]": 5},
            ),
            Misconception(
                "You probably have a symbol from the start. The first compile is for the size that it saw.",
                {"[8, 16]": 1},
            ),
            Misconception(
                "You probably forgot the size 1: it is always compiled for itself.",
                {"[5, 6, 1, 1]": 2},
            ),
            Misconception(
                "You probably forgot what was compiled for 1: that code stays, and its guards are tried, too.",
                {"[5, 6, 1, 1]": 4},
            ),
            Misconception(
                "You probably count a size alone beside the 1. After a 1, the next size has changed: it is a symbol.",
                {"[1, 5, 1, 7]": 3},
            ),
        ),
    ),
    "step/launches": Task(
        _queues,
        _one_by_one,
        (
            Misconception(
                "You probably add all launches and all kernels. The CPU launches one while the GPU runs another.",
                {"[50, 50, 50]": 165.0},
            ),
            Misconception(
                "You probably start the first kernel at 0. Its launch takes time, too.",
                {"[2, 2, 2]": 12.0},
            ),
            Misconception(
                "You probably take the longer of two sums. What counts is when each kernel can start.",
                {"[2, 2, 50]": 54.0, "[2, 2, 2]": 15.0},
            ),
            Misconception(
                "You probably count one launch for all kernels. Each kernel has a launch.",
                {"[2, 2, 2]": 11.0, "[2, 2, 50]": 59.0},
            ),
            Misconception(
                "You probably add the launches only. The last kernel runs after its launch.",
                {"[50, 50, 50]": 15.0},
            ),
            Misconception(
                "You probably wait for the last launch only. A kernel waits for the one before it, too.",
                {"[50, 50, 50]": 65.0},
            ),
            Misconception(
                "You probably ask for the last kernel of none. Without kernels, the end is 0.",
                {"none": lambda got: "Error" in got.text},
            ),
            Misconception(
                "You probably take the later of two ends. A kernel in the middle may be late, too: go through all.",
                {"[1, 9, 1, 9, 1, 9], with a launch of 4 us": 34.0},
            ),
            Misconception(
                "You probably add the kernels only. A GPU that waits for a launch pays for it.",
                {"[2, 2, 2]": 6.0},
            ),
            Misconception(
                "You probably add the longer of launch and kernel each time. A long kernel hides later launches, too.",
                {"[50, 2, 2]": 60.0},
            ),
        ),
    ),
    "stock/culprit": Task(
        _records,
        _culprit,
        (
            Misconception(
                "The first compile has no cause, and a job may have no recompile at all: return None then.",
                {"a job without recompiles": lambda got: "rror" in got.text},
            ),
            Misconception(
                "You probably take the rarest cause, or the last of the alphabet. Take the one that comes most often.",
                {"dtype, then flag twice": "the dtype of x", "flag twice, then dtype": "the dtype of x"},
            ),
            Misconception(
                "You probably take the first cause. Count how often each one comes.",
                {"dtype, then flag twice": "the dtype of x"},
            ),
            Misconception(
                "You probably take the last cause. Count how often each one comes.",
                {"flag twice, then dtype": "the dtype of x"},
            ),
            Misconception(
                "You probably return the cause. The name of what changed is its `subject`.",
                {"the size": lambda got: hasattr(got, "subject") or got.startswith("Recompile")},
            ),
            Misconception(
                "You probably return a list or an empty text. The answer is one name, or None.",
                {"a job without recompiles": lambda got: got in ("", [])},
            ),
            Misconception(
                "You probably return the pair of name and number.",
                {"the size": lambda got: isinstance(got, tuple)},
            ),
        ),
    ),
}
