"""Writes docs/architecture.md: the packages as they import one another, and a function at every stage of a compile.

    python -m tests.docs.architecture

The texts are those of a real compile, so the page is that of one version: Python 3.11, the CPU's kernels.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import networkx as nx
import torch

import compiler_core
from compiler_core.records import Compile
from tests.docs import ways
from tests.docs.example import scaled
from tests.docs.imports import ROOT, below

PAGE = ROOT / "docs" / "architecture.md"
PYTHON = (3, 11)

INTRODUCTION = """\
# Architecture

`python -m tests.docs.architecture` writes this page: the picture shows the imports that are there, and the texts are
those of a real compile.

The folders of `compiler_core` are the stages of a compile. An arrow says "uses"; what can be reached by other arrows
has no arrow. Imports inside functions count, too; those for types do not.
"""

STAGES = """\
## A function at every stage

`compiler_core/pipeline/frame.py` has the stages of a frame in order, and `graph.py` beside it those of a captured
graph. Here they are for one training step:

```python
def scaled(x, w):
    return (x * w).tanh().sum()

compiler_core.compile(scaled, backend="cpp")(x, w).backward()  # x requires a gradient
```
"""

QUESTIONS = """\
## Finding your way

Start at [`pipeline/frame.py`](../compiler_core/pipeline/frame.py) or [`graph.py`](../compiler_core/pipeline/graph.py):
the docstrings name the folders and files of each stage, and the docstring of a folder names its files. Each module of a
stage is two clicks away, which a test checks.
"""

SUPPORT_AN_OPERATOR = """
**What would I touch to support a new operator?** Nothing, for it to run: PyTorch's kernel is called. For a kernel of
ours, `loops/lower/`: a rule in the file of its kind (`pointwise.py`, `reductions.py`, ...), or, where it is made of
simpler operators, `autograd/trace/decompositions.py`. A new scalar function also needs its text in `codegen/cpp/` and
`codegen/triton/`, in the `ops.py` of each. What PyTorch's tags and schemas do not tell about an operator, such as that
it is expensive, or raises for some values, is a row of `support/operators.py`. `tests/loops/test_lower.py` compares
rules with eager.
"""

WAYS = [
    ("Which code is never compiled?", [("hook/skip_rules.py", "")]),
    ("Where is the limit of recompiles?", [("pipeline/compiled_region.py", "_find_or_compile")]),
    ("Which sizes become symbolic?", [("capture/tensors/symbolic_shapes.py", "DynamicPolicy")]),
    ("Where are hooks of an `nn.Module` called?", [("capture/values/user/modules.py", "")]),
    ("How does a change of an outside object reach it?", [("capture/side_effects.py", "SideEffects")]),
    ("Where is a frame split at a graph break?", [("resume/frame_codegen.py", "break_points_for")]),
    ("Where is a resume function made?", [("resume/resume_functions.py", "resume_code")]),
    ("What runs if the graph fails in a call?", [("resume/eager_fallback.py", "run_frame_eagerly")]),
    ("Where are guards turned into code?", [("guards/tree.py", "build"), ("guards/kinds.py", "guards_text")]),
    ("Where are outputs made that are views of inputs?", [("autograd/trace/outputs.py", "OutputPlan")]),
    ("Who decides what is saved for the backward?", [("autograd/mincut.py", "minimum_cut")]),
    ("Where is it decided that two loops are not fused?", [("loops/fuse/rules.py", "REFUSALS")]),
    ("Where are a C++ kernel's vectors and threads chosen?", [("loops/schedule/cpu.py", "schedule")]),
    ("Where is a reduction split over blocks?", [("loops/schedule/splitting.py", "split_reductions")]),
    (
        "Where are a Triton kernel's launch grid and block sizes chosen?",
        [("codegen/triton/printer.py", "_grid"), ("loops/schedule/block_sizes.py", "choose_blocks")],
    ),
    ("Where are kernels kept on disk?", [("codegen/build/disk_cache.py", "")]),
    ("When is a CUDA graph recorded?", [("backends/cuda_graphs.py", "ReplayedRunner")]),
    ("Where do eager PyTorch's warnings come from?", [("support/eager_warnings.py", "OperationWarnings")]),
    ("Where does a `CompileWarning` come from?", [("hook/failures.py", "report_failure")]),
]

FILES_ON_THE_WAY = """\
## The files on a way

What stands on the stack between two places, in a real compile, is the way that a reader follows from one to the other.
"""

STEPS = [
    (
        "Bytecode",
        "The hook gets the code object of a frame that is about to run. This is what Python would run.",
        ["hook/frame_hook.py", "bytecode/instructions.py"],
        [("bytecode", "text")],
    ),
    (
        "Capture",
        "An interpreter runs the bytecode with stand-ins for values. Operations on tensors become nodes of an FX "
        "graph; types, shapes and strides come from fake tensors.",
        ["capture/interpreter.py", "capture/graph_builder.py", "capture/tensors/fake_tensors.py"],
        [("captured", "python")],
    ),
    (
        "Guards",
        "What capture took for granted. The compiled code is used again while all of it holds.",
        ["guards/tree.py", "guards/kinds.py"],
        [("guards", "python")],
    ),
    (
        "Joint graph",
        "Forward and backward are traced together, as operators of ATen.",
        ["autograd/joint.py", "autograd/trace"],
        [("joint", "python")],
    ),
    (
        "Partition",
        "A minimum cut decides what the forward saves for the backward, and what the backward computes again.",
        ["autograd/partition.py", "autograd/mincut.py"],
        [("forward", "python"), ("backward", "python")],
    ),
    (
        "Lowering and fusion",
        "Operators become loops, and loops are fused where that saves memory traffic. The list says which and why.",
        ["loops/lower", "loops/fuse"],
        [("forward.fusion", "text"), ("forward.loops", "text"), ("backward.loops", "text")],
    ),
    (
        "Schedule",
        "A kernel's loops become a nest, which rewrites change step by step: split, reorder, vectorize, threads. Each "
        "has a reason.",
        ["loops/ir/nest.py", "loops/schedule/rewrites.py", "loops/schedule/cpu.py", "loops/schedule/gpu.py"],
        [("forward.schedule", "text")],
    ),
    (
        "Kernels",
        "Each nest is printed as C++ for a CPU or Triton for a GPU, then built and loaded.",
        ["codegen/cpp", "codegen/triton", "codegen/build"],
        [("backward.cpp", "cpp")],
    ),
    (
        "Wrapper",
        "A Python function allocates the results and calls the kernels in order.",
        ["codegen/wrapper"],
        [("backward.wrapper", "python")],
    ),
    (
        "New code",
        "The frame's new code calls the graph; `autograd_function.py` wraps forward and backward in a "
        "`torch.autograd.Function`. Shown decompiled.",
        ["resume/frame_codegen.py", "autograd/autograd_function.py", "hook/frame_hook.py"],
        [("decompiled", "python")],
    ),
]


def compiled() -> Compile:
    """The record of one compile of `scaled`."""
    with compiler_core.record() as record:
        compiler_core.compile(scaled, backend="cpp", strict=True)(
            torch.ones(1000, requires_grad=True), torch.ones(1000)
        ).backward()
    (compile_,) = record.compiles
    return compile_


def picture(package: str) -> str:
    """The folders of a package and what each uses, as a Mermaid flowchart."""
    imports = below(package)
    packages = {each.name for each in (ROOT / package).iterdir() if (each / "__init__.py").exists()}
    graph = nx.transitive_reduction(imports.subgraph(n for n in imports if n.rpartition(".")[2] in packages))
    edges = sorted((a.rpartition(".")[2], b.rpartition(".")[2]) for a, b in graph.edges)
    return "\n".join(["```mermaid", "flowchart TD", *(f"    {a} --> {b}" for a, b in edges), "```"])


def levels(package: str) -> str:
    """Why the list of layers in pyproject.toml is as long as it is: the longest chain of imports."""
    chain = [f"`{name.rpartition('.')[2]}`" for name in nx.dag_longest_path(below(package))]
    text = (
        f"The levels, which import-linter checks, are {len(chain)}, since the longest chain of imports is "
        f"{', '.join(chain)}. The last three hold what all stages share: helpers, the data of a "
        "record, and what the tools add."
    )
    return textwrap.fill(text, 120, break_long_words=False) + "\n"


def page() -> str:
    """The whole text of docs/architecture.md."""
    imports = [picture("compiler_core"), "", levels("compiler_core")]
    parts = [INTRODUCTION, *imports, QUESTIONS, *_ways(), SUPPORT_AN_OPERATOR, FILES_ON_THE_WAY, *ways.table(), ""]
    parts += [STAGES, *_steps(compiled())]
    return "\n".join(parts).rstrip("\n") + "\n"


def _ways() -> Iterator[str]:
    yield "| question | file | name |\n|---|---|---|"
    for question, places in WAYS:
        for file, name in places:
            text = (ROOT / "compiler_core" / file).read_text()
            assert re.search(rf"(^|\n) *((def|class) )?{name}\b", text), f"{file} does not define {name}"
        links = ", ".join(f"[`{file}`](../compiler_core/{file})" for file, _ in places)
        names = ", ".join(f"`{name}`" for _, name in places if name)
        yield f"| {question} | {links} | {names} |"


def _steps(compile_: Compile) -> Iterator[str]:
    for number, (title, what, files, names) in enumerate(STEPS, 1):
        yield f"### {number}. {title}\n"
        yield textwrap.fill(what, 120, break_long_words=False)
        yield ""
        yield "Code: " + ", ".join(f"[`{file}`](../compiler_core/{file})" for file in files) + "."
        yield ""
        for name, language in names:
            yield f"```{language}\n{_text(compile_, name)}\n```\n"


def _text(compile_: Compile, name: str) -> str:
    """A text of the record, without what every kernel and wrapper begins or ends with."""
    text = compile_.find(name).text.strip("\n")
    if name.endswith(".cpp"):
        return text.partition("\n\n")[2]
    return text.partition("\n\n\n")[0] if name.endswith(".wrapper") else text


if __name__ == "__main__":
    PAGE.write_text(page())
