"""PyTorch's warnings: silenced while we trace, and replayed so that each call of compiled code gives those of eager.

What an operation warns about depends on shapes, dtypes and flags, all of which are guarded.  So the warnings are
collected while the operation is captured, on fake tensors.  Some kernels warn about what fake tensors do not show:
`KERNEL_WARNINGS` has, for each of these, a small program that makes PyTorch give the same warning.

Both the operations and these programs run again when a graph is first called, because only PyTorch can tell which
warnings it gives once in a process and whether it has given them already."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import Unsupported

_module: Any = warnings
_lock = threading.RLock()
_depth = 0
"""How many `silence_warnings` blocks are active, in all threads."""
_user_state: tuple[Any, Any] = ([], None)
"""The user's filters and the function that shows a warning, while a block is active."""
_ALL = ("always", None, Warning, None, 0)
_thread = threading.local()
"""``collectors``: the lists that this thread's warnings go to; the innermost is last."""


@contextmanager
def silence_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collects this thread's warnings in the yielded list instead of showing them.

    Unlike `warnings.catch_warnings`, it leaves Python's notes of which warnings were shown already unchanged.
    """
    messages: list[warnings.WarningMessage] = []
    collectors = _collectors()
    _install()
    collectors.append(messages)
    try:
        yield messages
    finally:
        collectors.pop()
        _uninstall()


@contextmanager
def warn_always(enabled: bool = True) -> Iterator[None]:
    """Has PyTorch also give the warnings that it gives once in a process, without noting that it gave them."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(enabled)
    try:
        yield
    finally:
        torch.set_warn_always(before)


@contextmanager
def unsilence_warnings() -> Iterator[None]:
    """Restores the user's filters and output inside `silence_warnings`, for a warning of the compiler itself."""
    with _lock:
        silenced = _module.filters, _module._showwarnmsg
        if _depth:
            _module.filters, _module._showwarnmsg = _user_state
        try:
            yield
        finally:
            if _depth:
                _module.filters, _module._showwarnmsg = silenced


def silenced() -> Sequence[warnings.WarningMessage]:
    """Returns this thread's warnings so far in the innermost `silence_warnings`."""
    collectors = _collectors()
    return collectors[-1] if collectors else ()


def _collectors() -> list[list[warnings.WarningMessage]]:
    if not hasattr(_thread, "collectors"):
        _thread.collectors = []
    collectors: list[list[warnings.WarningMessage]] = _thread.collectors
    return collectors


def _install() -> None:
    global _depth, _user_state
    with _lock:
        if not _depth:
            _user_state = _module.filters, _module._showwarnmsg
            _module.filters, _module._showwarnmsg = [_ALL], _collect
        _depth += 1


def _uninstall() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if not _depth:
            added = _module.filters[:-1]  # by a library that was imported meanwhile; the last filter is _ALL
            _module.filters, _module._showwarnmsg = _user_state
            _module.filters[:0] = added


def _collect(message: warnings.WarningMessage) -> None:
    collectors = _collectors()
    if collectors:
        collectors[-1].append(message)
    else:  # a warning of a thread that does not trace
        _user_state[1](message)


aten = torch.ops.aten
Message = warnings.WarningMessage
Program = Callable[[], Any]


@dataclass(frozen=True)
class CallSite:
    """The source line that calls an operation, and its module's globals."""

    filename: str
    lineno: int
    f_globals: dict[str, Any]


@dataclass
class OperationWarnings:
    """The warnings of one captured operation.  Calling it gives them."""

    run: Program
    """Runs the operation on fake tensors, and the programs for its kernels."""
    always: list[Message]
    """The warnings under ``torch.set_warn_always(True)``."""
    function: Any
    """The function that was called.  A warning about a line of it is given at that line."""
    site: CallSite
    is_ignored: bool = False
    """Whether the program ignores them.  PyTorch still notes those that it gives once."""
    later: list[Message] | None = None
    """The warnings of every call but the first; None before the first call."""

    def __call__(self) -> None:
        """Gives the warnings: those of the first call, of a later call, or those under ``set_warn_always``."""
        messages = self.later
        if messages is None:
            with warn_always(False):  # PyTorch notes what it gives once, so that a kernel does not give it again
                messages, self.later = self._run_again(), self._run_again()
        if torch.is_warn_always_enabled():
            messages = self.always
        for message in messages:
            self.give(message)

    def _run_again(self) -> list[Message]:
        """Returns the warnings of running the operation once more."""
        with silence_warnings() as messages, contextlib.suppress(Exception):  # errors were reported at capture
            self.run()
        return unique_messages(messages)

    def give(self, message: Message) -> None:
        """Gives one warning at the line of the program."""
        filename, lineno, f_globals = self.site.filename, self.site.lineno, self.site.f_globals
        code = getattr(self.function, "__code__", None)
        if isinstance(code, types.CodeType) and code.co_filename == message.filename:
            filename, lineno, f_globals = message.filename, message.lineno, self.function.__globals__
        # Python notes here which warnings it has shown, by line
        registry = f_globals.setdefault("__warningregistry__", {})
        if not self.is_ignored:
            warnings.warn_explicit(message.message, message.category, filename, lineno, registry=registry)


def enter_filters(filters: Sequence[Program], log: list[Message] | None = None) -> Callable[..., None]:
    """Enters ``catch_warnings``, sets filters and returns the ``__exit__``, for code that goes on in the block.

    Warnings are recorded in `log`, if it is given.
    """
    block = warnings.catch_warnings(record=log is not None)
    block.__enter__()
    if log is not None:
        _module._showwarnmsg_impl = log.append
    for set_filter in filters:
        set_filter()
    return block.__exit__


def note_filters_changed() -> None:
    """Has Python forget which warnings it has shown, as it does where a ``catch_warnings`` block begins or ends."""
    with warnings.catch_warnings():
        pass


def unique_messages(messages: Iterable[Message]) -> list[Message]:
    """Returns the messages without repeated texts: making the fake tensors may give the same warning as using them."""
    return list({(m.category, str(m.message)): m for m in messages}.values())


def warning_emitter(graph: fx.Graph) -> Program | None:
    """Returns a function that gives the warnings of all operations of `graph`, or None if there are none."""
    of_nodes = [node.meta["warnings"] for node in graph.nodes if "warnings" in node.meta]
    if not of_nodes:
        return None

    def give_warnings() -> None:
        for give in of_nodes:
            give()

    return give_warnings


def warning_as_program(graph: fx.GraphModule, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `forward` of a captured graph such that what it warns of at its own lines is given at the program's."""
    known: dict[tuple[type, str], list[OperationWarnings]] = {}
    for node in graph.graph.nodes:
        for message in node.meta["warnings"].always if "warnings" in node.meta else ():
            known.setdefault((message.category, str(message.message)), []).append(node.meta["warnings"])
    if not known:
        return forward

    def run(*inputs: Any) -> Any:
        messages: Sequence[Message] = ()
        try:
            with silence_warnings() as messages:
                return forward(*inputs)
        finally:
            of_nodes = {key: iter(found) for key, found in known.items()}
            for each in messages:
                if of_node := next(of_nodes.get((each.category, str(each.message)), iter(())), None):
                    of_node.give(each)
                else:
                    _give_again(each)

    return run


def _give_again(message: Message) -> None:
    """Gives a warning where it was given before."""
    modules = [each for each in sys.modules.values() if getattr(each, "__file__", None) == message.filename]
    registry = vars(modules[0]).setdefault("__warningregistry__", {}) if modules else None
    warnings.warn_explicit(message.message, message.category, message.filename, message.lineno, registry=registry)


@dataclass
class WarningCollector:
    """Collects what the operation that is being captured will warn about when its kernels run."""

    programs: list[Program] = field(default_factory=list)
    """One for each kernel of the operation that will warn."""
    filters: list[functools.partial[None]] | None = None
    """In a ``catch_warnings`` block of the program, the calls of `warnings` that set filters so far."""
    had_block: bool = False
    """Whether a ``catch_warnings`` block began in the graph: Python then forgets which warnings it has shown."""

    def note_kernel(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Notes the warning that the kernel of operator `func` gives for these arguments, if it gives one."""
        if (rule := KERNEL_WARNINGS.get(func)) is not None and (program := rule(func, args, kwargs)) is not None:
            self.programs.append(program)

    def take_programs(self) -> list[Program]:
        """Returns the programs that make PyTorch give the warnings of kernels, and forgets them."""
        programs, self.programs = self.programs, []
        return programs

    def finish(
        self, function: Any, run: Program, messages: Sequence[Message], site: Callable[[], CallSite]
    ) -> OperationWarnings | None:
        """Returns all warnings of the operation, and forgets them.  None if there are none.

        Args:
            function: the captured function.
            run: runs it again on fake tensors.
            messages: what it warned about at capture, under ``set_warn_always``.
            site: returns the line that called it.
        """
        programs = self.take_programs()
        if not (messages or programs):
            return None

        def run_all() -> None:
            run()
            for program in programs:
                program()

        with silence_warnings() as kernel_messages, warn_always():
            for program in programs:
                program()
        last = self.filters[-1] if self.filters else None
        ignores_all = warnings.simplefilter, ("ignore",), dict[str, Any]()
        is_ignored = last is not None and (last.func, last.args, last.keywords) == ignores_all
        if self.had_block and not is_ignored:  # graphs give their warnings before they run
            raise Unsupported("unsupported operation", f"{function}, which warns after warnings.catch_warnings()")
        always = [*unique_messages(messages), *kernel_messages]
        return OperationWarnings(run_all, always, function, site(), is_ignored)


# ---------------------------------------------------------------- warnings of kernels

KernelRule = Callable[[Any, Sequence[Any], Mapping[str, Any]], Program | None]
"""From an operator and its arguments to a program that gives the warning of its kernel; None where it gives none."""


def _variance_warning(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """A variance over no more elements than its correction."""
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    correction = kwargs.get("correction")
    count = math.prod(x.shape[at] for at in dim or range(x.dim())) if x.dim() else 1
    count = count if x.numel() else 0
    if count - (1 if correction is None else correction) > 0:
        return None
    if x.is_complex():
        return _break_graph(func, args, kwargs)
    function = getattr(torch, func._schema.name.partition("::")[2])
    return lambda: function(torch.zeros(1))


def _complex_cast_warning(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """A cast of a complex tensor with elements to a real dtype, which drops the imaginary part."""
    source, dtype = (args[1], args[0].dtype) if func is aten.copy_.default else (args[0], kwargs.get("dtype"))
    is_complex = isinstance(source, torch.Tensor) and source.is_complex()  # torch.func casts Python numbers, too
    if dtype is None or not is_complex or dtype.is_complex or dtype is torch.bool or not source.numel():
        return None
    return lambda: torch.zeros(1, dtype=torch.complex64).to(torch.float32)


def _searchsorted_warning(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """A search in or for tensors that are not contiguous."""
    given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    return None if all(t.is_contiguous() for t in given) else _break_graph(func, args, kwargs)


def _ldexp_warning(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """Integer exponents for fewer numbers: the kernel makes a result for the numbers alone, and resizes it."""
    x, exponent = args[:2]
    is_kernel = x.is_floating_point() and not exponent.is_floating_point()
    together: Any = torch.broadcast_shapes
    grows = x.numel() and together(x.shape, exponent.shape) != x.shape
    return _break_graph(func, args, kwargs) if is_kernel and grows else None


def _reduction_warning(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """``index_reduce``, which may change in later versions, and ``scatter`` with a reduction, which was replaced."""
    if func in (aten.scatter.reduce, aten.scatter_.reduce):
        return lambda: torch.zeros(1).scatter(0, torch.zeros(1, dtype=torch.int64), torch.zeros(1), reduce="add")
    return lambda: torch.zeros(1).index_reduce(0, torch.zeros(1, dtype=torch.int64), torch.zeros(1), "prod")


def _break_graph(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program | None:
    """For kernels whose warning no small program reproduces: eager PyTorch runs the operator."""
    raise Unsupported("unsupported operation", f"{func}, whose kernel warns")


_UNTIL_2_13 = ("cholesky", "triangular_solve")
"""Operators that later versions of PyTorch do not have."""
VARIANCES = [getattr(aten, name).correction for name in ("std", "var", "std_mean", "var_mean")]
KERNEL_WARNINGS: dict[Any, KernelRule] = {
    **dict.fromkeys(VARIANCES, _variance_warning),
    **dict.fromkeys((aten._to_copy.default, aten.copy_.default), _complex_cast_warning),
    **{getattr(aten, name).Tensor: _searchsorted_warning for name in ("searchsorted", "bucketize")},
    **{getattr(aten, name).Scalar: _searchsorted_warning for name in ("searchsorted", "bucketize")},
    aten.ldexp.Tensor: _ldexp_warning,
    **{getattr(aten, name).default: _break_graph for name in _UNTIL_2_13 if hasattr(aten, name)},
    **dict.fromkeys((aten.index_reduce.default, aten.index_reduce_.default), _reduction_warning),
    **dict.fromkeys((aten.scatter.reduce, aten.scatter_.reduce), _reduction_warning),
}
"""Operators whose kernels warn about what fake tensors do not show."""
