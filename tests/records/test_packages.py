"""What is an installed package's code, wherever packages are installed."""

from __future__ import annotations

import os
import sysconfig
from typing import Any

import pytest
import torch

from compiler_core.api import compile as api
from compiler_core.hook import skip_rules
from compiler_core.records.capture import library_of, package_of
from compiler_core.tools import recording

FOLDERS = {
    "an environment": sysconfig.get_path("purelib"),
    "the Python that it builds on": os.path.join(sysconfig.get_path("stdlib"), "site-packages"),
    "a user": "/home/user/.local/lib/python3.11/site-packages",
    "Debian": "/usr/lib/python3/dist-packages",
    "Windows": "C:\\Python311\\Lib\\site-packages",
}


def made(filename: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x.sin() + 1\n", filename, "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_of_packages_is_known_by_their_folder(folder: str) -> None:
    join = "\\".join if folder == "Windows" else "/".join
    assert package_of(join([FOLDERS[folder], "IPython", "core", "display.py"])) == "IPython"
    assert package_of(join([FOLDERS[folder], "typing_extensions.py"])) == "typing_extensions"
    assert skip_rules.skip_reason(made(join([FOLDERS[folder], "IPython", "a.py"])).__code__) == "part of IPython"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_model_of_a_package_is_captured(folder: str) -> None:
    with recording.record() as record:
        compiled = api.compile(made(f"{FOLDERS[folder]}/models/net.py"), backend="eager")
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
    assert [(each.outcome, each.breaks) for each in record.compiles] == [("compiled", [])]


def test_code_that_is_not_the_users() -> None:
    assert library_of(torch.nn.__file__) == "torch"
    assert library_of(os.__file__) == library_of("<frozen importlib._bootstrap>") == "the standard library"
    assert library_of("C:\\Program Files\\Python312\\Lib\\json\\decoder.py") == "the standard library"
    assert library_of(api.__file__) == "Cutaway"
    assert [library_of(name) for name in (__file__, "/tmp/ipykernel_1/2.py", "<string>", "/lib/mine.py")] == [""] * 4


def test_code_of_no_package() -> None:
    assert (
        package_of("/home/user/site-packages.py") == package_of("/tmp/ipykernel_1/2.py") == package_of("<string>") == ""
    )
    assert skip_rules.skip_reason(made(skip_rules._STDLIB + "random.py").__code__) == "part of the standard library"
