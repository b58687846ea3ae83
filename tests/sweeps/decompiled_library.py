"""CPython's tests of its library over decompiled functions: ``python -m tests.sweeps.decompiled_library``.

Each function of the modules is replaced by what its decompiled text makes; those that the decompiler refuses stay.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import subprocess
import sys
import types
import unittest
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

MODULES = (
    "difflib heapq statistics fractions textwrap bisect colorsys calendar shlex json.encoder json.decoder copy string "
    "tokenize argparse configparser csv ipaddress pprint re._parser re._compiler urllib.parse dataclasses graphlib "
    "_pydecimal _strptime base64 quopri pickletools ast inspect"
).split()
TESTS = (
    "difflib heapq statistics fractions textwrap bisect calendar shlex configparser ipaddress pprint re urlparse "
    "dataclasses graphlib strptime base64 copy string colorsys decimal"
).split()


@dataclass
class Result:
    """How many functions were replaced, how many tests ran, and which of them failed."""

    replaced: int = 0
    ran: int = 0
    failed: list[str] = field(default_factory=list)


def run(replace: bool) -> Result:
    """Runs the tests in another process."""
    command = [sys.executable, "-m", "tests.sweeps.decompiled_library", *(["--plain"] if not replace else [])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Result(**json.loads(printed.splitlines()[-1]))


def replace_functions() -> int:
    """Replaces the functions of `MODULES`; returns how many."""
    from compiler_core.api.inspection.compiled_before import function_from
    from compiler_core.errors import UsageError

    count = 0
    generators = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    for module in map(importlib.import_module, MODULES):
        for function in list(_functions(module)):
            if function.__code__.co_flags & generators or function.__code__.co_freevars:
                continue
            try:
                made = function_from(function.__code__, function)
            except UsageError:
                continue
            if not made.__code__.co_freevars:
                function.__code__ = made.__code__
                count += 1
    return count


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
        if getattr(owner, "__module__", module.__name__) != module.__name__:
            continue
        for value in list(vars(owner).values()):
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                yield function


def main() -> None:
    result = Result(0 if "--plain" in sys.argv else replace_functions())
    for name in TESTS:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"test.test_{name}"))
        found = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
        result.ran += found.testsRun
        result.failed += [str(test) for test, _ in (*found.failures, *found.errors)]
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
