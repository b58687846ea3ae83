"""Tab completion of the magics' options and of their values."""

from __future__ import annotations

import argparse
import re

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernel_magics import options
from kernel_magics.magics import CutawayMagics

TARGETS = ("cpu", "x86-64-v3", "sm_80", "sm_90", "sm_100", "gfx942")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_MAGIC = re.compile(r"^\s*%{1,2}(compile|explain|frames|speed|what_if|kernel|schedule|graph)\s")


@context_matcher(identifier="cutaway.options")
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Completes options and their values after the magics that have options."""
    line = context.line_with_cursor[: context.cursor_position]
    if not (magic := _MAGIC.match(line)):
        return {"completions": []}
    parser: argparse.ArgumentParser = getattr(CutawayMagics, magic[1]).parser
    typed = re.split(r"\s", line)[-1]
    before, expression = options.split_line(line[magic.end() : len(line) - len(typed)], parser)
    offered = _values(before[-1]) if before else None
    if expression or (offered is None and typed and not typed.startswith("-")):
        return {"completions": []}  # an expression, or a path
    if offered is None:
        offered = [name for action in parser._actions for name in action.option_strings]
    found = [SimpleCompletion(text=text, type="param") for text in offered if text.startswith(typed)]
    return {"completions": found, "suppress": bool(found), "matched_fragment": typed}


def _values(option: str) -> list[str] | None:
    match option:
        case "--engine":
            return list(options.ENGINES)
        case "--backend":
            from compiler_core.backends import registry as backends

            return backends.backend_names()
        case "--mode":
            return list(MODES)
        case "--target":
            return list(TARGETS)
    return None
