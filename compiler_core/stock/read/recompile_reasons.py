"""Parses Dynamo's reasons for recompiles: which guard failed, in the words that our own engine uses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from compiler_core.records import Recompile, limits
from compiler_core.records.advice import ENTRY_OF_OURS

_Facts = tuple[str, str, str, str]
"""The guard's kind, its source, what it expected, and what was found."""

_SCALARS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
"""PyTorch's C++ names of dtypes."""


def read_recompile_reason(payload: str) -> Recompile | None:
    """Returns the first compile in the list whose guards failed, and the failed guard; None if there is no compile.

    The list may begin with entries of the core engine for the same code.
    """
    try:
        reasons = json.loads(payload)
    except ValueError:
        reasons = payload
    lines = map(str, reasons) if isinstance(reasons, list) else [str(reasons)]
    return next(
        (_parse_reason(limits.truncate(line)) for line in lines if line.strip() and ENTRY_OF_OURS not in line), None
    )


def _parse_reason(line: str) -> Recompile:
    of, colon, why = line.partition(": ")
    if not colon or "/" not in of:
        of, why = "", line
    why = why.partition("  # ")[0].partition("\nUser stack trace")[0].strip()
    for pattern, facts in _REASONS:
        if found := pattern.match(why):
            kind, source, expected, got = facts(found)
            return Recompile(of, why, source, expected, got, kind=kind)
    return Recompile(of, why, "a condition", why, "false")


def _tensor_facts(found: re.Match[str]) -> _Facts:
    name, what, at, expected, got = found.groups()
    field = what.strip().lower()
    dimension = f" in dimension {at}" if at else ""
    if field == "dtype":
        expected, got = (f"torch.{_SCALARS.get(each, each)}" for each in (expected, got))
    elif field == "tensor device index":
        field = "device"
    elif field == "dispatch key set":
        field = "dispatch keys"
    return "TENSOR_MATCH", name, f"{field} {expected}{dimension}", f"{field} {got}"


def _requires_grad_facts(found: re.Match[str]) -> _Facts:
    expected = found[2] == "1"
    return "TENSOR_MATCH", found[1], f"requires_grad {expected}", f"requires_grad {not expected}"


def _state_facts(found: re.Match[str]) -> _Facts:
    setting = found[1].replace("_", " ")
    return "GLOBAL_STATE", "torch's global state", f"{setting} as at capture", f"another {setting}"


def _class_name(text: str) -> str:
    return text.removeprefix("<class '").removesuffix("'>").rpartition(".")[2]


def _value_facts(found: re.Match[str]) -> _Facts:
    other = {"True": "False", "False": "True"}.get(found[2], "another value")
    return "EQUALS_MATCH", found[1], found[2], other


def _duplicate_facts(found: re.Match[str]) -> _Facts:
    names = ", ".join(re.findall(r"[\w.\[\]']+", found[1]))
    return "ALL_DIFFERENT", f"the pair {names}", "different tensors", "one tensor"


def _condition_facts(found: re.Match[str]) -> _Facts:
    source = re.search(r"[\w.\[\]']+?\.(?:size|stride|storage_offset)\(\)(?:\[\d+\])?", found[0])
    name = source[0] if source else found[0]
    if found[0] == f"2 <= {name}":  # sizes 0 and 1 are compiled separately
        return "CONDITION", name, f"{name} >= 2", f"{name} is 0 or 1"
    return "CONDITION", name, found[0], "another size"


_REASONS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], _Facts]]] = [
    (re.compile(pattern), facts)
    for pattern, facts in (
        (r"GLOBAL_STATE changed: (\w+)", _state_facts),
        (r"tensor '(.+?)' requires_grad mismatch\. expected requires_grad=([01])", _requires_grad_facts),
        (
            r"tensor '(.+?)' ([\w ]+?) mismatch(?: at index (\d+))?\. "
            r"[Ee]xpected (?:device index to be )?(.+?),? (?:but )?(?:actual|got):? (.+)$",
            _tensor_facts,
        ),
        (r"expected type of '(.+?)' to be a tensor type", lambda f: ("TENSOR_MATCH", f[1], "type Tensor", "no tensor")),
        (
            r"_*check_type_id\((.+), \d+\)(?:, type=(.+))?$",
            lambda f: ("TYPE_MATCH", f[1], f"a {_class_name(f[2] or 'certain class')}", "of another type"),
        ),
        (
            r"Cache line invalidated because (.+) got deallocated",
            lambda f: ("ID_MATCH", f[1], "the object at capture", "another object: that one was freed"),
        ),
        (r"_*check_obj_id\((.+), \d+\)", lambda f: ("ID_MATCH", f[1], "the object at capture", "another object")),
        (r"len\((.+)\) == (\d+)$", lambda f: ("LENGTH", f[1], f"of length {f[2]}", "of another length")),
        (r"not _*dict_contains\((.+?), (.+)\)$", lambda f: ("DICT_CONTAINS", f[2], f"without {f[1]}", "with it")),
        (r"_*dict_contains\((.+?), (.+)\)$", lambda f: ("DICT_HAS", f[2], f"with {f[1]}", "without it")),
        (
            r"list\(dict\.keys\((.+?)\)\)\[(\d+)\] == (.+)$",
            lambda f: ("DICT_KEYS", f[1], f"with {f[3]} as key number {int(f[2])}", "with other keys"),
        ),
        (
            r"hasattr\((.+), '(\w+)'\) == (True|False)$",
            lambda f: ("NO_ATTRIBUTE", f[1], f"{'with' if f[3] == 'True' else 'without'} {f[2]}", "otherwise"),
        ),
        (r"KeyError on (.+)\[(.+?)\]$", lambda f: ("DICT_HAS", f[1], f"with {f[2]}", "without it")),
        (r"Duplicate tensors? found: \[(.+)\]$", _duplicate_facts),
        (r"not ([\w.\[\]']+)$", lambda f: ("LENGTH", f[1], "empty", "not empty")),
        (r".*\.(size|stride|storage_offset)\(\).*", _condition_facts),
        (r"([\w.\[\]'\"]+) (?:==|is) (.+)$", _value_facts),
    )
]  # fmt: skip
"""The forms of reasons, the most special first."""
