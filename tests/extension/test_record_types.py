"""The TypeScript types of the record are up to date with `compiler_core.records`."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "extension/record_types.py"


@pytest.fixture(scope="module")
def record_types() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_types", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_typescript_types_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_types_and_shapes(record_types: ModuleType) -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    for hint, typescript, shape in [
        (str, "string", "string"),
        (float | None, "number | null", {"maybe": "number"}),
        (list[int | str], "(number | string)[]", {"list": {"any": ["int", "string"]}}),
        (list[list[str]], "string[][]", {"list": {"list": "string"}}),
        (dict[str, int], "{ [name: string]: number }", {"map": "int"}),
        (Literal["a", "b"], '"a" | "b"', {"one": ["a", "b"]}),
        (Point, "Point", {"is": "Point"}),
    ]:
        assert record_types.typescript(hint) == typescript
        assert record_types.shape(hint) == shape


def test_a_type_that_is_not_plain_data_is_refused(record_types: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"add its .* to .*record_types\.py"):
        record_types.typescript(bytes)
