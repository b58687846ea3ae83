"""Sources of stock `torch.compile` as the user would write them: ``self.layers[1].training``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

_MAIN = re.compile(r"\b__import___main__\.")
"""The module of a script or of cells, whose names the user writes without it."""
_MODULE = re.compile(r"\b__import_(\w+)")
_NUMBERED = re.compile(r"(?:\.__dict__\['_modules'\]|\._modules)\['(\d+)'\]")
_TABLED = re.compile(
    r"(?:\.__dict__\['_(?:modules|parameters|buffers)'\]|\._(?:modules|parameters|buffers))\['(\w+)'\]"
)
_OWN = re.compile(r"\.__dict__\['(\w+)'\]")
_OF_CLASS = re.compile(r"dict\(([^()]*(?:\([^()]*\))?[^()]*?)(?:\.__mro__\[\d+\])?\.__dict__\)\['(\w+)'\]")
_ITEM_BY_NUMBER = re.compile(r"dict\.__getitem__\(([^()]+), list\(dict\.keys\(\1\)\)\[(\d+)\]\)")
"""An item of an object of a class derived from `dict`."""
_OPTIMIZER = re.compile(r"G\['__optimizer_\w+'\]\(\)")
"""A weak reference that Dynamo holds."""
_FIRST_KEYS = re.compile(r"list\(dict\.keys\((.+)\)\)\[(\d+)\]$")
_BUILTINS = re.compile(r"(?:G\[')?__builtins_dict__\w*(?:'\])?\['(\w+)'\]")
_MEMBER = re.compile(r"\.__dict__\['(\w+)'\]$|\.(\w+)$")
_ENVIRON = re.compile(r"\bos\.environ\._data\[b('\w+')\]")
_FREE = re.compile(r"(.+?)(?:\.dispatcher\.dispatch)?(?:\.__closure__\[\d+\]\.cell_contents)+((?:\.\w+)*)$")
"""A free variable of a function, or of one that it calls: which one is not logged."""
EXTENT = re.compile(r"(.+)\.(size|stride)\(\)\[(\d+)\]$")
"""A size or stride: the tensor, which of both, and the dimension."""
_OFFSET = re.compile(r"(.+)\.storage_offset\(\)$")
_FROM_NUMPY = re.compile(r"_+from_numpy\(([^()]+)\)|_+as_tensor\(([^()]+)\)\.item\(\)")
"""Dynamo guards an array as the tensor of its memory, and a float as the value of a tensor (PyTorch 2.11)."""
_COUNT = re.compile(r"_+normalize_count_iter\((.+)\)$")
"""The number that an `itertools.count` gives next, and its step."""
_ROOT = re.compile(r"([LG])\['\w+'\]")
_LOCAL_OR_GLOBAL = re.compile(r"\b[LG]\['(\w+)'\]")


def shown_source(source: str) -> str:
    """Returns a source as the user would write it; a parameter of a resume function keeps its name (`advice.named`)."""
    if extent := EXTENT.match(source):
        return f"{extent[2]} {extent[3]} of {shown_source(extent[1])}"
    if offset := _OFFSET.match(source):
        return f"the storage offset of {shown_source(offset[1])}"
    if counter := _COUNT.match(source):
        return f"next({shown_source(counter[1])})"
    if keys := _FIRST_KEYS.match(source):
        return f"key number {int(keys[2])} of {shown_source(keys[1])}"
    if free := _FREE.match(source):
        return f"{free[2][1:]}{' of ' if free[2] else ''}a free variable of {shown_source(free[1])}"
    source = _FROM_NUMPY.sub(r"\1\2", _OPTIMIZER.sub("the optimizer", source))
    text = _MAIN.sub("", _LOCAL_OR_GLOBAL.sub(r"\1", _BUILTINS.sub(r"\1", source)))
    text = _OF_CLASS.sub(r"\1.\2", text)
    text = text.removesuffix(".__code__").removesuffix("._modules")  # which function it is; which modules it has
    text = _OWN.sub(r".\1", _TABLED.sub(r".\1", _NUMBERED.sub(r"[\1]", text)))
    return _ENVIRON.sub(r"os.environ[\1]", _MODULE.sub(lambda found: found[1].replace("_dot_", "."), text))


def with_keys(source: str, keys: Mapping[tuple[str, str], str]) -> str:
    """Returns a source with ``L['cfg']['model']`` for an item that it has by the number of its key.

    `keys`: the keys that are known, as sources have them, by the source of the dict and the number.
    """
    while found := _ITEM_BY_NUMBER.search(source):
        if found.groups() not in keys:
            break
        source = f"{source[: found.start()]}{found[1]}[{keys[found[1], found[2]]}]{source[found.end() :]}"
    return source


def is_of_environment(source: str) -> bool:
    """Whether a source is a variable of ``os.environ``, which has bytes for the texts that a user sees."""
    return ".environ._data[b'" in source


def is_of_counter(source: str) -> bool:
    """Whether a source is the number that an `itertools.count` gives next, with its step."""
    return _COUNT.match(source) is not None


def member_of(source: str) -> str:
    """Returns the attribute in which an object holds the value at a source; empty if it is elsewhere."""
    found = _MEMBER.search(source)
    return (found[1] or found[2]) if found else ""


def place_of(source: str) -> Literal["argument", "global", "attribute"]:
    """Returns where the value at a source is."""
    root = _ROOT.match(source)
    rest = source[root.end() :] if root else source.partition("[")[0]
    if "." in rest:
        return "attribute"
    return "global" if root and root[1] == "G" else "argument"
