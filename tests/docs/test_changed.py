"""`make quick` finds the tests of what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import matching
from tests.docs.imports import FILES, ROOT


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("compiler_core/loops/lower/pooling.py", "tests/loops/test_pooling.py"),
        ("compiler_core/guards/sealed.py", "tests/guards"),
        ("compiler_core/config.py", "tests/api"),
        ("kernel_magics/display/report.py", "tests/kernel_magics/test_report.py"),
        ("tests/docs/test_changed.py", "tests/docs/test_changed.py"),
    ],
)
def test_the_tests_of_a_file(file: str, wanted: str) -> None:
    assert matching(Path(file)) == [Path(wanted)]


@pytest.mark.parametrize("file", ["README.md", "tests/smoke.txt", "extension/src/view/app.ts"])
def test_what_has_no_tests_in_python(file: str) -> None:
    assert not matching(Path(file))


def test_every_module_has_tests() -> None:
    files = [file.relative_to(ROOT) for file in FILES.values() if file.name != "__init__.py"]
    assert not [file for file in files if not matching(file)]
