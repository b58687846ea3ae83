"""The loop IR: what a graph of aten operations becomes before it is printed as C++ or Triton.

Grammar::

    Program   ::= Buffer* Step* results            steps run in order
    Step      ::= Loops | Call                     our kernel | one of PyTorch's
    Loops     ::= outer sizes, inner sizes, Statement*
    Statement ::= Load | Index | Position | Scalar | Compute | Reduce | Scan | Store
    Load      ::= name: dtype = buffer[Address] where Range*       read one element
    Index     ::= name: dtype = Address            the address itself as a number (arange)
    Position  ::= name: i64 = arg below size where Range*          an index that a tensor holds
    Scalar    ::= name: f64 = number               a float that Python computes before the call
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

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from typing import Literal as OneOf

import torch

from compiler_core.address import Address as Address
from compiler_core.address import Range as Range
from compiler_core.errors import CompilerBug
from compiler_core.record import ItemId
from compiler_core.sizes import Int, Real, hint, prod, symbols_in
from compiler_core.symbols import Definition


class Op(NamedTuple):
    """`cost` is in additions; it only weighs recomputing against storing, and threads."""

    arity: int
    cost: int = 1


OPS: dict[str, Op] = {
    # the result has the type of the arguments; integers wrap around
    **{name: Op(2) for name in ("add", "sub", "mul")},
    "div": Op(2, 4),  # floats only
    # quotient rounded down or towards 0; `mod` has the sign of the divisor, `fmod` of the
    # dividend.  An integer divisor is a Literal other than 0, since eager raises on 0.
    **{name: Op(2, 6) for name in ("floordiv", "truncdiv", "mod", "fmod")},
    **{name: Op(2) for name in ("minimum", "maximum")},  # NaN when an argument is
    "pow": Op(2, 20),
    "atan2": Op(2, 20),
    "neg": Op(1),
    "abs": Op(1),
    "sign": Op(1),  # sign(NaN) and sign(0) are 0
    **{name: Op(1) for name in ("floor", "ceil", "trunc")},
    "round": Op(1),  # half to even
    "sqrt": Op(1, 4),
    "rsqrt": Op(1, 5),
    **{
        name: Op(1, 10)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
            *("sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    },
    # on integers bit by bit, on bool logical
    **{name: Op(2) for name in ("and", "or", "xor")},
    "not": Op(1),
    **{name: Op(2) for name in ("lshift", "rshift")},
    # the result is bool; comparisons with NaN are False, but `ne` is True
    **{name: Op(2) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": Op(1),
    "isinf": Op(1),
    "signbit": Op(1),
    "where": Op(3),  # condition is bool, the other two have the result's type
    "cast": Op(1),  # as Tensor.to: to an integer towards 0, to bool "is not 0"
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit"})

REDUCTIONS: dict[str, float | bool] = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),  # NaN when any element is; the least value of an integer type
    "min": float("inf"),
    "any": False,  # of bool
    "all": True,
}
"""Each reduction and what it is of nothing."""
SCANS = ("sum", "prod")
"""The reductions that there are running ones of."""

SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
"""The types that loops compute with; a graph node of any other type is a call of PyTorch's."""


@dataclass(frozen=True)
class Literal:
    """A number in the place of an argument."""

    value: int | float | bool
    dtype: torch.dtype

    def __str__(self) -> str:
        return repr(self.value)


Argument = str | Literal


@dataclass(frozen=True)
class Load:
    name: str
    dtype: torch.dtype
    buffer: str
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    within: tuple[Range, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return _positions(self.address, self.within)


@dataclass(frozen=True)
class Index:
    name: str
    dtype: torch.dtype
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return _positions(self.address)


@dataclass(frozen=True)
class Position:
    name: str
    value: Argument
    size: Int
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    within: tuple[Range, ...] = ()

    dtype: torch.dtype = field(default=torch.int64, init=False, repr=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value, *_positions(None, self.within))


@dataclass(frozen=True)
class Scalar:
    name: str
    number: Real
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    dtype: torch.dtype = field(default=torch.float64, init=False, repr=False)
    arguments: tuple[Argument, ...] = field(default=(), init=False, repr=False)


@dataclass(frozen=True)
class Compute:
    name: str
    dtype: torch.dtype
    op: str
    arguments: tuple[Argument, ...]
    origin: tuple[ItemId, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _OverInner:
    """What goes through the values of the inner indices."""

    name: str
    dtype: torch.dtype
    op: str
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value,)


class Reduce(_OverInner):
    """One value for all of them."""


class Scan(_OverInner):
    """A value for each: that of those up to it."""


@dataclass(frozen=True)
class Store:
    buffer: str
    address: Address
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    how: OneOf["=", "put", "+="] = "="
    over: str = ""
    """The reduction over the last outer index, where it is one."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value, *_positions(self.address))


Made = Load | Index | Position | Scalar | Compute | Reduce | Scan
Statement = Made | Store


def _positions(address: Address | None, within: Sequence[Range] = ()) -> tuple[str, ...]:
    """The positions in an address and in ranges."""
    parts = [*([address] if address is not None else []), *(r.address for r in within)]
    return tuple(dict.fromkeys(name for part in parts for name, _ in part.values))


def addresses(statement: Statement) -> tuple[Address, ...]:
    """All addresses in a statement, those of its ranges too."""
    own = (statement.address,) if isinstance(statement, (Load, Index, Store)) else ()
    ranges = statement.within if isinstance(statement, (Load, Position)) else ()
    return (*own, *(r.address for r in ranges))


def readdressed(statement: Statement, change: Callable[[Address], Address]) -> Statement:
    """`statement` with every address changed."""
    if isinstance(statement, (Load, Position)) and statement.within:
        within = tuple(Range(change(r.address), r.size) for r in statement.within)
        statement = replace(statement, within=within)
    if isinstance(statement, (Load, Index, Store)):
        statement = replace(statement, address=change(statement.address))
    return statement


@dataclass(frozen=True)
class Loops:
    """One kernel: `body` for every index of ``outer + inner``.  See the top of this file."""

    name: str
    outer: tuple[Int, ...]
    inner: tuple[Int, ...]
    body: tuple[Statement, ...]

    @property
    def space(self) -> tuple[Int, ...]:
        return self.outer + self.inner

    @property
    def index_names(self) -> tuple[str, ...]:
        """``i0 i1 ...`` for the outer indices, ``j0 j1 ...`` for the inner ones."""
        outer, inner = (f"i{k}" for k in range(len(self.outer))), (f"j{k}" for k in range(len(self.inner)))
        return (*outer, *inner)

    @property
    def outer_numel(self) -> Int:
        return prod(self.outer)

    @property
    def inner_numel(self) -> Int:
        return prod(self.inner)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Buffers that are loaded from, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Load)))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Buffers that are stored to, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store)))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """Those of `writes` that no earlier step made."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store) and s.how == "="))

    @property
    def needs(self) -> tuple[str, ...]:
        """The buffers that earlier steps must have made: those that it reads, and those that it writes into."""
        return (*self.reads, *(b for b in self.writes if b not in self.makes))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that the kernel takes, in this order."""
        return self.reads + self.writes

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that sizes and addresses depend on; the kernel takes them as int64 after its buffers."""
        numbers: list[Any] = [self.space]
        for s in self.body:
            numbers += [(a.strides, a.offset, [f for _, f in a.values]) for a in addresses(s)]
            numbers += [s.size] if isinstance(s, Position) else []
            numbers += [r.size for r in s.within] if isinstance(s, (Load, Position)) else []
        return tuple(sorted(set(symbols_in(numbers))))

    @cached_property
    def scatters(self) -> bool:
        """Whether it writes into what an earlier step made."""
        return any(isinstance(s, Store) and s.how != "=" for s in self.body)

    @cached_property
    def may_fail(self) -> bool:
        """Whether the kernel can meet an index that is out of range."""
        return any(isinstance(s, Position) for s in self.body)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The floats that the kernel takes as float64 after its symbols."""
        return tuple(dict.fromkeys(s.number.name for s in self.body if isinstance(s, Scalar)))

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for s in self.body if isinstance(s, Scan))

    @cached_property
    def columns(self) -> tuple[Store, ...]:
        """The stores over the last outer index."""
        return tuple(s for s in self.body if isinstance(s, Store) and s.over)

    @property
    def operations(self) -> int:
        """Additions and what costs like them, for the sizes with which the graph was captured."""
        once, each = hint(self.outer_numel), hint(self.outer_numel) * hint(self.inner_numel)
        prices = (
            (s, OPS[s.op].cost if isinstance(s, Compute) else 1) for s in self.body if isinstance(s, (Compute, Reduce))
        )
        # what a reduction takes in is at the inner level
        return sum(price * (each if isinstance(s, Reduce) or self.is_inner(s) else once) for s, price in prices)

    @cached_property
    def origin(self) -> tuple[ItemId, ...]:
        return tuple(dict.fromkeys(item for s in self.body for item in s.origin))

    @cached_property
    def inner_names(self) -> frozenset[str]:
        """Names of the values that are at the inner level."""
        names: set[str] = set()
        for statement in self.body:
            if not isinstance(statement, Store) and self.is_inner(statement, names):
                names.add(statement.name)
        return frozenset(names)

    def is_inner(self, statement: Statement, inner_names: set[str] | frozenset[str] | None = None) -> bool:
        """Whether `statement` is at the inner level."""
        if isinstance(statement, (Reduce, Scalar, Scan)):
            return isinstance(statement, Scan)
        names = self.inner_names if inner_names is None else inner_names
        used = statement.arguments[1:] if isinstance(statement, Store) else statement.arguments
        return any(a in names for a in used) or any(any(a.strides[len(self.outer) :]) for a in addresses(statement))

    def lines(self) -> Iterator[tuple[str, Statement | None]]:
        """The text line by line; the heading comes with None."""
        names = self.index_names
        outer = ", ".join(f"{n} < {s}" for n, s in zip(names, self.outer, strict=False))
        inner = ", ".join(f"{n} < {s}" for n, s in zip(names[len(self.outer) :], self.inner, strict=True))
        heading = f"{self.name}: for {outer or '()'}:"
        yield f"{heading} over {inner}:" if inner else heading, None
        for statement in self.body:
            yield f"    {statement_text(statement, names)}", statement

    def text(self) -> str:
        return "\n".join(line for line, _ in self.lines()) + "\n"


def statement_text(statement: Statement, index_names: Sequence[str]) -> str:
    """One line of `Loops.text`."""
    if isinstance(statement, Store):
        over = f"{statement.over} over i of " if statement.over else ""
        place = f"{statement.buffer}[{statement.address.text(index_names)}]"
        return f"store {place} {statement.how} {over}{statement.value}"
    left = f"{statement.name}: {SHORT[statement.dtype]}"
    within = statement.within if isinstance(statement, (Load, Position)) else ()
    where = f" where {' and '.join(r.text(index_names) for r in within)}" if within else ""
    if isinstance(statement, Load):
        return f"{left} = load {statement.buffer}[{statement.address.text(index_names)}]{where}"
    if isinstance(statement, Position):
        return f"{left} = {statement.value} below {statement.size}{where}"
    if isinstance(statement, Index):
        return f"{left} = {statement.address.text(index_names)}"
    if isinstance(statement, Scalar):
        return f"{left} = {statement.number}"
    if isinstance(statement, (Reduce, Scan)):
        return f"{left} = {statement.op} {'over' if isinstance(statement, Reduce) else 'up to'} j of {statement.value}"
    return f"{left} = {statement.op}({', '.join(map(str, statement.arguments))})"


@dataclass(frozen=True)
class Sweep:
    """`outer` statements, then one run over all inner indices that does the `inner` ones.

    `again` are the inner statements of earlier sweeps whose values this one needs; a printer
    does them anew before `inner`, or has kept their values.  Reduce statements are among
    `inner`: the sweep accumulates them and its successors see the result.
    """

    outer: tuple[Statement, ...]
    inner: tuple[Statement, ...]
    again: tuple[Statement, ...]


def sweeps(loops: Loops, kept: Set[str] = frozenset()) -> list[Sweep]:
    """The body cut at its reductions: sweep k may use what was reduced in sweeps before k.

    The last sweep holds what is left; its `inner` is empty when only outer statements are.
    What only led to a value of `kept` is not done again.
    """
    depth: dict[str, int] = {}
    placed: list[tuple[int, bool, Statement]] = []
    for statement in loops.body:
        at = max((depth[a] for a in statement.arguments if isinstance(a, str)), default=0)
        swept = isinstance(statement, Reduce) or loops.is_inner(statement)
        if not isinstance(statement, Store):
            depth[statement.name] = at + 1 if isinstance(statement, Reduce) else at
        placed.append((at, swept, statement))
    made: list[Sweep] = []
    for k in range(max((at for at, _, _ in placed), default=0) + 1):
        outer = tuple(s for at, swept, s in placed if at == k and not swept)
        inner = tuple(s for at, swept, s in placed if at == k and swept)
        earlier = [s for at, swept, s in placed if at < k and swept and not isinstance(s, Reduce)]
        made.append(Sweep(outer, inner, _needed(inner, earlier, kept)))
    return made


def _needed(users: Sequence[Statement], candidates: Sequence[Statement], kept: Set[str]) -> tuple[Statement, ...]:
    """Those of `candidates` that `users` depend on, directly or not, in order."""
    wanted = {a for s in users for a in s.arguments}
    needed: list[Statement] = []
    for statement in reversed(candidates):
        if not isinstance(statement, Store) and statement.name in wanted:
            wanted.update(() if statement.name in kept else statement.arguments)
            needed.append(statement)
    return tuple(reversed(needed))


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, as it is given to or made by a step; strides are eager's."""

    name: str
    dtype: torch.dtype
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    device: torch.device
    kind: OneOf["input", "constant", "loops", "call"]
    """Given by the caller; an attribute of the graph; allocated by us; returned by a Call."""
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def numel(self) -> Int:
        return prod(self.size)

    @property
    def bytes(self) -> int:
        """Where the size is symbolic, of the tensor that was there when the graph was captured."""
        return hint(self.numel) * self.dtype.itemsize


@dataclass(frozen=True)
class View:
    """A tensor as a window on a buffer, `offset` elements from the buffer's first one."""

    buffer: str
    size: tuple[Int, ...]
    stride: tuple[Int, ...]
    offset: Int = 0

    def whole(self, buffer: Buffer) -> bool:
        """Whether this is the buffer's tensor itself."""
        return (self.size, self.stride, self.offset) == (buffer.size, buffer.stride, 0)


@dataclass(frozen=True)
class Result:
    """What the call `name` returned, where that is no tensor (several tensors, a number)."""

    name: str


@dataclass(frozen=True)
class Call:
    """``name = target(*args, **kwargs)`` by PyTorch; among the arguments, a tensor is a View.

    A tensor that it returns is the buffer `name`.  `ordered` calls (random draws) keep their
    order among themselves; a `barrier` (it changes an argument) keeps its place among all steps.
    """

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[str, ...]
    """Names of buffers and results."""
    ordered: bool = False
    barrier: bool = False
    origin: tuple[ItemId, ...] = ()
    reason: str = ""
    """Why a rule left it to PyTorch; nothing where no loops could do it."""

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def makes(self) -> tuple[str, ...]:
        return self.writes

    @property
    def needs(self) -> tuple[str, ...]:
        return self.reads


Step = Loops | Call


@dataclass(frozen=True)
class Program:
    """A whole graph: `inputs` are buffer names in order, `results` what it returns."""

    name: str
    buffers: dict[str, Buffer]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[View | Result | int | float | bool | None, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    """Attributes of the graph, by buffer name."""
    symbols: Mapping[str, Definition] = field(default_factory=dict)
    """How each symbol is computed from the inputs; each after those that it needs."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """What each input that is no tensor was when the graph was captured."""

    def text(self) -> str:
        return "\n".join(s.text() for s in self.steps if isinstance(s, Loops))

    def with_steps(self, steps: Sequence[Step]) -> Program:
        return replace(self, steps=tuple(steps))

    def numbered(self) -> Program:
        """Its loops named ``<program>_0, <program>_1 ...`` in order, as kernels are called."""
        numbers = itertools.count()
        taken = {*self.buffers, *(s.name for s in self.steps if isinstance(s, Call))}
        names = (name for n in numbers if (name := f"{self.name}_{n}") not in taken)
        return self.with_steps([replace(s, name=next(names)) if isinstance(s, Loops) else s for s in self.steps])


def check(loops: Loops) -> None:
    """The laws at the top of this file; CompilerBug shows the body and the line that breaks one."""
    dtypes: dict[str, torch.dtype] = {}
    positions = {s.name for s in loops.body if isinstance(s, Position)}
    for at, statement in enumerate(loops.body):
        if problem := _problem(loops, statement, dtypes, positions):
            lines = loops.text().splitlines()
            lines[at + 1] += f"    <-- {problem}"
            raise CompilerBug("loop IR: " + "\n".join([problem, *lines]))
        if not isinstance(statement, Store):
            dtypes[statement.name] = statement.dtype


def _problem(loops: Loops, statement: Statement, dtypes: dict[str, torch.dtype], positions: Set[str]) -> str | None:
    """What is wrong with `statement`, after statements that made values of `dtypes`."""
    types = []
    for argument in statement.arguments:
        if isinstance(argument, str) and argument not in dtypes:
            return f"{argument} is used before it is made"
        types.append(argument.dtype if isinstance(argument, Literal) else dtypes[argument])
    if not isinstance(statement, Store) and statement.name in dtypes:
        return f"{statement.name} is made twice"
    for address in addresses(statement):
        if len(address.strides) != len(loops.space):
            return f"the address has {len(address.strides)} strides for {len(loops.space)} sizes"
        if any(name not in positions for name, _ in address.values):
            return "the address depends on a value that is no position"
    if isinstance(statement, Load) and statement.buffer in loops.writes:
        return f"{statement.buffer} is both read and written"
    if isinstance(statement, Store) and statement.how != "=" and loops.inner:
        return "loops that write into what is there have no inner indices"
    if isinstance(statement, Store) and statement.value in loops.inner_names and not loops.is_inner(statement):
        return "an inner value is stored at the outer level"
    if isinstance(statement, Position):
        return None if types[0] is torch.int64 else "a position is made from an i64"
    if isinstance(statement, Store) and statement.over and statement.address.strides[len(loops.outer) - 1] != 0:
        return "what is stored over an index depends on it"
    if isinstance(statement, Scan) and not loops.inner:
        return "there is no inner index to go up to"
    if isinstance(statement, (Reduce, Scan)):
        return None if types == [statement.dtype] else "a reduction has the type of its value"
    return _compute_problem(statement, types) if isinstance(statement, Compute) else None


def _compute_problem(statement: Compute, types: list[torch.dtype]) -> str | None:
    op, dtype = statement.op, statement.dtype
    if op not in OPS:
        return f"unknown operation {op}; ir.OPS has the known ones"
    if len(types) != OPS[op].arity:
        return f"{op} takes {OPS[op].arity} arguments"
    if op == "cast":
        return None
    want = [torch.bool, dtype, dtype] if op == "where" else [types[0] if op in COMPARISONS else dtype] * len(types)
    if op in COMPARISONS and dtype is not torch.bool:
        return f"{op} makes bool"
    return None if types == want else f"argument types {[SHORT[t] for t in types]} for {[SHORT[t] for t in want]}"
