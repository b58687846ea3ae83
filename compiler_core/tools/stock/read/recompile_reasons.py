"""Parses Dynamo's reasons for recompiles: the first guard that failed of each compile that did not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from compiler_core.records import FailedGuard, MissedEntry, limits
from compiler_core.records.recompiles import AT_CAPTURE, ENTRY_OF_OURS, ONE_AT_CAPTURE, Mismatch, keys_mismatch
from compiler_core.tools.stock.read.source_names import EXTENT, is_of_counter, member_of, place_of, shown_source

_Facts = tuple[str, str, Mismatch]
"""The guard's kind, its source, and the difference."""

SCALARS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
"""PyTorch's C++ names of dtypes."""
GLOBAL = "torch's global state"
ANOTHER = "another object"
MODES = "stack of torch function modes, such as a default device"
_SOURCE = re.compile(r"\b[LG]\['\w+'\](?:\.\w+|\[[^\[\]]*\])*")
_BACKENDS = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "MPS": "mps", "XPU": "xpu", "HPU": "hpu"}
"""Dispatch keys that name a device."""


def read_recompile_reasons(payload: str) -> list[MissedEntry]:
    """Returns the compiles in the list, in its order, each with the guard that failed.

    The list may begin with entries of the core engine for the same code, which are left out.
    """
    try:
        reasons = json.loads(payload)
    except ValueError:
        reasons = payload
    lines = map(str, reasons) if isinstance(reasons, list) else [str(reasons)]
    return [_read_reason(limits.truncate(line)) for line in lines if line.strip() and ENTRY_OF_OURS not in line]


def _read_reason(line: str) -> MissedEntry:
    of, colon, why = line.partition(": ")
    if not colon or "/" not in of:
        of, why = "", line
    why = why.partition("  # ")[0].partition("\nUser stack trace")[0].strip()
    for pattern, facts in _REASONS:
        if found := pattern.match(why):
            kind, source, difference = facts(found)
            return MissedEntry(of, [failed_guard(kind, why, source, difference)])
    shown = as_user_wrote(why, ())
    return MissedEntry(of, [failed_guard("", why, "", Mismatch("relation", shown, "", item=shown))])


def failed_guard(kind: str, code: str, source: str, found: Mismatch, type_: str = "") -> FailedGuard:
    """Returns the difference of the value at a source of stock's."""
    type_ = "Tensor" if kind == "ALL_DIFFERENT" else type_
    if is_of_counter(source):  # the number, and the step
        found = found._replace(aspect="result", expected=found.expected.strip("(").partition(",")[0])
    return FailedGuard(
        kind, code, source, shown_source(source), found.aspect, found.expected, found.got, None, list(found.dims),
        found.item, found.is_specialised, found.is_broadcast, place_of(source), type_,
        member=member_of(source),
    )  # fmt: skip


def _tensor_facts(found: re.Match[str]) -> _Facts:
    name, what, at, expected, got = found.groups()
    field = what.strip().lower()
    dims = (int(at),) if at else ()
    if field == "dtype":
        expected, got = (f"torch.{SCALARS.get(each, each)}" for each in (expected, got))
        return "TENSOR_MATCH", name, Mismatch("dtype", expected, got)
    if field == "rank":
        return "TENSOR_MATCH", name, Mismatch("rank", expected, got)
    if field in ("size", "stride"):
        is_broadcast = field == "size" and bool({expected, got} & {"0", "1"})
        aspect = "size" if field == "size" else "stride"
        return "TENSOR_MATCH", name, Mismatch(aspect, expected, got, dims, is_broadcast=is_broadcast)  # type: ignore[arg-type]
    if field == "tensor device index":
        return "TENSOR_MATCH", name, Mismatch("device", expected, got)
    return "TENSOR_MATCH", name, keys_difference(expected, got)


def keys_difference(expected: str, got: str) -> Mismatch:
    """Returns how two sets of dispatch keys differ: by the device, which comes first in them, or in another way."""
    devices = [_BACKENDS.get(re.split(r"[(,)]", text)[1]) if "(" in text else None for text in (expected, got)]
    if devices[0] and devices[1] and devices[0] != devices[1]:
        return Mismatch("device", devices[0], devices[1])
    return keys_mismatch(expected, got)


def _requires_grad_facts(found: re.Match[str]) -> _Facts:
    expected = found[2] == "1"
    return "TENSOR_MATCH", found[1], Mismatch("requires_grad", str(expected), str(not expected))


_SETTINGS = {"num_threads": "number of threads", "deterministic_algorithms": "use of deterministic algorithms"}


def setting_name(key: str) -> str:
    """Returns the name of one of PyTorch's settings: ``grad mode`` for ``grad_mode``."""
    return _SETTINGS.get(key, key.removesuffix("_state").replace("_", " "))


_STATE = re.compile(r"_*check_global_state\(\) against (\{.*\})$")
_DTYPES = {"5": "torch.float16", "6": "torch.float32", "7": "torch.float64", "15": "torch.bfloat16"}
"""The numbers that PyTorch's C++ has for dtypes, of those that can be the default."""


def settings_of(code: str) -> dict[str, str]:
    """Returns PyTorch's settings that the check of its global state compares with, as text; none for another check."""
    found = _STATE.match(code)
    try:
        state = json.loads(found[1]) if found else {}
    except ValueError:
        return {}
    return {setting_name(key): _shown_setting(key, state[key]) for key in sorted(state)}


def _shown_setting(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict) and isinstance(value.get("enabled"), list):  # autocast, by type of device
        dtypes = [str(each) for each, is_on in zip(value.get("dtype", ()), value["enabled"], strict=False) if is_on]
        return ", ".join(_DTYPES.get(each, each) for each in dtypes) or "off"
    return _DTYPES.get(str(value), str(value)) if key == "default_dtype" else str(value)


_BACKEND = re.compile(
    r"BACKEND_MATCH failure: .*?Cached backend: (.*?) \(id=\w+\)\. New backend: (.*?) \(id=\w+\)\.", re.DOTALL
)
_WRAPPER = re.compile(r"_TorchCompile(Inductor)?Wrapper(?:\(compiler='([^']+)')?")


def _backend_facts(found: re.Match[str]) -> _Facts:
    before, now = (_backend_name(text) for text in found.groups())
    same = "another object of that name"
    return "BACKEND_MATCH", GLOBAL, Mismatch("setting", before, same if before == now else now, item="backend")


def _backend_name(text: str) -> str:
    """Returns the name of a backend from the repr of what Dynamo makes of it."""
    wrapper = _WRAPPER.match(text)
    if wrapper is None:
        return text
    return "inductor" if wrapper[1] else wrapper[2] or text


def _state_facts(found: re.Match[str]) -> _Facts:
    return "GLOBAL_STATE", GLOBAL, Mismatch("setting", "", "", item=setting_name(found[1]))


def class_name(text: str) -> str:
    """Returns the name of a class from its repr."""
    return text.removeprefix("<class '").partition("'>")[0].rpartition(".")[2]


def _value_facts(found: re.Match[str]) -> _Facts:
    other = {"True": "False", "False": "True"}.get(found[2], "")
    return "EQUALS_MATCH", found[1], Mismatch("value", found[2], other)


def _duplicate_facts(found: re.Match[str]) -> _Facts:
    first, *rest = re.findall(r"[\w.\[\]']+", found[1])
    return "ALL_DIFFERENT", first, Mismatch("aliasing", "two objects", "one object", item=" and ".join(rest))


def _presence(found: re.Match[str], kind: str, is_there: bool, source: int = 2, item: int = 1) -> _Facts:
    """`is_there`: whether the key was there at capture."""
    expected, got = ("present", "absent") if is_there else ("absent", "present")
    owner, key = found[source], found[item]
    if owner.endswith(".__dict__"):
        return kind, owner.removesuffix(".__dict__"), Mismatch("attribute", expected, got, item=key.strip("'"))
    return kind, owner, Mismatch("key", expected, got, item=key)


def _attribute_facts(found: re.Match[str]) -> _Facts:
    was_there = found[1] is None and found[4] != "False"
    expected, got = ("present", "absent") if was_there else ("absent", "present")
    return "NO_ATTRIBUTE", found[2], Mismatch("attribute", expected, got, item=found[3])


def _condition_facts(found: re.Match[str]) -> _Facts:
    sizes = re.findall(r"[\w.\[\]']+?\.(?:size|stride|storage_offset)\(\)(?:\[\d+\])?", found[0])
    name = sizes[0]
    extent = EXTENT.match(name)
    if difference := too_small(found[0]):
        return "CONDITION", difference.of, difference
    if extent is not None:
        dims, aspect = (int(extent[3]),), extent[2]
        if equal := re.match(rf"{re.escape(name)} == (\d+)$", found[0]):
            return "CONDITION", extent[1], Mismatch(aspect, equal[1], "", dims, is_specialised=True)  # type: ignore[arg-type]
    shown = as_user_wrote(found[0], sizes)
    return "CONDITION", name, Mismatch("relation", shown, "", item=shown)


def too_small(condition: str) -> Mismatch | None:
    """Returns the difference if the condition is that a size is at least 2: sizes 0 and 1 are compiled separately."""
    extent = EXTENT.match(condition.removeprefix("2 <= ")) if condition.startswith("2 <= ") else None
    if extent is None:
        return None
    source, aspect, dim = extent.groups()
    is_size = aspect == "size"
    return Mismatch(aspect, "at least 2", "0 or 1", (int(dim),), is_broadcast=is_size, of=source)  # type: ignore[arg-type]


def as_user_wrote(condition: str, sizes: Iterable[str]) -> str:
    """Returns a condition with ``x.size(0)`` for each ``L['x'].size()[0]`` in it."""
    for size in dict.fromkeys(sizes):
        condition = condition.replace(size, size_as_call(size))
    condition = _SOURCE.sub(lambda found: shown_source(found[0]), condition).replace("math.trunc(", "int(")
    swapped = re.match(r"(-?\d+) <= ([^ ]+)$", condition)
    return f"{swapped[2]} >= {swapped[1]}" if swapped else condition


def size_as_call(size: str) -> str:
    """Returns ``x.size(0)`` for ``L['x'].size()[0]``."""
    source, dot, extent = size.rpartition(".")
    return f"{shown_source(source)}{dot}{extent.replace('()[', '(').replace(']', ')')}"


def _not_a_tensor(found: re.Match[str]) -> _Facts:
    return "TENSOR_MATCH", found[1], Mismatch("class", "Tensor", class_name(found[2] or ""))


_REASONS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], _Facts]]] = [
    (re.compile(pattern), facts)
    for pattern, facts in (
        (r"GLOBAL_STATE changed: (\w+)", _state_facts),
        (_BACKEND.pattern, _backend_facts),
        (
            r"_*check_torch_function_mode_stack\(\)",
            lambda _: ("TORCH_FUNCTION_MODE_STACK", GLOBAL, Mismatch("setting", ONE_AT_CAPTURE, "", item=MODES)),
        ),
        (r"tensor '(.+?)' requires_grad mismatch\. expected requires_grad=([01])", _requires_grad_facts),
        (
            r"tensor '(.+?)' ([\w ]+?) mismatch(?: at index (\d+))?\. "
            r"[Ee]xpected (?:device index to be )?(.+?),? (?:but )?(?:actual|got):? (.+)$",
            _tensor_facts,
        ),
        (r"expected type of '(.+?)' to be a tensor type(?:, ' but found (<class '.+'>))?", _not_a_tensor),
        (
            r"_*check_type_id\((.+), \d+\)(?:, type=(.+))?$",
            lambda f: ("TYPE_MATCH", f[1], Mismatch("class", class_name(f[2] or "a certain class"), "")),
        ),
        (
            r"Cache line invalidated because (.+) got deallocated",
            lambda f: ("ID_MATCH", f[1], Mismatch("identity", "one that was freed", ANOTHER)),
        ),
        (
            r"_*check_obj_id\((.+), \d+\)",
            lambda f: ("ID_MATCH", f[1], Mismatch("identity", AT_CAPTURE, ANOTHER)),
        ),
        (r"len\((.+)\) == (\d+)$", lambda f: ("LENGTH", f[1], Mismatch("length", f[2], ""))),
        # what the manager of a dict reports is what it found, and no check
        (r"len\((.+)\) != (\d+)$", lambda f: ("DICT_LENGTH", f[1], Mismatch("length", f[2], ""))),
        (r"not _*dict_contains\((.+?), (.+)\)$", lambda f: _presence(f, "DICT_CONTAINS", is_there=False)),
        (r"_*dict_contains\((.+?), (.+)\)$", lambda f: _presence(f, "DICT_HAS", is_there=True)),
        (
            r"list\(dict\.keys\((.+?)\)\)\[(\d+)\] == (.+)$",
            lambda f: ("DICT_KEYS", f[1], Mismatch("keys", f"{f[3]} as key number {int(f[2])}", "other keys")),
        ),
        (r"(not )?hasattr\((.+), '(\w+)'\)(?: == (True|False))?$", _attribute_facts),
        (r"KeyError on (.+)\[(.+?)\]$", lambda f: _presence(f, "DICT_HAS", is_there=True, source=1, item=2)),
        (r"Duplicate tensors? found: \[(.+)\]$", _duplicate_facts),
        (
            r"not ((?:dict\(type\([\w.\[\]']+\)\.__dict__\))?[\w.\[\]']+)$",
            lambda f: ("LENGTH", f[1], Mismatch("length", "0", "")),
        ),
        (r".*\.(size|stride|storage_offset)\(\).*", _condition_facts),
        (r"(\S+) is (?!(?:True|False|None)$)([A-Za-z_]\S*)$", lambda f: (
            "SAME_OBJECT", f[1], Mismatch("aliasing", "one object", "two objects", item=shown_source(f[2])))),
        (
            r"set\.__contains__\((.+), (.+)\)$",
            lambda f: ("SET_CONTAINS", f[1], Mismatch("items", f"some with {f[2]}", f"others, without {f[2]}")),
        ),
        (r"(\S+) (?:==|is) (.+)$", _value_facts),
    )
]  # fmt: skip
"""The forms of reasons, the most special first."""
