"""Write the browser's types of the record, from the dataclasses of the package `compiler_core.records`.

    python extension/record_types.py            write src/view/model/record.ts
    python extension/record_types.py --check    say whether it is as it should be

The TypeScript file has an interface for each class and, for reading a record from a stranger,
the same types as values (``SHAPES``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "extension/src/view/model/record.ts"
HEADER = "// Made by record_types.py from compiler_core/records: change that, then run it.\n"
SCALARS = {str: ("string", "string"), int: ("number", "int"), float: ("number", "number"), bool: ("boolean", "boolean")}
WIDTH = 100


def record_ts() -> str:
    """The text of record.ts."""
    sys.path.insert(0, str(ROOT))
    from compiler_core import records
    from compiler_core.api import roofline
    from compiler_core.records import artifacts, capture, differences, kernels, partition, steps
    from compiler_core.records import record as tree

    parts_of_it = (steps, differences, artifacts, capture, partition, kernels, tree)
    found = [c for module in parts_of_it for c in vars(module).values() if dataclasses.is_dataclass(c)]
    classes = [c for c in dict.fromkeys(found) if isinstance(c, type) and not _is_frozen(c)]
    names = {f"{n}": v for n, v in vars(artifacts).items() if typing.get_origin(v) is Literal}
    parts = [HEADER, f"export const SCHEMA_VERSION = {records.SCHEMA_VERSION};\n", "export type ItemId = string;\n"]
    parts += [_alias(name, value) for name, value in names.items()]
    parts += [_interface(cls, records.public_fields(cls)) for cls in classes]
    parts += [_PEAKS, *(f"  {_key(t)}: {_literal(p._asdict())}," for t, p in roofline.PEAKS.items()), "};\n"]
    parts.append(_SHAPE_TYPE)
    parts.append("export const SHAPES: { [type: string]: { [field: string]: Shape } } = {")
    parts += [_shapes(cls, records.public_fields(cls)) for cls in classes]
    parts.append("};\n")
    parts.append(_DEFAULTS)
    parts += [line for cls in classes for line in _defaults(cls, records.public_fields(cls))]
    parts.append("};\n")
    return "\n".join(parts)


def _is_frozen(cls: Any) -> bool:
    """Whether it is a view of a record (the state at a step), which no record contains."""
    return bool(cls.__dataclass_params__.frozen)


_PEAKS = """\
/** What targets do in a nanosecond: `compiler_core.api.roofline`. */
export const PEAKS: { [target: string]: { device: string; bytes: number; operations: number } } = {"""

_SHAPE_TYPE = """\
/** A type as a value: what a field of a record must be. */
export type Shape =
  | "string"
  | "int"
  | "number"
  | "boolean"
  | { is: string }
  | { list: Shape }
  | { map: Shape }
  | { one: string[] }
  | { maybe: Shape }
  | { any: Shape[] };
"""


_DEFAULTS = """\
/** What a field is where an earlier version did not write it. */
export const DEFAULTS: { [type: string]: { [field: string]: unknown } } = {"""


def _defaults(cls: type, fields: list[dataclasses.Field[Any]]) -> list[str]:
    """One line, where a field has a default."""
    found = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    found |= {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return [f"  {cls.__name__}: {_literal(found)},"] if found else []


def _alias(name: str, value: Any) -> str:
    options = [json.dumps(v) for v in typing.get_args(value)]
    line = f"export type {name} = {' | '.join(options)};\n"
    if len(line) <= WIDTH:
        return line
    return f"export type {name} =\n" + "\n".join(f"  | {o}" for o in options) + ";\n"


def _interface(cls: type, fields: list[dataclasses.Field[Any]]) -> str:
    hints = typing.get_type_hints(cls)
    doc = f"/** {(cls.__doc__ or cls.__name__).strip().splitlines()[0]} */\n"
    lines = [f"  {f.name}: {typescript(hints[f.name])};" for f in fields]
    return f"{doc}export interface {cls.__name__} {{\n" + "\n".join(lines) + "\n}\n"


def _shapes(cls: type, fields: list[dataclasses.Field[Any]]) -> str:
    hints = typing.get_type_hints(cls)
    lines = [f"    {f.name}: {_literal(shape(hints[f.name]))}," for f in fields]
    return f"  {cls.__name__}: {{\n" + "\n".join(lines) + "\n  },"


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _literal(value: Any) -> str:
    """`value` as TypeScript writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k}: {_literal(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value)


def typescript(hint: Any) -> str:
    """A Python type as TypeScript writes it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint][0]
    if dataclasses.is_dataclass(hint):
        return typing.cast(type, hint).__name__
    if origin is Literal:
        return " | ".join(json.dumps(v) for v in args)
    if origin is list:
        of = typescript(args[0])
        return f"({of})[]" if " " in of else f"{of}[]"
    if origin is dict:
        return f"{{ [name: string]: {typescript(args[1])} }}"
    if origin in (types.UnionType, typing.Union):
        return " | ".join("null" if a is type(None) else typescript(a) for a in args)
    raise TypeError(f"the record has a field of type {hint!r}: say in {__file__} what that is in TypeScript")


def shape(hint: Any) -> Any:
    """A Python type as a `Shape`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint][1]
    if dataclasses.is_dataclass(hint):
        return {"is": typing.cast(type, hint).__name__}
    if origin is Literal:
        return {"one": list(args)}
    if origin in (list, dict):
        return {"list" if origin is list else "map": shape(args[-1])}
    if origin not in (types.UnionType, typing.Union):
        raise TypeError(f"the record has a field of type {hint!r}: say in {__file__} what its shape is")
    options = [shape(a) for a in args if a is not type(None)]
    made = options[0] if len(options) == 1 else {"any": options}
    return {"maybe": made} if type(None) in args else made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where the file is not as it should be"
    )
    text = record_ts()
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
        sys.exit(f"{TARGET.relative_to(ROOT)} is not what compiler_core/records says: run extension/record_types.py")


if __name__ == "__main__":
    main()
