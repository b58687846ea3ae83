"""The answers of the lessons' questions, found in another way than `kernel_magics.workshop` finds them.

Each function gets the names of a lesson that has run, and returns the answer by what programs do (how often a backend
is called, which calls compile again, what autograd packs), by arithmetic, or by texts, but not by the records' fields.
"""

from __future__ import annotations

import dis
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import compiler_core

Names = dict[str, Any]
SECOND_WAYS: dict[str, Callable[[Names], Any]] = {}


def answers(question: str) -> Callable[[Callable[[Names], Any]], Callable[[Names], Any]]:
    """Marks a function that answers this question."""

    def add(function: Callable[[Names], Any]) -> Callable[[Names], Any]:
        SECOND_WAYS[question] = function
        return function

    return add


def graphs_of(
    function: Any, *calls: tuple[Any, ...], compile: Any = compiler_core.compile
) -> list[torch.fx.GraphModule]:
    """Returns the graphs that a backend gets for these calls, one after another."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    compiled = compile(function, backend=backend)
    for call in calls:
        compiled(*call)
    return graphs


def packed_by(function: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """Returns the tensors that autograd is given to save by a call."""
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return packed


def compiles_again(compiled: Any, graphs: list[Any], *arguments: Any) -> bool:
    before = len(graphs)
    compiled(*arguments)
    return len(graphs) > before


def generated_by_inductor(function: Any, *arguments: Any) -> int:
    """Returns the number of kernels that the code of Inductor's wrapper builds."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (code,) = run_and_get_code(torch.compile(function), *arguments)
    return len(re.findall(r"= async_compile\.", code))


def kernels_in(function: Any, *arguments: Any) -> int:
    """Returns the number of functions in the C++ text of a compile."""
    with compiler_core.record() as record:
        compiler_core.compile(function)(*arguments)
    return sum(
        len(re.findall(r'extern "C" void \w+\(', artifact.text))
        for artifact in record.artifacts
        if artifact.pane == "kernel"
    )


@answers("frames/jit")
def _(names: Names) -> int:
    return len({type(module) for module in (names["Doubling"](), names["Doubling"](), names["Negating"]())})


@answers("frames/compiles")
def _(names: Names) -> int:
    return len(graphs_of(names["f"], *((names["x"], module) for module in names["modules"])))


@answers("frames/fate")
def _(names: Names) -> str:
    first, *_ = graphs_of(names["step"], (names["x"],))
    inside = sum(node.target == "abs" for node in first.graph.nodes)
    return "their operations are in the graph of step" if inside == 2 else f"{inside} calls of abs"


@answers("frames/graphs")
def _(names: Names) -> int:
    shell, called = names["get_ipython"](), []

    def noting(gm: Any, _: object) -> Any:
        called.append(gm)
        return gm.forward

    shell.user_ns["noting"] = noting
    shell.run_cell_magic("compile", "--backend noting", "step(torch.linspace(-1, 1, 100))")
    return len(called)


@answers("bytecode/polynomial")
def _(names: Names) -> int:
    return sum(each.opname == "BINARY_OP" for each in dis.get_instructions(names["polynomial"]))


class CalledFunctions(TorchFunctionMode):
    """Notes the functions of PyTorch that run, as its users call them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@answers("bytecode/left")
def _(names: Names) -> list[str]:
    with CalledFunctions() as called:
        names["program"](names["points"])
    return sorted({name.strip("_").removeprefix("r") for name in called.names})


@answers("bytecode/operations")
def _(names: Names) -> int:
    with CalledFunctions() as called:
        names["program"](names["points"])
    return len(called.names)


@answers("bytecode/methods")
def _(names: Names) -> list[str]:
    branch, first, second = names["branch"], (names["a"], names["b"]), (-names["a"], -names["b"])
    methods: dict[str, Callable[[], Any]] = {
        "torch.jit.trace": lambda: torch.jit.trace(branch, first, check_trace=False),
        "torch.jit.script": lambda: torch.jit.script(branch),
        "torch.fx.symbolic_trace": lambda: torch.fx.symbolic_trace(branch),
        "torch.fx.symbolic_trace with concrete_args": lambda: torch.fx.symbolic_trace(
            branch, concrete_args=dict(zip("ab", first, strict=True))
        ),
        "torch.export": lambda: torch.export.export(as_module(branch), first).module(),
        "torch.compile": lambda: torch.compile(branch, backend="eager"),
        "compiler_core.compile": lambda: compiler_core.compile(branch, backend="eager"),
    }
    wrong = []
    for name, capture in methods.items():
        try:
            found = capture()(*second)
        except Exception:  # an error is not silent
            continue
        if not torch.allclose(found, branch(*second)):
            wrong.append(name)
    return wrong


def as_module(function: Callable[..., torch.Tensor]) -> nn.Module:
    class Module(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return function(a, b)

    return Module()


@answers("guards/read")
def _(names: Names) -> list[str]:
    apply, graphs = names["apply"], []

    def backend(gm: Any, _: object) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled, options = compiler_core.compile(apply, backend=backend), names["options"]
    compiled(names["x"], options)
    changed = {
        "x": lambda: compiled(names["x"].double(), options),
        "options['shift']": lambda: compiled(names["x"], {**options, "shift": False}),
        "options['name']": lambda: compiled(names["x"], {**options, "name": "another"}),
    }
    found = []
    for name, call in changed.items():
        before = len(graphs)
        call()
        found += [name] * (len(graphs) > before)
    apply.__globals__["SCALE"] = 3.0
    found += ["SCALE"] * compiles_again(compiled, graphs, names["x"], options)
    apply.__globals__["SCALE"] = 2.0
    return found


@answers("guards/five_calls")
def _(names: Names) -> int:
    ones, wide = torch.ones(3), torch.ones(3, dtype=torch.float64)
    calls = [(ones, {"shift": True}), (ones, {"shift": True, "name": "other"}), (ones, {"shift": False})]
    calls += [(wide, {"shift": False}), (torch.zeros(3), {"shift": True})]
    return len(graphs_of(names["apply"], *calls))


@answers("guards/hundred")
def _(names: Names) -> str:
    with compiler_core.record() as record, torch.no_grad():
        compiler_core.compile(names["hundred"], backend="eager")(names["one"])
    first, last = "    return (\n", "\n    )"
    count = compiler_core.guards_text(record, record.compiles[0]).partition(first)[2].partition(last)[0].count("\n") + 1
    return "about 5" if count < 20 else "about 100" if count < 200 else "more than 200"


@answers("guards/without")
def _(names: Names) -> float:
    return float(1 + sum(step.i == 0 for step in names["hundred"].steps))  # as it was when it was compiled


@answers("breaks/bar")
def _(names: Names) -> int:
    return len(graphs_of(names["bar"], (names["a"], names["b"]), (names["a"], names["negative"])))


@answers("breaks/resumes")
def _(names: Names) -> int:
    compiled = compiler_core.compile(names["bar"], backend="eager")
    compiled(names["a"], names["b"])
    return len(set(re.findall(r"resume_\w+", vars(compiler_core.decompiled(compiled))["__source__"])))


@answers("breaks/scipy")
def _(names: Names) -> int:
    return len(graphs_of(names["transform"], (names["signal"],)))


@answers("breaks/network")
def _(names: Names) -> int:
    return len(graphs_of(names["network"], (names["v"],)))


@answers("breaks/stock")
def _(names: Names) -> int:
    return len(graphs_of(names["bar"], (names["a"], names["b"]), (names["a"], -names["b"]), compile=torch.compile))


@answers("graphs/kinds")
def _(names: Names) -> list[str]:
    (graph,) = graphs_of(names["small"], (names["rows"],))
    return sorted({node.op for node in graph.graph.nodes})


@answers("graphs/dropout")
def _(names: Names) -> int:
    return sum(not isinstance(layer, nn.Dropout) for layer in names["model"])


@answers("graphs/backend")
def _(names: Names) -> int:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(names["bar"], backend="eager")
        compiled(names["a"], names["b"]), compiled(names["a"], names["negative"])
    return sum(artifact.pane == "captured" for artifact in record.artifacts)


@answers("joint/saved")
def _(names: Names) -> int:
    compiled, x = compiler_core.compile(lambda x: torch.cos(torch.cos(x)).sum()), names["x"]
    return len(packed_by(lambda: compiled(x)))


@answers("joint/layer")
def _(names: Names) -> list[str]:
    compiled, x = compiler_core.compile(names["layer"], backend="aot_eager"), names["data"]
    packed = packed_by(lambda: compiled(x))
    first, second = names["first"], names["second"]
    hidden = x @ first
    active = torch.sigmoid(hidden) * hidden
    known = {"x": x, "first": first, "second": second, "hidden": hidden, "sigmoid(hidden)": torch.sigmoid(hidden)}
    known |= {"active": active, "active.relu()": active.relu()}
    return [
        name
        for name, value in known.items()
        if any(each.shape == value.shape and torch.allclose(each, value) for each in packed)
    ]


@answers("fusion/kernels")
def _(names: Names) -> int:
    return kernels_in(lambda x: (x.sin() + 1) * x, names["x"])


@answers("fusion/read")
def _(names: Names) -> int:
    return int(names["x"].untyped_storage().nbytes())


@answers("fusion/three")
def _(names: Names) -> list[str]:
    def calls_pytorch(function: Any) -> bool:
        (graph,) = graphs_of(function, (names["rows"],))
        return any("matmul" in str(node.target) for node in graph.graph.nodes)

    rows = names["rows"]
    return [each.__name__ for each in names["functions"] if kernels_in(each, rows) == 1 and not calls_pytorch(each)]


@answers("fusion/stock")
def _(names: Names) -> int:
    return generated_by_inductor(names["softmax"], names["rows"])


@answers("fusion/stride")
def _(names: Names) -> int:
    return int(names["columns"].stride(0))


@answers("kernels/read")
def _(names: Names) -> int:
    return 512 * 256 * 4


@answers("kernels/written")
def _(names: Names) -> int:
    return int(names["y"].untyped_storage().nbytes())


@answers("kernels/memory")
def _(names: Names) -> list[str]:
    """A sine takes some ten additions.  An H200 does 33.5 trillion additions a second, and moves 4.8 TB."""
    a_byte = {"adds": 1 / 8, "sines": 8 * 10 / 8}
    return [name for name, operations in a_byte.items() if operations < 33.5 / 4.8]


@answers("kernels/edits")
def _(names: Names) -> list[str]:
    angles = torch.randn(4000)
    square, expected = angles * angles, torch.sin(angles) * 2
    further = torch.zeros(4100)
    further[100:] = expected
    results = {
        "sum": angles.sin() + angles.sin(),
        "polynomial": angles * (1 - square / 6 + square * square / 120) * 2,
        "further": further[:4000],
    }
    return [name for name, result in results.items() if torch.allclose(result, expected)]


@answers("kernels/schedules")
def _(names: Names) -> list[str]:
    """A split of a vector loop is the only one of these that a nest does not allow."""
    return [
        name
        for name, text in names["schedules"].items()
        if "split" not in text or text.find("split") < text.find("vectorize")
    ]


@answers("sizes/five")
def _(names: Names) -> int:
    return len(graphs_of(names["mean_free"], *((x,) for x in names["inputs"])))


@answers("sizes/condition")
def _(names: Names) -> int:
    return sum(rows * 2 + 4 <= 100 for rows in range(1, 1000))


@answers("sizes/branch")
def _(names: Names) -> int:
    return len(graphs_of(names["by_size"], *((torch.ones(rows, 2),) for rows in (4, 8, 12, 200, 300))))


@answers("sizes/special")
def _(names: Names) -> list[str]:
    graphs: list[Any] = []

    def backend(gm: Any, _: object) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = compiler_core.compile(names["special"], backend=backend, dynamic=True)
    compiled(torch.randn(6, 32))
    others = {"32": (6, 64), "6": (7, 32)}
    return [size for size, shape in others.items() if compiles_again(compiled, graphs, torch.randn(shape))]


@answers("sizes/walk")
def _(names: Names) -> int:
    calls = [(names[name],) for name in ("ten", "eight")] * 100
    return len(graphs_of(names["function"], *calls, (names["inputs_of"](9),)))


@answers("sizes/resumes")
def _(names: Names) -> int:
    compiled = compiler_core.compile(names["function"], backend="eager")
    compiled(names["ten"])
    return len(set(re.findall(r"resume_\w+", vars(compiler_core.decompiled(compiled))["__source__"])))


@answers("step/graphs")
def _(names: Names) -> int:
    return len(graphs_of(names["step"], (names["images"], names["labels"])))


@answers("step/calls")
def _(names: Names) -> int:
    return sum(isinstance(module, (nn.Conv2d, nn.Linear)) for module in names["model"].modules())


@answers("step/bound")
def _(names: Names) -> float:
    extern = sum(kernel.time_ns for kernel in names["timed"] if kernel.language == "extern")
    return float(names["total"] / extern)


@answers("step/replay")
def _(names: Names) -> float:
    """A launch takes 10 us; forward and backward have as many kernels as the lesson's tables of their kinds say."""
    kinds = [f"{kernel.graph}:{kernel.language}" for kernel in names["step_compile"].kernels]
    return 10.0 + 2 * sum(kinds.count(kind) for kind in set(kinds))


@answers("stock/graphs")
def _(names: Names) -> int:
    return len(graphs_of(names["function"], (names["x"], names["y"]), compile=torch.compile))


@answers("stock/recompiles")
def _(names: Names) -> int:
    run = subprocess.run(
        [sys.executable, names["traces"] / "job.py"],
        env=os.environ | {"TORCH_LOGS": "recompiles"},
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stderr.count("Recompiling function")


@answers("stock/kernels")
def _(names: Names) -> int:
    return generated_by_inductor(names["chain"], torch.randn(64, 100))
