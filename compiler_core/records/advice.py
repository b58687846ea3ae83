"""Advice on recompiles: what to change in the program so that the guard that failed does not fail again."""

from __future__ import annotations

import re

from compiler_core.records.capture import Recompile

ENTRY_OF_OURS = "this entry is Cutaway's, so stock torch.compile does not use it"
"""The reason that stock gives, in its logs, for not using an entry of ours."""

_GENERATED = re.compile(r"\b__(stack|callee)\d*\b")
_ROOT = re.compile(r"\b[LG]\[(['\"])(\w+)\1\]")
_NUMBER = re.compile(r"-?(\d+(\.\d*)?(e[+-]?\d+)?|inf)|nan")
_SIZE = re.compile(r"\.(size|stride|storage_offset)\(\)(\[\d+\])?$")
_EXTENT = re.compile(r"\d+|None")
_PATH = re.compile(r"\w+([.\[]|\()")

_BY_KIND = {
    "TYPE_MATCH": "{name} has another type than before, and each type is compiled once.  Convert it to one type before "
    "the call.",
    "LENGTH": "{name} has another length, and a loop over it is unrolled for each length.  Pass the same number of "
    "items, or stack tensors into one.",
    "DICT_LENGTH": "{name} has other keys.  Give the dict all of its keys before the first call.",
    "DICT_KEYS": "{name} has other keys, or in another order.  Give the dict all of its keys, in one order, before the "
    "first call.",
    "DICT_CONTAINS": "A key was added to {name}.  Give the dict all of its keys before the first call.",
    "DICT_HAS": "A key was removed from {name}.  Keep the keys of the dict the same between calls.",
    "SET_EQUALS": "The set {name} has other items.  Pass a set that does not change, or tensors.",
    "SET_ORDER": "The set {name} is iterated over in another order.  Pass a list, or sorted(...).",
    "ID_MATCH": "{name} is another object at each call, such as a new function or module.  Make it once, outside the "
    "compiled function, and pass the same one.",
    "SAME_OBJECT": "Two arguments were one object and are not any more.  Pass them in the same way at each call.",
    "NOT_SAME_OBJECT": "Two arguments are one object now.  Pass a copy (`clone()`), or pass them in the same way at "
    "each call.",
    "ALL_DIFFERENT": "Two arguments are one object now.  Pass a copy (`clone()`), or pass them in the same way at each "
    "call.",
    "GLOBAL_STATE": "PyTorch's settings differ between the calls (grad mode, autocast, default dtype, number of "
    "threads), and each setting is compiled once.  Call the function under the same settings.",
    "NO_DISPATCH_MODE": "A torch dispatch mode is active for this call only.  Call the function inside or outside the "
    "mode, not both.",
    "CURRENT_GPU": "The current GPU is another one.  Call `torch.cuda.set_device` once, before the first call.",
    "GLOBAL_ABSENT": "A global of the same name as a builtin was added.  Define it before the first call.",
    "LIBRARY": "A function of the library was replaced between the calls.  Replace it before the first call.",
    "NO_ATTRIBUTE": "An attribute was added to {name}.  Set it in `__init__`, before the first call.",
    "RETURNS": "Calling {name} returned another value.  Call it outside the compiled function and pass the result.",
}


def readable(source: str) -> str:
    """Returns a source as the user would write it: ``self.calls`` for ``L['self'].calls``.  A parameter that a resume
    function has for a value of the stack has no name in the user's code."""
    return _GENERATED.sub("an intermediate value", _ROOT.sub(r"\2", source))


def base(source: str) -> str:
    """Returns the tensor of a size or stride; any other source as it is."""
    return _SIZE.sub("", source)


_CHANGED = {
    "TYPE_MATCH": "the type of {}",
    "LENGTH": "the length of {}",
    "DICT_LENGTH": "the length of {}",
    "DICT_KEYS": "the keys of {}",
    "DICT_CONTAINS": "the keys of {}",
    "DICT_HAS": "the keys of {}",
    "ID_MATCH": "the object {}",
}


def what_changed(cause: Recompile) -> str:
    """Returns the value whose change failed the guard of a recompile: ``self.calls``, ``the dtype of x``."""
    name = readable(base(cause.source))
    if cause.kind == "TENSOR_MATCH":
        field = re.match(r"(type|dtype|device|requires_grad|shape|stride|rank|size)\b(?!=)", cause.expected)
        return f"the {field[1]} of {name}" if field else name
    if cause.kind == "CONDITION" and name != readable(cause.source):
        return f"the size of {name}"
    return _CHANGED.get(cause.kind, "{}").format(name)


def what_failed(cause: Recompile) -> str:
    """Returns the guard that failed in words: ``x was expected to be shape (3,) and is shape (4,)``."""
    if cause.kind == "CONDITION":
        return f"the condition {readable(cause.expected)} failed: {readable(cause.got)}"
    return f"{readable(cause.source)} was expected to be {cause.expected} and is {cause.got}"


def may_be_symbolic(cause: Recompile) -> bool:
    """Whether what changed is a size, a stride or a number, for which a compile can have a symbol; not a dtype."""
    return cause.kind != "TENSOR_MATCH" or cause.expected.partition(" ")[0] in ("shape", "size", "stride")


def recompile_advice(cause: Recompile, is_symbolic: bool = False) -> str:
    """Returns what to do about a recompile.

    `is_symbolic`: whether the size or number that changed is symbolic in the new compile.
    """
    name = readable(base(cause.source))
    if not name.startswith("an intermediate value"):
        name = f"`{name}`"
    nothing = (
        "Nothing: this compile has a symbol for it, so further values need no other compile.  To avoid this one, too: "
    )
    start = nothing if is_symbolic else ""
    if cause.kind == "TENSOR_MATCH":
        return start + _tensor_advice(cause, name)
    if cause.kind == "CONDITION":
        return _condition_advice(cause, name)
    if cause.kind == "EQUALS_MATCH":
        return start + _value_advice(cause, name)
    advice = _BY_KIND.get(cause.kind, "").format(name=name)
    return advice[:1].upper() + advice[1:]


def _tensor_advice(cause: Recompile, name: str) -> str:
    field = cause.expected.partition(" ")[0]
    if field == "rank" or (
        field == "shape" and len(_EXTENT.findall(cause.expected)) != len(_EXTENT.findall(cause.got))
    ):
        return f"{name} has another number of dimensions, and each number is compiled once.  Pass one number of them."
    if field in ("shape", "size"):
        return (
            f"With dynamic=True (%%compile --dynamic), or torch._dynamo.mark_dynamic on {name}, sizes are symbols from "
            "the first compile on."
        )
    return {
        "dtype": f"{name} has another dtype, and each dtype is compiled once.  Convert it before the call.",
        "device": f"{name} is on another device.  Move it before the call.",
        "requires_grad": f"{name} requires a gradient in some calls only, and both cases are compiled.  Set "
        "requires_grad the same way, or detach it before the call.",
        "stride": f"{name} has another memory layout.  Call `.contiguous()` on it before the call.",
        "type": f"{name} is of another tensor class.  Pass one class.",
    }.get(field, f"{name} is another kind of tensor.  Pass the same kind at each call.")


def _condition_advice(cause: Recompile, name: str) -> str:
    if re.search(r" is (0 or 1|[01])$", cause.got) and re.search(r">= 2$|!= [01]$", cause.expected):
        return "Sizes 0 and 1 are compiled separately, since they broadcast; there is one more compile for each."
    return (
        f"The program, or an operation, treats sizes with and without `{readable(cause.expected)}` differently, and "
        f"each case is compiled once; a loop of {name} rounds is unrolled.  Avoid the comparison or the loop, or pad "
        "to one size."
    )


def _value_advice(cause: Recompile, name: str) -> str:
    if not _NUMBER.fullmatch(cause.expected):
        return f"Each value of {name} is compiled once.  Pass few different values, or a tensor."
    if cause.source.startswith("G[") and not _is_inside(cause.source):
        return f"The global {name} changes between calls.  Pass it as an argument, or make it a tensor."
    if _is_inside(cause.source):
        return (
            f"{name} changes between calls.  Count outside the compiled function, or make it a tensor "
            "(`register_buffer` in a module).  dynamic=True has no effect on attributes and items."
        )
    return (
        f"The number {name} changes between calls.  With dynamic=True (%%compile --dynamic) numbers among the "
        "arguments are symbols from the first compile on; or pass a tensor."
    )


def _is_inside(source: str) -> bool:
    """Whether a source is an attribute or item of an object."""
    return _PATH.match(readable(source)) is not None
