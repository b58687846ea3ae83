"""The programs of the site's gallery: each becomes a page with a live explorer."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch._higher_order_ops import while_loop
from torch._inductor.utils import fresh_cache

import compiler_core
from compiler_core.records import Record, View
from compiler_core.tools.frames.frame_watch import FrameWatch


class Example(NamedTuple):
    """A program of the gallery, and how it is recorded."""

    title: str
    text: str
    """What to look at."""
    program: Callable[..., object]
    arguments: tuple[torch.Tensor, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    panes: tuple[str, ...] = ()
    engine: Any = "core"


def cos_cos(x: torch.Tensor) -> None:
    y = torch.cos(torch.cos(x))
    y.sum().backward()


def two_branches() -> None:
    def bar(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = compiler_core.compile(bar, backend="eager")
    compiled(torch.randn(10), torch.rand(10)), compiled(torch.randn(10), -torch.rand(10))


def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(-1, keepdim=True)


def sizes() -> None:
    def mean_free(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)

    compiled = compiler_core.compile(mean_free, backend="aot_eager")
    for rows in (8, 16, 24):
        compiled(torch.randn(rows, 4))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    weights = torch.softmax(q @ k.T / 32**0.5, -1)
    (weights @ v).sum().backward()


def newton(x: torch.Tensor) -> torch.Tensor:
    def go(step: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
        return step < 5

    def improve(step: torch.Tensor, root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return step + 1, (root + x / root) / 2

    found: tuple[torch.Tensor, torch.Tensor] = while_loop(go, improve, (torch.tensor(0), torch.ones_like(x)))
    return found[1]


def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x.cos(), 0.1).sin()


def without_dropout(gm: torch.fx.GraphModule) -> None:
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.dropout):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y]).relu()


line = torch.linspace(-1, 1, 1000, requires_grad=True)
rows = torch.randn(64, 100)
rows_of_gpu = rows.cuda() if torch.cuda.is_available() else rows
queries, keys, values = (torch.randn(16, 32, requires_grad=True) for _ in range(3))
EXAMPLES = {
    "cos_cos": Example("cos(cos(x))", "One tensor is saved for the backward, not two.", cos_cos, (line,)),
    "two_branches": Example(
        "A branch on values", "The graph breaks at the `if`; each side is a resume function.", two_branches,
        panes=("source", "decompiled"),
    ),
    "softmax": Example(
        "Softmax, for a GPU that is not here", "Five operators in one Triton kernel, down to SASS.", softmax,
        (rows,), {"target": "sm_90"}, ("source", "fusion", "machine"),
    ),
    "sizes": Example(
        "Sizes that change", "The second size makes the number of rows a symbol.", sizes, panes=("source", "sizes"),
    ),
    "attention": Example(
        "Attention and its gradients", "The minimum cut chooses what the backward gets.", attention,
        (queries, keys, values),
        panes=("source", "partition"),
    ),
    "loop": Example(
        "A loop whose end depends on values", "torch's while_loop keeps it in the graph, as two functions.", newton,
        (line.detach().exp(),),
        panes=("source", "subgraphs"),
    ),
    "pass": Example(
        "A pass that removes dropout", "The graph before it and after it.", dropped, (line.detach(),),
        {"passes": [compiler_core.GraphPass(without_dropout)]}, ("source", "passes"),
    ),
    "stock": Example(
        "The same in stock torch.compile", "Stock's own graphs, guards and kernels, in the same explorer.", softmax,
        (rows,),
        engine="torch",
    ),
    "joined": Example(
        "A pass of stock ahead of autograd", "It computes relu before cat, in place of after it.", joined,
        (rows, rows + 1),
        panes=("source", "pregrad:pre_grad"),
        engine="torch",
    ),
    "blocks": Example(
        "Block sizes of a Triton kernel", "Without a GPU nothing is timed; a size that is asked for is taken.", softmax,
        (rows_of_gpu,), {"tune": True, "target": "sm_90", "block_sizes": {"forward_0": {"i": 8}}},
        ("source", "tuning", "machine"),
    ),
}  # fmt: skip


PANES = {
    "attention": {
        "overview": "Problems of the run, each with its line, its reason and what to write instead.",
        "bytecode": "The instructions of the frame, as CPython would run them.",
        "steps": "What the symbolic interpreter did, step by step: its stack, its variables, the nodes that it added.",
        "frames": "Every Python frame that ran, and what became of it.",
        "guards": "The conditions under which the compiled code may be used again, with what each costs.",
        "sizes": "Sizes and numbers of the compile, which may be symbols.",
        "captured": "The graph that was captured.",
        "joint": "Forward and backward in one graph.",
        "partition": "Which values are saved for the backward, which are computed again, and why.",
        "forward": "The forward half.",
        "backward": "The backward half.",
        "fusion": "Loops that became one kernel, and reasons why others did not.",
        "schedule": "How a loop nest became its kernel, one rewrite at a time.",
        "kernel": "The C++ or Triton source of the kernels.",
        "costs": "The time of each kernel.",
        "training": "The phases of a training step, its launches and memory over time, and its parameters.",
        "memory": "When buffers are allocated and freed.",
        "roofline": "The least time of each kernel on a device.",
        "accuracy": "Each value beside eager PyTorch and float64.",
        "wrapper": "The function that calls the kernels.",
        "decompiled": "The new bytecode of the frame as Python.",
        "timings": "Where the time of compiling went.",
    },
    "softmax": {"machine": "Triton's stages down to PTX and SASS, for a GPU that is not here."},
    "sizes": {"compare": "Two compiles of one function, by line."},
    "loop": {
        "subgraphs": "The functions that operators call, as while_loop does.",
        "speed": "The call as plain PyTorch and compiled, side by side.",
    },
    "pass": {"passes": "The graph after each pass of yours that changed it."},
    "stock": {
        "engines": "Two runs, by line: here stock beside ours.",
        "postgrad": "Stock's graphs after its passes.",
        "generated": "The bytecode that runs in the place of the frame's.",
        "other": "What else stock writes.",
    },
    "joined": {"pregrad": "The graph before and after stock's passes ahead of autograd."},
    "blocks": {"tuning": "Block sizes of Triton kernels: timed on a GPU, or asked for."},
}
"""Panes of the explorer by the example that shows them, with what they have."""


def record_of_panes(name: str) -> Record:
    """Runs an example of the gallery and returns its record, with a view of each of its panes."""
    example = EXAMPLES[name]
    watch = FrameWatch()
    with compiler_core.record(example.title, engine=example.engine) as record, watch:
        _run(example, steps=True)
    watch.write(record)
    if name == "stock":
        record.comparison = compiler_core.compare(record_of(EXAMPLES["softmax"]), record)
    if name == "attention":
        compiler_core.measure(record)
        compiler_core.check_accuracy(record)
    if name == "loop":
        record.timings = compiler_core.time(alone(example.program), *example.arguments, seconds=0.5)
    record.find_problems()
    record.views = [View(pane, ["source", pane]) for pane in PANES[name]]
    return record


def alone(program: Callable[..., object]) -> Callable[..., object]:
    """Returns a function as if it were the only one in its file, so that the explorer shows nothing else."""
    text, name = inspect.getsource(program), f"{program.__name__}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = dict(globals())
    exec(compile(text, name, "exec"), namespace)
    found: Callable[..., object] = namespace[program.__name__]
    return found


def record_of(example: Example) -> Record:
    """Runs an example and returns its record."""
    with compiler_core.record(example.title, engine=example.engine) as record:
        _run(example)
    record.find_problems()
    if example.panes:
        record.views = [View(example.title, list(example.panes))]
    return record


def _run(example: Example, *, steps: bool = False) -> None:
    program = alone(example.program)
    if example.engine == "torch":
        torch._dynamo.reset()
        with fresh_cache():  # stock does not run passes ahead of autograd for what its cache has
            torch.compile(program)(*example.arguments)
    elif example.program in (two_branches, sizes):
        program()  # it compiles its function itself
    else:
        compiler_core.compile(program, steps=steps, **example.options)(*example.arguments)
