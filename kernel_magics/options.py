"""The options of the magics: their declaration, parsing and checks."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from compiler_core import errors
from compiler_core.config import BLOCK_SIZES, MODES
from kernel_magics.display import export
from kernel_magics.display.messages import PANES, TIMED_FORMS
from kernel_magics.run import edits, graph_passes
from kernel_magics.run.request import Request
from kernel_magics.startup import version_trial

ENGINES = ("core", "torch")
_OPTION = re.compile(r"\s*(--[\w-]+)(=\S+)?(?=\s|$)")
RANKS = re.compile(r"(?:^|\s)--ranks(?:=|\s+)(\w+)(?=\s|$)")
_VALUE = re.compile(r"""\s+('[^']*'|"[^"]*"|\S+)""")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

ARGUMENTS: tuple[Decorator, ...] = (
    argument(
        "--engine",
        help="core (Cutaway, the default), torch (stock torch.compile) or both: core,torch; without options, a cell "
        "that uses torch.compile itself runs as written, and what that does is recorded",
    ),
    argument("--backend", help="eager, aot_eager, cpp, triton, inductor, or the name of your own backend function"),
    argument("--fullgraph", action="store_true", help="raise an error at the first graph break"),
    argument("--dynamic", action="store_true", help="treat sizes as symbolic from the first compile on"),
    argument("--mode", help="reduce-overhead: replay launches with CUDA graphs; torch: also max-autotune ..."),
    argument("--options", metavar="DICT", help="torch: Inductor's options, as JSON or the name of a dict"),
    argument("--logs", action="store_true", help="torch: record the output of all PyTorch loggers (TORCH_LOGS=all)"),
    argument("--target", help="also generate machine code for this device, present or not: cpu, sm_90, gfx942 ..."),
    argument("--tune", action="store_true", help="time several block sizes for each Triton kernel, use the fastest"),
    argument("--measure", action="store_true", help="after the cell, time each kernel on this machine's device"),
    argument("--check", action="store_true", help="after the cell, compare kernel results with PyTorch in float64"),
    argument(
        "--time",
        nargs="?",
        const="",
        metavar="FORMS",
        help="after the cell, time it beside plain PyTorch; "
        "--time=stock,pinned also in these forms: core, pinned, stock, stock:max-autotune ...",
    ),
    argument("--try-advice", action="store_true", help="after the cell, try the advice on each problem on saved state"),
    argument("--ranks", metavar="NAME", help="run a cell on all engines of this ipyparallel client, and compare them"),
    argument("--strict", action="store_true", help="raise compiler failures instead of running plain PyTorch"),
    argument("--steps", action="store_true", help="record every step of the symbolic interpreter, for stepping"),
    argument("--frames", action="store_true", help="record every Python frame that ran, and why it was not compiled"),
    argument(
        "--memory-budget", type=float, metavar="SHARE", help="share of the saved bytes to keep for backward, 0 to 1"
    ),
    argument(
        "--capture-backward",
        action=argparse.BooleanOptionalAction,
        help="keep loss.backward() and steps of optimizers in the graph, or not; if neither is given, a cell with both "
        "is one graph",
    ),
    argument("--memory-curve", action="store_true", help="record bytes saved and time cost at other memory budgets"),
    argument("--keep-apart", action="append", metavar="A,B", help="two graph nodes that must not share a kernel"),
    argument("--force-fuse", action="append", metavar="A,B", help="two graph nodes to fuse into one kernel if legal"),
    argument(
        "--block-sizes",
        action="append",
        metavar="KERNEL:NAME=N",
        help="block sizes of a Triton kernel: forward_0:i=256,num_warps=8; also j and stages",
    ),
    argument("--cover", metavar="PANES", help="cover these panes until a prediction is made: captured,partition ..."),
    argument(
        "--save",
        metavar="PATH",
        help="write the record: NAME.html report, NAME.json data, NAME.trace.json "
        "Chrome's trace format, NAME/ plain files",
    ),
)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declares all options on a magic (a decorator)."""
    for declare in reversed(ARGUMENTS):
        function = declare(function)
    return function


def with_edit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the options of %%kernel, %%schedule and %%graph on a magic (a decorator)."""
    for declare in (
        argument("--revert-all", action="store_true", help="remove all edits"),
        argument("--revert", action="store_true", help="remove this edit"),
        argument("--force", action="store_true", help="use it although its values differ"),
        argument("id", nargs="?", help="what to edit, such as 0/0:forward_0 or 0/0:captured"),
    ):
        function = declare(function)
    return function


def split_line(line: str, parser: argparse.ArgumentParser) -> tuple[list[str], str]:
    """Splits a line into the words of its options and the expression after them, which is not changed."""
    known = [name for action in parser._actions for name in action.option_strings]
    takes_value = {name for action in parser._actions if action.nargs is None for name in action.option_strings}
    at = 0
    while found := _OPTION.match(line, at):
        _check_known(found[1], known)
        at = found.end()
        has_own_value = found[1] in takes_value and not found[2]
        if has_own_value and (value := _VALUE.match(line, at)):
            at = value.end()
    return shlex.split(line[:at]), line[at:].strip().removeprefix("-- ").strip()


def _check_known(option: str, known: Sequence[str]) -> None:
    if any(name.startswith(option) for name in known):  # argparse accepts unambiguous prefixes
        return
    close = difflib.get_close_matches(option, known, 1, 0.75)
    suggestion = f"; did you mean {close[0]}?" if close else "."
    raise UsageError(f"there is no option {option}{suggestion} `%%compile?` lists all options")


def request(arguments: argparse.Namespace, namespace: Mapping[str, Any]) -> Request:
    """Checks the parsed options before anything runs.

    `namespace` is the user's, in which backends and option dicts are looked up by name.  Raises UsageError, which
    names the wrong value and the accepted ones.
    """
    leaves_open = not any(getattr(arguments, name) not in (None, False) for name in _SAY_HOW)
    leaves_open &= arguments.engine in (None, "torch")
    arguments.engine = arguments.engine or "core"
    _check_engine(arguments)
    if getattr(arguments, "ranks", None):
        raise UsageError("--ranks runs a cell: write it after %%compile, before a cell without await")
    try:
        find_backend = _stock_backend if arguments.engine == "torch" else _core_backend
        backend = find_backend(arguments.backend, namespace)
        if arguments.save:
            export.check_path(arguments.save)
        if arguments.target:
            from compiler_core.codegen.source import check_target

            check_target(arguments.target)
    except errors.UsageError as error:
        raise UsageError(str(error)) from None
    passes, code_edits = (*graph_passes.registered(), *edits.graph_edits()), edits.code_edits()
    return Request(
        backend=backend,
        fullgraph=arguments.fullgraph,
        target=arguments.target,
        strict=arguments.strict,
        steps=arguments.steps or arguments.frames,
        frames=arguments.frames,
        memory_budget=_memory_budget(arguments.memory_budget),
        memory_curve=arguments.memory_curve,
        capture_backward=arguments.capture_backward,
        save=arguments.save,
        engine=arguments.engine,
        leaves_open=leaves_open and not (passes or code_edits),
        dynamic=arguments.dynamic,
        mode=arguments.mode,
        options=_inductor_options(arguments.options, namespace),
        logs=arguments.logs,
        keep_apart=_node_pairs(arguments, "keep_apart"),
        block_sizes=_block_sizes(arguments.block_sizes or ()),
        force_fuse=_node_pairs(arguments, "force_fuse"),
        measure=arguments.measure,
        check=arguments.check,
        tune=arguments.tune,
        passes=passes,
        edits=code_edits,
        time=_timed_forms(arguments.time),
        try_advice=arguments.try_advice,
        cover=_covered_panes(arguments.cover),
    )


def _block_sizes(texts: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    found = []
    for text in texts:
        kernel, _, sizes = text.partition(":")
        for each in sizes.split(","):
            name, _, value = each.partition("=")
            if not kernel or name not in BLOCK_SIZES or not value.isdecimal():
                names = ", ".join(BLOCK_SIZES)
                raise UsageError(f"--block-sizes {text}: write forward_0:i=256,num_warps=8, with {names}")
            found.append((kernel, name, int(value)))
    return tuple(found)


def _node_pairs(arguments: argparse.Namespace, name: str) -> tuple[tuple[str, str], ...]:
    found = [tuple(text.split(",")) for text in getattr(arguments, name) or ()]
    if wrong := [pair for pair in found if len(pair) != 2 or not all(pair)]:
        raise UsageError(f"--{name.replace('_', '-')} takes two node names, as in add,mul, not {','.join(wrong[0])}")
    return typing.cast(tuple[tuple[str, str], ...], tuple(found))


def _timed_forms(wanted: str | None) -> tuple[str, ...] | None:
    """Returns the forms of ``--time``; None if it was not given."""
    if wanted is None:
        return None
    forms = tuple(filter(None, wanted.split(",")))
    if unknown := [form for form in forms if form not in TIMED_FORMS]:
        raise UsageError(f"--time: no form is called {unknown[0]!r}; the forms are {', '.join(TIMED_FORMS)}")
    return forms


def _covered_panes(wanted: str | None) -> tuple[str, ...]:
    panes = tuple(filter(None, (wanted or "").split(",")))
    if unknown := [pane for pane in panes if pane not in PANES]:
        raise UsageError(f"--cover: no pane is called {unknown[0]!r}; the panes are {', '.join(PANES)}")
    return panes


def _memory_budget(wanted: float | None) -> float:
    if wanted is not None and not 0 <= wanted <= 1:
        raise UsageError(f"--memory-budget must be from 0 to 1, not {wanted}")
    return 1.0 if wanted is None else wanted


_CORE_ONLY = (
    "tune", "target", "strict", "memory_budget", "memory_curve", "keep_apart", "force_fuse", "block_sizes",
    "capture_backward",
)  # fmt: skip
_TORCH_ONLY = ("options", "logs")
_SAY_HOW = (*_CORE_ONLY, "backend", "fullgraph", "dynamic", "mode", "options", "steps", "frames", "measure", "check")
"""The options that say how a cell is compiled, or that need it to be compiled by the magic."""


def _check_engine(arguments: argparse.Namespace) -> None:
    wanted = arguments.engine
    unknown = [name for name in wanted.split(",") if name not in ENGINES]
    if unknown:
        raise UsageError(f"unknown engine {unknown[0]!r}; the engines are {', '.join(ENGINES)}")
    if "," in wanted:
        if sorted(wanted.split(",")) != sorted(ENGINES):
            raise UsageError(
                f"--engine {wanted}: name each of {', '.join(ENGINES)} once; the cell keeps the effects of the first"
            )
        return
    if wanted == "core" and arguments.mode not in (None, *MODES):
        raise UsageError(f"--mode of the core engine is one of {', '.join(MODES)}, not {arguments.mode}")
    given = {name for name in (*_CORE_ONLY, *_TORCH_ONLY) if getattr(arguments, name) not in (None, False)}
    if wrong := sorted(given & set(_CORE_ONLY if wanted == "torch" else _TORCH_ONLY)):
        raise UsageError(f"--{wrong[0].replace('_', '-')} is not an option of the {wanted} engine")


def _inductor_options(wanted: str | None, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns Inductor's options: the user's dict of that name, or the dict written as JSON."""
    if wanted is None:
        return None
    try:
        found = namespace[wanted] if wanted in namespace else json.loads(wanted)
    except json.JSONDecodeError as error:
        raise UsageError(f"--options {wanted}: neither the name of a dict nor JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"--options {wanted} must be a dict, not a {type(found).__name__}")
    return found


def _stock_backend(wanted: str | None, namespace: Mapping[str, Any]) -> str | Callable[..., Any] | None:
    """Returns the name of a backend of stock torch.compile, or the user's callable of that name."""
    from compiler_core.torch_private import list_backends

    known, own = list_backends(exclude_tags=()), namespace.get(wanted or "")
    if wanted and wanted not in known and not callable(own):
        raise UsageError(f"torch.compile has no backend {wanted!r}; its backends are {', '.join(known)}")
    return own if wanted and wanted not in known else wanted


def _core_backend(wanted: str | None, namespace: Mapping[str, Any]) -> str | Callable[..., Any] | None:
    """Returns the name of a backend of the core engine, or the user's callable of that name."""
    if version_trial.core_engine_problem():
        return None
    from compiler_core.backends import registry as backends

    own = namespace.get(wanted or "")
    if wanted and wanted not in backends.backend_names() and callable(own):
        return own  # type: ignore[no-any-return]
    backends.check_name(wanted)
    return wanted
