"""``cutaway run``: runs a script as ``python script.py`` does, and records what is compiled in it.

The script sees the arguments, ``__main__``, ``sys.path``, exceptions and exit codes that it has under Python.  Nothing
of PyTorch is imported before the script does so, since scripts set environment variables and threads first: recording
starts when the script, or PyTorch itself, has imported the module in `_STARTS`.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.machinery
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import compiler_core
from compiler_core.records import Record
from compiler_core.tools.stock.hooks.after_import import call_after_import

Engine = Literal["core", "torch"]
_STARTS: dict[Engine, str] = {"torch": "torch._dynamo", "core": "torch"}
"""The module after whose import each engine is recorded."""
_OURS = str(Path(__file__).parent)
_HANDLER = str(Path(compiler_core.__file__).parent / "support" / "interrupts.py")


@dataclass(frozen=True)
class Script:
    """What to run: a file, a folder or archive with ``__main__.py``, or a module by its name."""

    path: str
    arguments: Sequence[str] = ()
    is_module: bool = False

    @property
    def is_missing(self) -> bool:
        return not self.is_module and not Path(self.path).exists()


class ScriptRecording:
    """The record of one script; `finish` closes it and calls `on_finish` once, also when the script raised."""

    def __init__(
        self,
        title: str,
        engine: Engine,
        on_finish: Callable[[Record | None], Any],
        ranks: str | None = None,
        capture_backward: bool = False,
    ) -> None:
        """`ranks`: the folder in which `record_ranks` writes, in place of a record; `capture_backward`: an option of
        our compiler."""
        self.record: Record | None = None
        self._title, self._engine, self._on_finish, self._ranks = title, engine, on_finish, ranks
        self._capture_backward = capture_backward
        self._stack = ExitStack()
        self._process = os.getpid()
        self._finished = False
        self._start: Start | None = None

    def start(self, start: Start | None = None) -> None:
        """Records from the moment on at which the script imports the compiler; from `start` it will run again."""
        self._start = start
        if start is not None:
            call_after_import("torch", start.keep_process_state)
        call_after_import(_STARTS["torch" if self._ranks else self._engine], self._open)
        atexit.register(self.finish)

    def finish(self) -> None:
        """Closes the record.  Does nothing the second time, and in processes that the script forked."""
        if self._finished or os.getpid() != self._process:
            return
        self._finished = True
        self._stack.close()
        self._on_finish(self.record)

    def try_advice(self, seconds: float, namespace: dict[str, Any]) -> None:
        """Tries the advice on the problems of the script, which has ended; the names of its `__main__` are given.

        What came of it is in the record, also why nothing was tried.
        """
        if self.record is None or self._start is None:
            return
        from kernel_magics.command.script_trials import try_advice

        self._stack.close()
        try_advice(self.record, self._engine, self._capture_backward, self._start, namespace, seconds)

    def note_exception(self, error: BaseException) -> None:
        """Notes in the record, if there is one, with which exception the script ends."""
        if self.record is not None:
            self.record.raised = type(error).__name__

    def _open(self) -> None:
        from compiler_core.tools.recording import record, record_ranks

        if self._ranks:
            record_ranks(self._ranks)
            return
        self.record = self._stack.enter_context(record(self._title, engine=self._engine))
        if sys.stderr.isatty():
            from kernel_magics.command.text import CompileProgress

            self._stack.callback(CompileProgress(self.record).close)
        if self._engine == "core":
            self._stack.enter_context(torch_compile_by_core(self.record, self._capture_backward))


class Start:
    """What a script finds that starts now."""

    def __init__(self) -> None:
        self.folder = os.getcwd()
        self.arguments, self.path = tuple(sys.argv), tuple(sys.path)
        self.modules = frozenset(sys.modules)
        """The names of the modules that are imported."""
        self.restore_process_state: Callable[[], None] = lambda: None
        """Restores random numbers and so on as they were when PyTorch had been imported."""

    def keep_process_state(self) -> None:
        """Keeps the state of the process, once PyTorch is imported, for `restore_process_state`."""
        from compiler_core.tools.timing.process_state import save_process_state

        self.restore_process_state = save_process_state()


def run(script: Script, recording: ScriptRecording, advice_seconds: float | None = None) -> None:
    """Runs the script to its end; its exceptions, `SystemExit` too, are raised, and print as under Python.

    `advice_seconds`: for how long the advice on its problems is tried when it has ended without one.
    """
    sys.argv = [script.path, *script.arguments]
    run_main = _prepared(script)
    recording.start(Start() if advice_seconds is not None else None)
    try:
        namespace = run_main()
    except SystemExit as end:
        if end.code:
            recording.note_exception(end)
            raise
        namespace = _globals_of_main(end)
    except BaseException as error:
        recording.note_exception(error)
        _print_without_our_frames(error)
        raise
    if advice_seconds is not None:
        recording.try_advice(advice_seconds, namespace)
    _join_threads()
    recording.finish()


def run_unrecorded(script: Script) -> None:
    """Runs the script to its end without a record; its exceptions are raised, and print as under Python."""
    sys.argv = [script.path, *script.arguments]
    run_main = _prepared(script)
    try:
        run_main()
    except SystemExit as end:
        if end.code:
            raise
    except BaseException as error:
        _print_without_our_frames(error)
        raise


def _prepared(script: Script) -> Callable[[], dict[str, Any]]:
    """Sets `sys.path` and `sys.argv` for a script; returns a function that runs it and returns its names."""
    if script.is_module:
        _set_first_path(os.getcwd())
        sys.argv[0] = "-m"
        return partial(runpy.run_module, script.path, run_name="__main__", alter_sys=True)
    if Path(script.path).is_file() and not _is_archive(script.path):
        _set_first_path(str(Path(script.path).resolve().parent))
        return partial(_run_file, script.path)
    _set_first_path(script.path)
    return partial(runpy.run_path, script.path, run_name="__main__")


def _globals_of_main(error: BaseException) -> dict[str, Any]:
    """Returns the names of the ``__main__`` that an exception has passed through."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next(each.f_globals for each in frames if each.f_globals.get("__name__") == "__main__")


def _run_file(path: str) -> dict[str, Any]:
    """Runs a file as ``__main__``, which stays in `sys.modules` until the process ends, as under Python; returns its
    names."""
    main = types.ModuleType("__main__")
    absolute = os.path.abspath(path)
    main.__dict__.update(
        __file__=absolute, __builtins__=builtins, __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", absolute), __annotations__={},
    )  # fmt: skip
    sys.modules["__main__"] = main
    code = compile(Path(path).read_bytes(), absolute, "exec", dont_inherit=True)
    exec(code, main.__dict__)
    return main.__dict__


def _is_archive(path: str) -> bool:
    if path.endswith(".py"):
        return False
    import zipfile

    return zipfile.is_zipfile(path)


def _set_first_path(folder: str) -> None:
    """Puts the script's folder where Python puts it: in place of the command's own folder."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _join_threads() -> None:
    """Waits for the script's threads as Python does before it ends, when it has executors end their idle ones first.

    Python calls the same function at the end, where a second call does nothing.
    """
    threading._shutdown()  # type: ignore[attr-defined]


def _print_without_our_frames(error: BaseException) -> None:
    """Makes Python print the traceback of `error`, which ends the process, from the script's first frame on."""
    print_error = sys.excepthook

    def hook(type_: type[BaseException], value: BaseException, traceback: types.TracebackType | None) -> None:
        if value is error:
            traceback = _until_our_handler(_after_our_frames(traceback))
        print_error(type_, value.with_traceback(traceback), traceback)

    sys.excepthook = hook


def _until_our_handler(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Cuts off the frames of the function that holds signals back while something is compiled, and calls Python's."""
    each = traceback
    while each is not None and each.tb_next is not None:
        if each.tb_next.tb_frame.f_code.co_filename == _HANDLER:
            each.tb_next = None
        each = each.tb_next
    return traceback


def _after_our_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Returns the part of a traceback that follows the frames of the command, and those of `runpy` after them."""
    rest, each, was_ours = traceback, traceback, False
    while each is not None:
        name = each.tb_frame.f_code.co_filename
        was_ours = name.startswith(_OURS) or (was_ours and name == "<frozen runpy>")
        each = each.tb_next
        if was_ours:
            rest = each
    return rest


def torch_compile_by_core(record: Record, capture_backward: bool, memory_budget: float = 1.0) -> ExitStack:
    """Makes `torch.compile` compile by this repository's compiler, with these options, until the result is closed."""
    import torch

    def compile_by_core(
        model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor",
        mode: str | None = None, options: Any = None, disable: bool = False, **others: Any,
    ) -> Any:  # fmt: skip
        from compiler_core.api.compile import compile as compile_
        from compiler_core.backends import registry
        from compiler_core.config import MODES

        if disable:
            return model if model is not None else lambda fn: fn
        given: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "memory_budget": memory_budget}
        given["capture_backward"] = capture_backward
        left_out = [name for name, value in {"options": options, **others}.items() if value]
        if mode in MODES:
            given["mode"] = mode
        elif mode:
            left_out.append(f"mode={mode!r}")
        if callable(backend) or (backend != "inductor" and backend in registry.backend_names()):
            given["backend"] = backend
        elif backend != "inductor":
            left_out.append(f"backend={backend!r}")
        if left_out:
            note = f"Our compiler does not have these arguments of torch.compile: {', '.join(left_out)}."
            record.notes += [note] if note not in record.notes else []
        return compile_(model, **given)

    stack = ExitStack()
    stack.callback(setattr, torch, "compile", torch.compile)
    torch.compile = compile_by_core
    return stack
