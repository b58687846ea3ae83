"""``--try-advice`` of ``cutaway run``: a script that has ended runs again with each change that is advised.

The machinery is that of cells (`run.fixes`): a script is a cell that runs as written, each time in a new ``__main__``.
What it gives to `torch.compile` is changed on the way there, and what the compiled calls return is compared, too: a
script may keep nothing in global names.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread as executors
import dataclasses
import functools
import gc
import inspect
import os
import signal
import sys
import threading
import tokenize
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler_core.errors import UsageError
from compiler_core.records import Problem, Record
from compiler_core.tools.questions.memory import highest_peak
from kernel_magics.cell.parse import CompileUnit, Program
from kernel_magics.command.run_script import Engine, Start, torch_compile_by_core
from kernel_magics.command.text import print_message
from kernel_magics.run.cell_timer import CellTimer, no_progress
from kernel_magics.run.fixes.finding import Fix, FixFinder
from kernel_magics.run.fixes.live_code import assigned_lines, compiled_class, copied
from kernel_magics.run.fixes.trial import Fixes
from kernel_magics.run.request import Request
from kernel_magics.run.snapshots import plain_copy, plain_values

if TYPE_CHECKING:
    import torch

    from compiler_core.tools.timing.rounds import Progress
    from compiler_core.tools.timing.saved_state import SavedState

MAX_BYTES = 2**30
"""How many bytes of results are kept to be compared."""
_OF_START = (
    "__name__", "__file__", "__builtins__", "__cached__", "__loader__", "__package__", "__spec__", "__annotations__",
)  # fmt: skip
"""The names that are there before a script starts."""
_OURS = ("compiler_core", "kernel_magics")


def try_advice(
    record: Record,
    engine: Engine,
    capture_backward: bool,
    start: Start,
    namespace: dict[str, Any],
    seconds: float,
) -> None:
    """Tries the advice on the problems of a script that has ended; what came of it, or why nothing was tried, is then
    in the record.

    Args:
        record: of its run.
        engine: what it was compiled by.
        capture_backward: the option with which our compiler did.
        start: what it found when it started.
        namespace: the names of its ``__main__``.
        seconds: for how long advice is tried.
    """
    record.find_problems()
    if not record.problems and highest_peak(record) is None:
        return
    if obstacle := _obstacle(namespace):
        record.notes.append(f"--try-advice: not tried: {obstacle}.")
        return
    print_message(f"cutaway run: trying the advice, for at most {seconds:g} s; Ctrl-C ends only that")
    try:
        with _as_at_start(start, namespace) as main:
            program = _program(start, dict(vars(main)))
            vars(main).update(namespace)  # where changes are looked for
            request = Request(engine=engine, as_written="is a script", capture_backward=capture_backward)
            timer = _ScriptTimer(_Shell(vars(main)), program, request)
            _ScriptFixes(timer, record).run_all(no_progress, seconds)
    except KeyboardInterrupt:
        record.notes.append("--try-advice: stopped; no advice was tried.")
    except UsageError as refusal:
        record.notes.append(f"--try-advice: not tried: {refusal}.")


def _obstacle(namespace: Mapping[str, Any]) -> str:
    """Returns why a script cannot run again; empty if it can."""
    import torch.distributed

    is_rank = torch.distributed.is_available() and torch.distributed.is_initialized()
    if is_rank or int(os.getenv("WORLD_SIZE", "1")) > 1:
        return "the script is one rank of a job"
    if not Path(str(namespace.get("__file__"))).is_file():
        return "the text of the script cannot be read"
    for each in threading.enumerate():
        if each is not threading.main_thread() and not each.daemon and each not in executors._threads_queues:
            return f"the script's thread {each.name} still runs"
    return ""


@contextmanager
def _as_at_start(start: Start, namespace: Mapping[str, Any]) -> Iterator[types.ModuleType]:
    """Context manager in which a script can start again; yields its new ``__main__``.

    It has no input, prints nothing to the terminal, and Ctrl-C raises, whatever it does under the script's own handler.
    """
    from compiler_core.tools.timing.process_state import save_process_state

    main = types.ModuleType("__main__")
    vars(main).clear()
    vars(main).update({name: namespace[name] for name in _OF_START if name in namespace} | {"__annotations__": {}})
    modules, folder = dict(sys.modules), os.getcwd()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["__main__"] = main
    restore = save_process_state()
    try:
        start.restore_process_state()
        is_own = functools.partial(_is_own, start, vars(main))
        with ExitStack() as stack:
            nothing = stack.enter_context(open(os.devnull))
            paths = (sys, "argv", [*start.arguments]), (sys, "path", [*start.path])
            stack.enter_context(_replaced(*paths, (sys, "stdin", nothing), (sys, "dont_write_bytecode", True)))
            for each in (_without_terminal(), warnings.catch_warnings(), _nothing_registered(is_own)):
                stack.enter_context(each)
            os.chdir(start.folder)
            yield main
    finally:
        restore()
        os.chdir(folder)
        _drop_own_modules(start)
        sys.modules.update(modules)
        signal.signal(signal.SIGINT, handler)


def _drop_own_modules(start: Start) -> None:
    """Has what the script imports from its own folder imported again."""
    for name in [name for name, module in sys.modules.items() if _is_own_module(start, name, module)]:
        del sys.modules[name]


def _is_own_module(start: Start, name: str, module: object) -> bool:
    if name in start.modules or name.partition(".")[0] in (*_OURS, "__main__"):
        return False
    folder = os.path.join(os.path.realpath(start.path[0] or start.folder), "")
    file = os.path.realpath(getattr(module, "__file__", None) or "")
    return file.startswith(folder) and "site-packages" not in file.removeprefix(folder)


def _is_own(start: Start, names: dict[str, Any], frame: types.FrameType) -> bool:
    """Whether a frame is the script's, or that of a module in its folder."""
    name = str(frame.f_globals.get("__name__"))
    return frame.f_globals is names or _is_own_module(start, name, sys.modules.get(name))


@contextmanager
def _nothing_registered(is_own: Callable[[types.FrameType], bool]) -> Iterator[None]:
    """Context manager in which a script sets no functions for signals and for the end of the process."""
    register, set_handler = atexit.register, signal.signal

    def registered(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function if is_own(sys._getframe(1)) else register(function, *args, **kwargs)

    def handled(number: Any, handler: Any) -> Any:
        return signal.getsignal(number) if is_own(sys._getframe(1)) else set_handler(number, handler)

    with _replaced((atexit, "register", registered), (signal, "signal", handled)):
        yield


@contextmanager
def _replaced(*places: tuple[Any, str, object]) -> Iterator[None]:
    """Context manager in which attributes of objects have other values."""
    before = [getattr(holder, name) for holder, name, _ in places]
    for holder, name, value in places:
        setattr(holder, name, value)
    try:
        yield
    finally:
        for (holder, name, _), value in zip(places, before, strict=True):
            setattr(holder, name, value)


@contextmanager
def _without_terminal() -> Iterator[None]:
    """Context manager in which nothing is written to standard output and error, also by what has kept the streams."""
    streams = sys.stdout, sys.stderr
    for each in streams:
        each.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        for each in streams:
            each.flush()
        for number, own in zip((1, 2), kept, strict=True):
            os.dup2(own, number)
            os.close(own)
        os.close(nowhere)


@dataclass
class _Shell:
    """What trials need of a shell."""

    user_ns: dict[str, Any]
    display_pub: None = None


@dataclass
class _ScriptProgram(Program):
    """A script as a program that runs from its start."""

    start: dict[str, Any] = field(default_factory=dict)
    """The names that it finds."""
    drop_modules: Callable[[], None] = lambda: None
    """Has its own modules imported again."""

    def bind(self, namespace: dict[str, Any], compile_unit: CompileUnit) -> Callable[[], object]:
        """Returns a function that runs it, with only `start` in the namespace."""

        code = copied(self.skeleton)  # stock keeps what it compiled by code objects

        def run() -> None:
            for name in [name for name in namespace if not name.startswith("__")]:  # those are a compiler's
                del namespace[name]
            namespace.update(self.start | {"__annotations__": {}})
            self.drop_modules()
            try:
                exec(code, namespace)
            except SystemExit as end:
                if end.code:
                    raise ScriptExited(f"with {end.code}") from None

        return run


class ScriptExited(Exception):
    """A script ended itself with an error."""


def _program(start: Start, names: dict[str, Any]) -> _ScriptProgram:
    """Returns the script that starts with these names, as a program."""
    filename = os.path.abspath(names["__file__"])
    with tokenize.open(filename) as file:
        source = file.read()
    code = compile(source, filename, "exec", dont_inherit=True)
    return _ScriptProgram(filename, source, code, [], [], names, functools.partial(_drop_own_modules, start))


class _ScriptTimer(CellTimer):
    """Runs a script again as a cell is run again."""

    def __init__(self, shell: _Shell, program: Program, request: Request) -> None:
        super().__init__(shell, program, request)
        self.calls = _Calls()

    def saved_state(self, progress: Progress = no_progress) -> SavedState:
        """Saves the state of the process: nothing else is there when a script starts."""
        from compiler_core.tools.timing.saved_state import SavedState

        return SavedState([])

    def _plainly(self) -> AbstractContextManager[Any]:
        return self.calls.plain()


class _ScriptFinder(FixFinder):
    """Finds the changes for a script."""

    def is_cell(self, filename: str) -> bool:
        return filename == self._program.filename

    @property
    def can_compile_otherwise(self) -> bool:
        return True

    def _lines_reach(self, problem: Problem) -> bool:
        return True

    def _models(self) -> Iterator[torch.nn.Module]:
        """Yields the modules that the script has in global names, and those that were compiled and are still there."""
        yield from super()._models()
        for each in gc.get_objects():
            if type(each).__name__ in ("OptimizedModule", "CompiledModule"):
                yield each


class _ScriptFixes(Fixes):
    """The changes that may remove the problems of a script."""

    _timer: _ScriptTimer

    def _made_finder(self) -> FixFinder:
        return _ScriptFinder(self._shell, self._program, self._request, self._record)

    def _values(self, program: Program, value: object) -> dict[str, object]:
        return plain_values(self._shell.user_ns, [program.skeleton], value) | self._timer.calls.values()

    def _parsed(self, source: str) -> Program:
        code = compile(source, self._program.filename, "exec", dont_inherit=True)
        return dataclasses.replace(self._program, source=source, skeleton=code)

    def _bound(
        self, fix: Fix, program: Program, request: Request, record: Record, changed: ExitStack
    ) -> Callable[[], object]:
        run, calls = program.bind(self._shell.user_ns, _as_it_is), self._timer.calls
        if request.engine == "core":
            changed.enter_context(torch_compile_by_core(record, request.keeps_backward, request.memory_budget))
        changed.enter_context(calls.changed(fix, self._compiled_places(fix)))

        def run_changed() -> object:
            value = run()
            calls.check_reached(fix)
            return value

        return run_changed

    def _compiled_places(self, fix: Fix) -> set[tuple[str, int]]:
        """Returns the file and the first line of the functions whose compiles have the problems."""
        ids = {id_ for number in fix.problems for id_ in self._record.problems[number].compiles}
        frames = [frame for frame in self._record.frames if any(each.id in ids for each in frame.compiles)]
        return {(frame.filename, frame.line) for frame in frames}


def _as_it_is(unit: types.FunctionType) -> Callable[[], object]:
    return unit


class _Calls:
    """The calls of compiled functions and modules in one run of a script, through a replaced `torch.compile`."""

    def __init__(self) -> None:
        self._results: list[object] = []
        self._bytes = self._depth = 0
        self._models: dict[int, torch.nn.Module] = {}
        self._reached = False

    def values(self) -> dict[str, object]:
        """Returns what the calls returned, and the state of the compiled modules; UsageError if that is too large."""
        if self._bytes > MAX_BYTES:
            raise UsageError(f"its results have more than {MAX_BYTES:,} bytes")
        found = {f"the result of call {number}": each for number, each in enumerate(self._results, 1)}
        for number, model in enumerate(self._models.values(), 1):
            name = f"{type(model).__name__} {number}"
            for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
                found |= {f"{name}.{key}": plain_copy(tensor), f"{name}.{key}.grad": plain_copy(tensor.grad)}
        return found

    @contextmanager
    def plain(self) -> Iterator[None]:
        """Context manager in which `torch.compile` compiles nothing."""
        import torch
        from torch.compiler import set_stance

        own = torch.compile
        with set_stance("force_eager"), self._compiling_by(lambda model, given: self._kept(own(model, **given), model)):
            yield

    @contextmanager
    def changed(self, fix: Fix, places: set[tuple[str, int]]) -> Iterator[None]:
        """Context manager in which a change of options, inputs or of what is compiled is made.

        `places`: the file and the first line of each function that lines run before.
        """
        import torch

        own, blocks = torch.compile, ExitStack()
        self._reached = not (fix.lines or fix.block)

        def compile_changed(model: Any, given: dict[str, Any]) -> Any:
            if (block := _of_name(model, fix.block)) is not None:
                self._reached = True
                if block not in done:
                    done.add(block)
                    blocks.enter_context(compiled_class(block, fix.around or functools.partial(own, **given)))
                if fix.around is None:
                    # a compiled module, as in the script: its state has the same names, but nothing of it is compiled
                    return self._kept(own(model, **given), model, call=model)
            options = {name: value for name, value in fix.options.items() if name != "memory_budget"}
            compiled = own(model, **given | options)
            function = getattr(model, "forward", model)
            code = getattr(inspect.unwrap(function), "__code__", None)
            if fix.lines and code is not None and (code.co_filename, code.co_firstlineno) in places:
                return self._kept(compiled, model, _Before(fix.lines, function, self))
            if fix.around is not None and fix.block is None:
                call = compiled.forward if isinstance(compiled, torch.nn.Module) else compiled
                return self._kept(compiled, model, call=fix.around(call))
            return self._kept(compiled, model)

        done: set[type] = set()
        with blocks, self._compiling_by(compile_changed):
            yield

    def note_reached(self) -> None:
        """Notes that the change has been made in a call."""
        self._reached = True

    def check_reached(self, fix: Fix) -> None:
        """Raises UsageError unless the change was made."""
        if not self._reached:
            what = "module" if fix.block else "function with these arguments"
            raise UsageError(f"no such {what} is given to torch.compile")

    @contextmanager
    def _compiling_by(self, compile_: Callable[[Any, dict[str, Any]], Any]) -> Iterator[None]:
        import torch

        import compiler_core

        self._results, self._bytes, self._models, self._depth = [], 0, {}, 0

        def replaced(model: Any = None, **given: Any) -> Any:
            return functools.partial(replaced, **given) if model is None else compile_(model, given)

        with _replaced((torch, "compile", replaced), (compiler_core, "compile", replaced)):
            yield

    def _kept(self, compiled: Any, original: Any, before: _Before | None = None, call: Any = None) -> Any:
        """Returns a compiled function or module whose outermost calls are noted, and are those of `call` if given."""
        import torch

        if isinstance(compiled, (type, staticmethod, classmethod)):
            return compiled
        for each in _modules_of(original):
            self._models[id(each)] = each
        call = call or (compiled.forward if isinstance(compiled, torch.nn.Module) else compiled)

        @functools.wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return call(*args, **kwargs)
            self._depth += 1
            try:
                with before.run(args, kwargs) if before is not None else _unchanged(args, kwargs) as given:
                    result = call(*given.args, **given.kwargs)
            finally:
                self._depth -= 1
            if not self._depth:
                self._note(result)
            return result

        if isinstance(compiled, torch.nn.Module):
            object.__setattr__(compiled, "forward", noted)
            return compiled
        return noted

    def _note(self, result: object) -> None:
        import torch

        from compiler_core.torch_private import tree_leaves

        self._bytes += sum(each.nbytes for each in tree_leaves(result) if isinstance(each, torch.Tensor))
        if self._bytes <= MAX_BYTES:
            self._results.append(plain_copy(result))


@contextmanager
def _unchanged(args: Any, kwargs: Any) -> Iterator[inspect.BoundArguments]:
    yield types.SimpleNamespace(args=args, kwargs=kwargs)  # type: ignore[misc]


class _Before:
    """Lines that run before each call of a function, on its arguments or on globals."""

    def __init__(self, lines: list[str], function: Any, calls: _Calls) -> None:
        self._lines, self._calls = lines, calls
        self._signature = inspect.signature(function)
        self._globals = getattr(inspect.unwrap(function), "__globals__", {})
        self._self = getattr(function, "__self__", None)

    @contextmanager
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[inspect.BoundArguments]:
        """Context manager in which the lines have run; yields the arguments that they have left."""
        import torch

        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        own = {"torch": torch, "self": self._self, **bound.arguments}
        with assigned_lines(self._lines, own, self._globals) as has_run:
            if has_run:
                self._calls.note_reached()
            bound.arguments.update({name: own[name] for name in bound.arguments})
            yield bound


def _modules_of(original: Any) -> Iterator[torch.nn.Module]:
    """Yields the modules that what is compiled is, is a method of, or names."""
    import torch

    function = inspect.unwrap(original) if callable(original) else original
    held = [original, getattr(function, "__self__", None)]
    if isinstance(function := getattr(function, "__func__", function), types.FunctionType):
        held += [function.__globals__.get(name) for name in function.__code__.co_names]
        names = inspect.getclosurevars(function).nonlocals
        held += names.values()
    for each in held:
        if isinstance(each, torch.nn.Module):
            yield each


def _of_name(model: Any, block: type | None) -> type[torch.nn.Module] | None:
    """Returns the class of that name whose objects are modules in what is compiled; None without one."""
    roots = [] if block is None else list(_modules_of(model))
    inside = [type(each) for root in roots for each in root.modules() if each is not root]
    return next((each for each in inside if block is not None and _name(each) == _name(block)), None)


def _name(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
