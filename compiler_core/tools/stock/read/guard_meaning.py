"""Says in plain words what a guard of stock `torch.compile` requires, where its check does not say it to a reader."""

from __future__ import annotations

import re
from collections.abc import Callable

from compiler_core.records.recompiles import with_article
from compiler_core.tools.stock.read.source_names import shown_source

_MARKS = {
    "_dynamo_dynamic_indices": "mark_dynamic",
    "_dynamo_weak_dynamic_indices": "maybe_mark_dynamic",
    "_dynamo_unbacked_indices": "mark_unbacked",
    "_dynamo_strict_unbacked_indices": "mark_unbacked(strict=True)",
    "_dynamo_static_indices": "mark_static",
}
_FIXED = {
    "GLOBAL_STATE": "grad mode, autocast, default dtype, number of threads and similar settings are as at capture",
    "TORCH_FUNCTION_MODE_STACK": "the same torch function modes are active as at capture",
    "DEFAULT_DEVICE": "the device set by torch.set_default_device is as at capture",
    "NO_TENSOR_ALIASING": "no two arguments are one tensor",
    "STORAGE_OVERLAPPING": "the same arguments share memory as at capture",
}


def guard_meaning(kind: str, code: str) -> str:
    """Returns the condition as a sentence without a full stop; an empty string where the code reads well as it is."""
    if kind in _FIXED:
        return _FIXED[kind]
    for pattern, sentence in _SENTENCES:
        if found := pattern.match(code):
            return sentence(found)
    return ""


def _type(text: str) -> str:
    return text.removeprefix("<class '").removesuffix("'>").removeprefix("builtins.")


def _same_object(found: re.Match[str]) -> str:
    kind = f" ({_type(found[2])})" if found[2] else ""
    return f"{shown_source(found[1])} is the same object as at capture{kind}"


def _tensor(found: re.Match[str]) -> str:
    name, dtype, rest = shown_source(found[1]), found[2], found[3]
    size = re.search(r"size=\[(.*?)\]", rest)
    gradient = " that requires a gradient" if "requires_grad=True" in rest else ""
    device = re.search(r"device=(\d+)", rest)
    where = f" on device {device[1]}" if device else ""
    sizes = size[1].split(", ") if size and size[1] else []
    shape = f"of size {' x '.join(each.replace('None', 'any') for each in sizes)}" if sizes else "without dimensions"
    return f"{name} is {with_article(dtype)} tensor {shape}{where}{gradient}"


_SENTENCES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (r"check_tensor\((.+?), \w+, .*?torch\.(\w+), (.*)", _tensor),
        (r"_*check_obj_id\((.+), \d+\)(?:, type=(.+))?$", _same_object),
        (r"_*check_type_id\((.+), \d+\), type=(.+)$", lambda f: f"{shown_source(f[1])} is {with_article(_type(f[2]))}"),
        (
            r"not _*dict_contains\('(\w+)', (.+)\.__dict__\)$",
            lambda f: f"{shown_source(f[2])} has no own attribute {f[1]}",
        ),
        (r"_*dict_contains\('(\w+)', (.+)\.__dict__\)$", lambda f: f"{shown_source(f[2])} has an own attribute {f[1]}"),
        (r"not _*dict_contains\((.+?), (.+)\)$", lambda f: f"{shown_source(f[2])} has no key {f[1]}"),
        (r"_*dict_contains\((.+?), (.+)\)$", lambda f: f"{shown_source(f[2])} has the key {f[1]}"),
        (
            r"hasattr\((.+), '(_dynamo_\w+)'\) == False$",
            lambda f: f"no size of {shown_source(f[1])} was marked by {_MARKS.get(f[2], f[2])}",
        ),
        (
            r"(?:abs\((.+)\)|-?1\.79\w*\.?\d*e\+308 <= (.+)) <= 1\.79\d*e\+308$",
            lambda f: f"{shown_source(f[1] or f[2])} is finite",
        ),
        (r"not (?:math|torch)\.isnan\((.+)\)$", lambda f: f"{shown_source(f[1])} is not NaN"),
        (r"not math\.isinf\((.+)\)$", lambda f: f"{shown_source(f[1])} is finite"),
        (r"_*dict_version\((.+)\) == \d+$", lambda f: f"{shown_source(f[1])} has not changed"),
        (r".*top_saved_tensors_hooks ids == None$", lambda f: "no hooks on saved tensors are active"),
        (r"(-?\d+) <= (\S+) <= (-?\d+)$", lambda f: f"{shown_source(f[2])} is from {f[1]} to {f[3]}"),
        (r"(-?\d+) <= (\S+)$", lambda f: f"{shown_source(f[2])} is at least {f[1]}"),
        (r"(\S+) <= (-?\d+)$", lambda f: f"{shown_source(f[1])} is at most {f[2]}"),
        (r"(\S+) == (.+)$", lambda f: _comparison(f[0], f"{shown_source(f[1])} is {shown_source(f[2])}")),
        (
            r"(\S+) is (\S+)$",
            lambda f: _comparison(f[0], f"{shown_source(f[1])} and {shown_source(f[2])} are one object"),
        ),
        (r"not (\S+)$", lambda f: f"{shown_source(f[1])} is empty"),
    )
]
"""The forms of checks, the most special first."""


def _comparison(code: str, sentence: str) -> str:
    """Returns the sentence, but an empty string where the code names values as the user does."""
    return sentence if re.search(r"_dot_|_modules|__\w|\(\)|dict\.keys", code) else ""
