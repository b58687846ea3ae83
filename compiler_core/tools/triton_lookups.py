"""Triton's lookups of kernels in its cache: the outcome, and the key, field by field.

Triton calls a listener after each compile, whether its cache had the kernel or not.  Its key is a digest of the fields
here; the options are those of the compile, with the defaults of the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compiler_core.codegen.build.kernel_lookups import key_field
from compiler_core.records.kernels import CacheLookup, KeyField


@contextmanager
def triton_lookups(
    note: Callable[[CacheLookup], None], guard: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Context manager in which `note` gets each lookup, and the listener that was there is called, too.

    `guard` makes a function of one that raises nothing: Triton's compile must not fail for a note.
    """
    from triton import knobs

    before = knobs.compilation.listener

    @guard
    def note_lookup(given: Mapping[str, Any]) -> None:
        note(CacheLookup("Triton cache", *_outcome(given), list(_fields(given["src"], given["metadata"]))))

    def listener(*args: Any, **given: Any) -> None:
        note_lookup(given)
        if before is not None:
            before(*args, **given)

    knobs.compilation.listener = listener
    try:
        yield
    finally:
        knobs.compilation.listener = before


def _outcome(given: Mapping[str, Any]) -> tuple[str, Any, str]:
    return str(given["src"].name), "hit" if given["cache_hit"] else "miss", str(given["metadata"].get("hash", ""))


def _fields(source: Any, metadata: Mapping[str, Any]) -> Iterator[KeyField]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = metadata["target"]
    target = target if isinstance(target, GPUTarget) else GPUTarget(**target)
    # Triton 3.9 warns where this option is not given
    options = vars(make_backend(target).parse_options({"enable_fp_fusion": True}))
    if (function := getattr(source, "fn", None)) is None:  # code of one of Triton's languages, and no function
        yield key_field("source", str(getattr(source, "src", "")))
    else:
        names = function.arg_names
        yield from _function_fields(function)
        yield _named("signature", source.signature)
        yield _named("constants", {_path(names, path): value for path, value in source.constants.items()})
        attributes = {_path(names, path): value for path, value in (source.attrs or {}).items()}
        yield _named("attributes", attributes)
    given = {name: metadata[name] for name in options if name in metadata}
    yield _named("options", json.loads(json.dumps(given, default=str)))  # as in the cache, which has no tuples
    yield key_field("target", repr(target))
    yield key_field("Triton", triton.__version__)
    yield _named("environment", _environment())


def _function_fields(function: Any) -> Iterator[KeyField]:
    """Yields the fields of a kernel's function, of which Triton's key has one digest."""
    _ = function.cache_key  # Triton finds the globals with it
    called = {name: function.fn.__globals__.get(name) for name in function.fn.__code__.co_names}
    yield key_field("source", function.src)
    yield key_field("first line", str(function.starting_line_number))
    yield _named("globals", {name: value for (name, _), (value, _) in function.used_global_vals.items()})
    functions = {name: each.cache_key for name, each in called.items() if hasattr(each, "cache_key")}
    yield _named("functions", functions)


def _environment() -> Mapping[str, Any]:
    from triton.compiler import compiler

    found: Mapping[str, Any] = compiler.get_cache_invalidating_env_vars()
    return found


def _named(name: str, values: Mapping[str, Any]) -> KeyField:
    return key_field(name, f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})")


def _path(names: list[str], path: Any) -> str:
    """Returns the name of an argument, or of a part of one, that Triton names by positions."""
    first, *rest = path if isinstance(path, tuple) else (path,)
    return "".join([names[first] if isinstance(first, int) else str(first), *(f"_{each}" for each in rest)])
