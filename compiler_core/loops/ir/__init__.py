"""The loop IR: loop nests over buffers, between a graph of aten operators and C++ or Triton source.

Files, bottom up: `statements` (with operations, types and addresses), `loops` (one kernel, its sweeps and its
verifier), `program` (a whole graph), `affine` (changes of the iteration domain), `nest` (one kernel as a tree of loops,
for its schedule), `philox` (the random numbers of dropout).

Grammar (`check` verifies it)::

    Program   ::= Buffer* Step* results            steps run in order
    Step      ::= Loops | Call                     our kernel | one of PyTorch's
    Loops     ::= outer sizes, inner sizes, Statement*             one kernel
    Statement ::= Load | Index | Position | Scalar | Compute | Reduce | Scan | Store
    Load      ::= name: dtype = buffer[Address] where Range* if flag   read one element, or 0
    Index     ::= name: dtype = Address            the value of an index expression (arange)
    Position  ::= name: i64 = arg below size where Range*          an index that is read from a tensor
    Scalar    ::= name: dtype = number             a number (f64, i64) that is a kernel argument
    Compute   ::= name: dtype = op(arg, ...)       op is in OPS; arg is a name or a Literal
    Reduce    ::= name: dtype = op over inner of value             op is in REDUCTIONS
    Scan      ::= name: dtype = op up to j of value                op is in SCANS
    Store     ::= buffer[Address] = value          defines the buffer: each of its elements is stored once
                | buffer[Address] put value        replaces some elements of a buffer that an earlier step defined
                | buffer[Address] += value         adds to such elements, in any order
                | buffer[Address] = op over the last outer index of value
    Address   ::= offset + sum(stride * index) + sum(factor * Position)
    Range     ::= 0 <= Address < size

An address has one stride for each outer size, then one for each inner size.  A position must be in ``0 .. size - 1``:
with any other number the kernel accesses nothing outside its buffers, and reports an error (`Loops.may_fail`).  If a
range of a load or a position does not hold, nothing is read, the position is not checked, and the value is undefined:
it may be used as an unselected operand of `where` only.

The iteration domain of a `Loops` is ``outer + inner``, row-major.  Sizes are greater than 1, or symbolic
(`size_expr.Int`, like all numbers in addresses), of which only the range is known.  The outer indices are independent
of each other.  A statement is at the *inner level* if it depends on an inner index, otherwise at the *outer level*
(it runs once for each outer index):

    Load, Index   inner if a stride of an inner index is not 0, or a position in it is inner
    Position      inner if its argument or a range is
    Compute       inner if one of its arguments is
    Reduce        always outer (its value is usually inner); complete before it is used
    Scan          always inner: the reduction of the value up to the current inner index, row-major
    Store         inner as a Load is; an outer value may be stored
                  at the inner level (broadcast), an inner value never at the outer level

A store "over" the last outer index has stride 0 for it, and is complete when that index has run.  Only
`fuse/program_passes.py` makes such stores; their kernels run through the rows of a part in order.

A loop nest without reductions has no inner sizes, so all its statements are outer ones.  Statements are in SSA form:
each name is defined once in its body, before it is used.  No statement of a body reads a buffer that the body writes
(fusion replaces such a load by the stored value).

All buffers of a `Loops` are on one device, whose type determines the language of the kernel (`Program.languages`).
Only calls of PyTorch's operators copy tensors between devices.

Types are explicit: both arguments of an arithmetic operation have the type of its result, casts are statements, and
bfloat16 and float16 are computed as float32 between casts, as in eager.

Softmax over the rows of ``x: f32[32, 128]`` after fusion, as `Loops.text` prints it::

    softmax: for i0 < 32: over j0 < 128:
        x: f32 = load x[128*i0 + j0]
        amax: f32 = max over j of x
        v0: f32 = sub(x, amax)
        exp: f32 = exp(v0)
        sum_1: f32 = sum over j of exp
        div: f32 = div(exp, sum_1)
        store buf0[128*i0 + j0] = div

and the same, constructed directly and divided into sweeps over the row::

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

from compiler_core.loops.ir.loops import Loops, Sweep, check, sweeps
from compiler_core.loops.ir.program import (
    LANGUAGES,
    Buffer,
    Call,
    Language,
    Languages,
    Launch,
    Program,
    Result,
    Run,
    Step,
    TensorView,
    check_devices,
    draw_bernoulli,
)
from compiler_core.loops.ir.statements import (
    COMPARISONS,
    FLOAT_FUNCTIONS,
    OPS,
    REDUCTIONS,
    SCANS,
    SHORT,
    Address,
    Argument,
    Compute,
    Index,
    Literal,
    Load,
    Op,
    Position,
    Range,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    ValueStatement,
    addresses,
    dependencies,
    eliminate_dead_code,
    map_addresses,
    rename_arguments,
)
