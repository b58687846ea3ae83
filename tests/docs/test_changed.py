"""`make quick` finds the tests of what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import matching
from tests.docs.imports import FILES, ROOT, reached


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("compiler_core/loops/lower/reductions.py", "tests/loops/test_reductions.py"),
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


def test_every_module_has_tests_that_use_it() -> None:
    unused = []
    for name, file in FILES.items():
        tests = [ROOT / test for test in matching(file.relative_to(ROOT))] if file.name != "__init__.py" else None
        files = [each for test in tests or () for each in ([test] if test.is_file() else test.rglob("test_*.py"))]
        if tests is not None and not any(name in reached(each) for each in files):
            unused.append(name)
    assert unused == ["kernel_magics.server"]  # JupyterLab's server runs it
