"""CPython's tests of its library over decompiled functions: ``python -m tests.sweeps.decompiled_library``.

Each function of the modules, and of some tests, is replaced by what its decompiled text makes; those that the
decompiler refuses stay.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

MODULES = (
    "difflib heapq statistics fractions textwrap bisect colorsys calendar shlex json.encoder json.decoder copy string "
    "tokenize argparse configparser csv ipaddress pprint re._parser re._compiler urllib.parse dataclasses graphlib "
    "_pydecimal _strptime base64 quopri pickletools ast inspect contextlib tempfile shutil zipfile tarfile queue "
    "unittest.case unittest.mock functools collections weakref enum pickle traceback linecache glob fnmatch mimetypes "
    "netrc plistlib xmlrpc.client html.parser codecs gettext cgi random types socketserver http.client http.cookies "
    "http.cookiejar email.message email.header email.utils sched cmd pdb bdb timeit filecmp tracemalloc zipapp pkgutil "
    "importlib._bootstrap_external importlib.util gzip bz2 lzma _pyio _compression wave dbm.dumb shelve operator"
).split()
TESTS = (
    "difflib heapq statistics fractions textwrap bisect calendar shlex configparser ipaddress pprint re urlparse "
    "dataclasses graphlib strptime base64 copy string colorsys decimal contextlib tempfile shutil functools "
    "collections weakref traceback linecache fnmatch glob mimetypes netrc plistlib htmlparser codecs gettext types "
    "http_cookies http_cookiejar sched cmd timeit filecmp pkgutil gzip zipfile tarfile bz2 dbm_dumb shelve wave enum"
).split()
LANGUAGE = (
    "exception_variations with raise compare augassign scope named_expressions keywordonlyarg dictcomps"
).split()
"""Tests of the language, whose own functions are replaced."""
OF_SOURCE = ["test_exit_exception_traceback (test.test_contextlib.TestExitStack.test_exit_exception_traceback)"]
"""Tests that read the source lines of a function in a traceback."""


@dataclass
class Result:
    """How many functions were replaced, how many tests ran, and which of them failed."""

    replaced: int = 0
    ran: int = 0
    failed: list[str] = field(default_factory=list)


def run(replace: bool) -> Result:
    """Runs the tests in another process and a temporary folder, to which some of them write."""
    command = [sys.executable, "-m", "tests.sweeps.decompiled_library", *(["--plain"] if not replace else [])]
    path = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with tempfile.TemporaryDirectory() as folder:
        printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=path).stdout
    return Result(**json.loads(printed.splitlines()[-1]))


def replace_functions() -> int:
    """Replaces the functions of `MODULES`; returns how many."""
    from compiler_core.errors import UsageError
    from compiler_core.tools.inspection.compiled_before import function_from

    count = 0
    generators = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    for module in map(importlib.import_module, [*MODULES, *(f"test.test_{name}" for name in LANGUAGE)]):
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
    for name in (*TESTS, *LANGUAGE):
        print(name, file=sys.stderr, flush=True)
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"test.test_{name}"))
        found = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
        result.ran += found.testsRun
        result.failed += [str(test) for test, _ in (*found.failures, *found.errors)]
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
