"""The loop IR: what a graph of aten operations becomes before it is printed as C++ or Triton.

Grammar (`statements.py`, `loops.py`, `program.py`; its laws in `check.py`)::

    Program   ::= Buffer* Step* results            steps run in order
    Step      ::= Loops | Call                     our kernel | one of PyTorch's
    Loops     ::= outer sizes, inner sizes, Statement*
    Statement ::= Load | Index | Position | Scalar | Compute | Reduce | Scan | Store
    Load      ::= name: dtype = buffer[Address] where Range*       read one element
    Index     ::= name: dtype = Address            the address itself as a number (arange)
    Position  ::= name: i64 = arg below size where Range*          an index that a tensor holds
    Scalar    ::= name: dtype = number             a number (f64, i64) that Python has when it launches the kernel
    Compute   ::= name: dtype = op(arg, ...)       op is in OPS; arg is a name or a Literal
    Reduce    ::= name: dtype = op over inner of value             op is in REDUCTIONS
    Scan      ::= name: dtype = op up to j of value                op is in SCANS
    Store     ::= buffer[Address] = value          the buffer is made here, each element of it once
                | buffer[Address] put value        ... was made by an earlier step: some elements are replaced,
                | buffer[Address] += value         or added to, in any order
                | buffer[Address] = op over the last outer index of value
    Address   ::= offset + sum(stride * index) + sum(factor * Position)
    Range     ::= 0 <= Address < size

An address has one stride per outer, then per inner size.  A position is in ``0 .. size - 1``: a
kernel that meets another number there reads and writes nothing outside its buffers, and says so
(`Loops.may_fail`).  Where a range does not hold, a load reads nothing, a position is not looked
at, and their values must not be used: they are behind a `where`.

The iteration space of a `Loops` is ``outer + inner``, row-major; sizes are greater than 1, or
symbolic (`sizes.Int`, as all numbers in addresses), and then nothing is known but their range.  The
outer indices are independent of each other.  A statement is at the *inner level* when it
depends on an inner index, otherwise at the *outer level* (once for each outer index):

    Load, Index   inner when a stride of an inner index is not 0, or a position in it is inner
    Position      inner when its argument is, or a range
    Compute       inner when one of its arguments is
    Reduce        outer, always (its value is usually inner); complete before it is used
    Scan          inner, always: the reduction of the value up to the current inner index, row-major
    Store         inner as a Load is; an outer value may be stored
                  at the inner level (broadcast), an inner value never at the outer level

A store "over" an index has no stride for that: it is complete when the index has run.  Only
kernels whose rows are walked in order have such (`columns`), and nobody else makes them.

So a loop without reductions has no inner sizes and only outer statements.  Statements are in
SSA form: a name is made once in its body, before it is used.  Within a body no statement reads
a buffer that the body writes (fusion replaces such a load by the value).

All buffers of a `Loops` lie on one device, and its type decides the language that the kernel is printed in
(`Program.languages`).  Tensors go from one device to another by calls of PyTorch's only.

Types are exact: both arguments of an arithmetic operation have its result's type, a cast is
written out, and bfloat16/float16 are computed as float32 between casts, as eager does.

Softmax over the rows of ``x: f32[32, 128]`` after fusion, as `Loops.text` prints it::

    softmax: for i0 < 32: over j0 < 128:
        x: f32 = load x[128*i0 + j0]
        amax: f32 = max over j of x
        v0: f32 = sub(x, amax)
        exp: f32 = exp(v0)
        sum_1: f32 = sum over j of exp
        div: f32 = div(exp, sum_1)
        store buf0[128*i0 + j0] = div

and the same, made by hand and cut into sweeps over the row::

    row = Address((128, 1))
    f32 = torch.float32
    loops = Loops("softmax", outer=(32,), inner=(128,), body=(
        Load("x", f32, "x", row),
        Reduce("amax", f32, "max", "x"),
        Compute("v0", f32, "sub", ("x", "amax")),
        Compute("exp", f32, "exp", ("v0",)),
        Reduce("sum_1", f32, "sum", "exp"),
        Compute("div", f32, "div", ("exp", "sum_1")),
        Store("buf0", row, "div"),
    ))
    check(loops)
    loops.reads, loops.writes     # ("x",), ("buf0",); a kernel's arguments are reads + writes
    sweeps(loops)                 # [outer: ; inner: x amax], [inner: v0 exp sum_1], [inner: div, store]
"""

from __future__ import annotations

from compiler_core.loops.ir.address import Address, Range
from compiler_core.loops.ir.check import check, check_devices
from compiler_core.loops.ir.loops import Loops, in_lanes
from compiler_core.loops.ir.ops import COMPARISONS, OPS, REDUCTIONS, SCANS, SHORT, Op
from compiler_core.loops.ir.program import (
    LANGUAGES,
    Buffer,
    Call,
    Language,
    Languages,
    Program,
    Result,
    Step,
    View,
    draw_bernoulli,
)
from compiler_core.loops.ir.statements import (
    Argument,
    Compute,
    Index,
    Literal,
    Load,
    Made,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    addresses,
    alive,
    readdressed,
)
from compiler_core.loops.ir.sweeps import Sweep, sweeps

__all__ = [
    "COMPARISONS", "LANGUAGES", "OPS", "REDUCTIONS", "SCANS", "SHORT", "Address", "Argument", "Buffer", "Call",
    "Compute", "Index", "Language", "Languages", "Literal", "Load", "Loops", "Made", "Op", "Position", "Program",
    "Range", "Reduce", "Result", "Scalar", "Scan", "Statement", "Step", "Store", "Sweep", "View", "addresses", "alive",
    "check", "check_devices", "draw_bernoulli", "in_lanes", "readdressed", "sweeps",
]  # fmt: skip
