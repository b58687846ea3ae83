"""The options of the magics: what they are, and how they are read."""

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
from compiler_core.config import MODES
from kernel_magics.display import export
from kernel_magics.run.core import Request
from kernel_magics.startup import version_trial

ENGINES = ("core", "torch")
_OPTION = re.compile(r"\s*(--[\w-]+)(=\S+)?(?=\s|$)")
_VALUE = re.compile(r"""\s+('[^']*'|"[^"]*"|\S+)""")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

ARGUMENTS: tuple[Decorator, ...] = (
    argument("--engine", default="core", help="core (ours), torch (stock torch.compile) or both: core,torch"),
    argument("--backend", help="eager, aot_eager, cpp, triton, inductor, or a callable of yours by its name"),
    argument("--fullgraph", action="store_true", help="raise an error at the first graph break"),
    argument("--dynamic", action="store_true", help="sizes are symbols from the first compile on"),
    argument("--mode", help="reduce-overhead: replay launches by CUDA graphs; torch: also max-autotune ..."),
    argument("--options", metavar="DICT", help="torch: Inductor's options, as JSON or a dict of yours by its name"),
    argument("--logs", action="store_true", help="torch: with all that PyTorch's loggers say, as under TORCH_LOGS=all"),
    argument("--target", help="machine code for this device, which need not be here: cpu, sm_90, gfx942 ..."),
    argument("--tune", action="store_true", help="time several block sizes for each Triton kernel, take the fastest"),
    argument("--measure", action="store_true", help="then time each kernel on the device that is here"),
    argument("--check", action="store_true", help="then compare what kernels compute with PyTorch in float64"),
    argument("--strict", action="store_true", help="raise the compiler's own failures, which are otherwise noted"),
    argument("--steps", action="store_true", help="record every step of the symbolic interpreter, to go through them"),
    argument(
        "--memory-budget", type=float, metavar="SHARE", help="what the backward may keep of the saved bytes, 0 to 1"
    ),
    argument("--memory-curve", action="store_true", help="record what other memory budgets would save and cost"),
    argument("--keep-apart", action="append", metavar="A,B", help="two nodes of a graph that share no kernel"),
    argument("--force-fuse", action="append", metavar="A,B", help="two that share one, where that is possible"),
    argument("--save", metavar="PATH", help="write the record: NAME.html a report, NAME.json data, NAME/ plain files"),
)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare all options on a magic."""
    for declare in reversed(ARGUMENTS):
        function = declare(function)
    return function


def split_line(line: str, parser: argparse.ArgumentParser) -> tuple[list[str], str]:
    """The options at the start of a line, and the expression after them, untouched."""
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
    if any(name.startswith(option) for name in known):  # a start of a name stands for it
        return
    close = difflib.get_close_matches(option, known, 1, 0.75)
    meant = f"; did you mean {close[0]}?" if close else "."
    raise UsageError(f"there is no option {option}{meant} `%%compile?` lists them all")


def request(arguments: argparse.Namespace, namespace: Mapping[str, Any]) -> Request:
    """The options, checked before anything runs; UsageError says what is wrong and what would be right."""
    _check_engine(arguments)
    torch = arguments.engine == "torch"
    try:
        backend = (_stock_backend if torch else _backend)(arguments.backend, namespace)
        if arguments.save:
            export.check(arguments.save)
    except errors.UsageError as error:
        raise UsageError(str(error)) from None
    return Request(
        backend,
        arguments.fullgraph,
        arguments.target,
        arguments.strict,
        arguments.steps,
        _share(arguments.memory_budget),
        arguments.memory_curve,
        arguments.save,
        arguments.engine,
        arguments.dynamic,
        arguments.mode,
        _dict(arguments.options, namespace),
        arguments.logs,
        _pairs(arguments, "keep_apart"),
        _pairs(arguments, "force_fuse"),
        arguments.measure,
        arguments.check,
        arguments.tune,
    )


def _pairs(arguments: argparse.Namespace, name: str) -> tuple[tuple[str, str], ...]:
    found = [tuple(text.split(",")) for text in getattr(arguments, name) or ()]
    if wrong := [pair for pair in found if len(pair) != 2 or not all(pair)]:
        raise UsageError(f"--{name.replace('_', '-')} takes two names, as in add,mul, not {','.join(wrong[0])}")
    return typing.cast(tuple[tuple[str, str], ...], tuple(found))


def _share(wanted: float | None) -> float:
    if wanted is not None and not 0 <= wanted <= 1:
        raise UsageError(f"--memory-budget is a share from 0 to 1, not {wanted}")
    return 1.0 if wanted is None else wanted


_CORE_ONLY = ("tune", "target", "strict", "memory_budget", "memory_curve", "keep_apart", "force_fuse")
_TORCH_ONLY = ("options", "logs")


def _check_engine(arguments: argparse.Namespace) -> None:
    wanted = arguments.engine
    unknown = [name for name in wanted.split(",") if name not in ENGINES]
    if unknown:
        raise UsageError(f"unknown engine {unknown[0]!r}; the engines are {', '.join(ENGINES)}")
    if "," in wanted:
        if sorted(wanted.split(",")) != sorted(ENGINES):
            raise UsageError(f"--engine {wanted}: name each of {', '.join(ENGINES)} once, the first one's effects stay")
        return
    if wanted == "core" and arguments.mode not in (None, *MODES):
        raise UsageError(f"--mode of the engine core is one of {', '.join(MODES)}, not {arguments.mode}")
    given = {name for name in (*_CORE_ONLY, *_TORCH_ONLY) if getattr(arguments, name) not in (None, False)}
    if wrong := sorted(given & set(_CORE_ONLY if wanted == "torch" else _TORCH_ONLY)):
        raise UsageError(f"--{wrong[0].replace('_', '-')} is not an option of the engine {wanted}")


def _dict(wanted: str | None, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """A dict of the user's by its name, or as JSON."""
    if wanted is None:
        return None
    try:
        found = namespace[wanted] if wanted in namespace else json.loads(wanted)
    except json.JSONDecodeError as error:
        raise UsageError(f"--options {wanted}: neither a dict of yours nor JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"--options {wanted} is a dict, not a {type(found).__name__}")
    return found


def _stock_backend(wanted: str | None, namespace: Mapping[str, Any]) -> str | Callable[..., Any] | None:
    """A backend of stock torch.compile by name, else a callable of the user's by name."""
    from torch._dynamo.backends.registry import list_backends

    known, own = list_backends(exclude_tags=()), namespace.get(wanted or "")
    if wanted and wanted not in known and not callable(own):
        raise UsageError(f"torch.compile knows no backend {wanted!r}; it knows {', '.join(known)}")
    return own if wanted and wanted not in known else wanted


def _backend(wanted: str | None, namespace: Mapping[str, Any]) -> str | Callable[..., Any] | None:
    """A backend of ours by name, else a callable of the user's by name."""
    if version_trial.broken():
        return None
    from compiler_core.backends import registry as backends

    own = namespace.get(wanted or "")
    if wanted and wanted not in backends.names() and callable(own):
        return own  # type: ignore[no-any-return]
    backends.check_name(wanted)
    return wanted
