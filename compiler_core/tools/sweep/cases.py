"""What one case of a sweep is: a name, and a function that makes the model and its arguments in another process."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler_core.errors import UsageError

_FILE_RUN_NAME = "__cutaway_sweep__"
"""``__name__`` of a script whose function makes a case, so that its ``if __name__ == "__main__"`` does not run."""


@dataclass(frozen=True)
class Case:
    """One model and its arguments.

    Args:
        name: unique in its sweep.
        make: a function at the top level of a module or script, or its name as ``"module:function"``.  It is called in
            the process of the case and returns ``(fn, args)`` or ``(fn, args, kwargs)``: a function or module, and the
            arguments of its call.
        args, kwargs: the arguments of `make`: numbers, texts, bools, None, and lists and dicts of these.

    Example::

        def make(width):
            return torch.nn.Linear(width, width), (torch.randn(8, width),)

        cases = [Case(f"linear {width}", make, (width,)) for width in (16, 32)]
    """

    name: str
    make: Callable[..., Any] | str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """Returns the case as plain data for another process; UsageError if that cannot find the function."""
        spec = {"name": self.name, "args": list(self.args), "kwargs": dict(self.kwargs), **self._function()}
        try:
            json.dumps(spec)
        except (TypeError, ValueError) as error:
            raise UsageError(f"case {self.name!r}: the arguments of make are plain values only: {error}") from None
        return spec

    def _function(self) -> dict[str, str]:
        if isinstance(self.make, str):
            module, colon, function = self.make.partition(":")
            if not colon or not function.isidentifier():
                raise UsageError(f"case {self.name!r}: make is a function or 'module:function', not {self.make!r}")
            return {"module": module, "function": function}
        name, module = getattr(self.make, "__qualname__", ""), getattr(self.make, "__module__", "")
        if not name.isidentifier():
            raise UsageError(f"case {self.name!r}: make is a function at the top level of a module, not {self.make!r}")
        if module != "__main__":
            return {"module": module, "function": name}
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None or not Path(file).is_file():
            raise UsageError(
                f"case {self.name!r}: {name} is defined in a notebook or at a prompt, where another process cannot "
                "find it; put it in a file and import it"
            )
        return {"file": str(Path(file).resolve()), "function": name}


def make_case(spec: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Makes the model and the arguments of its call from a case's plain data.

    Raises UsageError if the case's function returns something else than a model and its arguments.
    """
    if "file" in spec:
        function = runpy.run_path(spec["file"], run_name=_FILE_RUN_NAME)[spec["function"]]
    else:
        function = getattr(importlib.import_module(spec["module"]), spec["function"])
    made = function(*spec["args"], **spec["kwargs"])
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise UsageError(f"{spec['function']} returns (fn, args) or (fn, args, kwargs), not {type(made).__name__}")
    fn, args, *rest = made
    return fn, tuple(args), dict(rest[0]) if rest else {}
