"""Prints the instructions of ``import`` statements."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.bytecode import Instruction

_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


def import_statement(
    instructions: Sequence[Instruction], at: int, level: object, names: object
) -> tuple[str, list[str], int] | None:
    """Returns the statement whose IMPORT_NAME is at `at`, the names that it stores, and the instruction after it.

    `level` and `names` are the operands: how many dots are before the name, and what is imported from the module.
    None: the instructions are not those of a statement.
    """
    module, following = str(instructions[at].argval), instructions[at + 1]
    if names is None and following.opname in _STORES:
        name = str(following.argval)
        shown = module if name == module.partition(".")[0] else f"{module} as {name}"
        is_same = "." not in module or name == module.partition(".")[0]
        return (f"import {shown}", [name], at + 2) if is_same else None
    if names is None:
        return _renamed(instructions, at + 1, module)
    if not isinstance(names, tuple):
        return None
    parts, stored, at = [], [], at + 1
    for name in names:
        load, store = instructions[at : at + 2]
        if (load.opname, load.argval) != ("IMPORT_FROM", name) or store.opname not in _STORES:
            return None
        stored.append(str(store.argval))
        parts.append(name if name == store.argval else f"{name} as {store.argval}")
        at += 2
    if instructions[at].opname != "POP_TOP":
        return None
    return f"from {'.' * int(str(level))}{module} import {', '.join(parts)}", stored, at + 1


def _renamed(instructions: Sequence[Instruction], at: int, module: str) -> tuple[str, list[str], int] | None:
    """``import a.b as c``, which reads the attributes one after the other."""
    for i, part in enumerate(module.split(".")[1:]):
        if i:
            if [each.opname for each in instructions[at : at + 2]] != ["SWAP", "POP_TOP"]:
                return None
            at += 2
        if (instructions[at].opname, instructions[at].argval) != ("IMPORT_FROM", part):
            return None
        at += 1
    store, pop = instructions[at : at + 2]
    if store.opname not in _STORES or pop.opname != "POP_TOP":
        return None
    return f"import {module} as {store.argval}", [str(store.argval)], at + 2
