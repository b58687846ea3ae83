"""Disassembles and reassembles standard-library modules, and prints what changed.

Run it as a script with any CPython from 3.11 on:  python round_trip.py [module ...]
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from compiler_core import bytecode  # noqa: E402
from compiler_core.bytecode import opset  # noqa: E402
from compiler_core.errors import CompilerBug  # noqa: E402

MODULES = """
argparse asyncio.tasks asyncio.queues collections contextlib copy dataclasses difflib enum functools heapq
json.decoder json.encoder pathlib statistics textwrap threading traceback
""".split()


@dataclass
class Outcome:
    total: int = 0
    same_bytes: int = 0
    same_lines: int = 0
    faults: list[str] = field(default_factory=list)


def code_objects(module: str) -> Iterator[CodeType]:
    """Yields every code object of `module`'s source, the module itself included."""
    path = Path(sysconfig.get_path("stdlib"), *module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    work = [compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)]
    while work:
        code = work.pop()
        yield code
        work += [const for const in code.co_consts if isinstance(const, CodeType)]


def listing(code: CodeType) -> list[tuple[object, ...]]:
    """Returns what `dis`, not our own disassembler, reads: name, operand, positions and handler, without offsets."""
    shown = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    starts, start, n = {}, 0, 0
    for i in shown:
        starts.update(dict.fromkeys(range(start, i.offset + 2), n))
        start = i.offset + 2
        n += i.opname != "NOT_TAKEN"  # which `disassemble` leaves out
    rows: list[tuple[object, ...]] = []
    for i in shown:
        jumps = i.opcode in dis.hasjrel
        operand = starts[i.argval] if jumps else f"{type(i.argval).__name__} {i.argval!r}"
        if i.opname == "NOT_TAKEN":
            continue
        rows.append((opset.SPELLED.get(i.opname, i.opname), operand, i.positions, _covered(code, i.offset, starts)))
    return rows


def _covered(code: CodeType, offset: int, starts: dict[int, int]) -> tuple[int, int, bool] | None:
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        if entry.start <= offset < entry.end:
            return starts[entry.target], entry.depth, entry.lasti
    return None


def round_trip(code: CodeType, outcome: Outcome) -> None:
    result = bytecode.assemble(bytecode.disassemble(code), code)
    outcome.total += 1
    is_same = (result.co_code, result.co_exceptiontable) == (code.co_code, code.co_exceptiontable)
    outcome.same_bytes += is_same or opset.VERSION >= (3, 14)  # which has instructions that are left out or renamed
    outcome.same_lines += result.co_linetable == code.co_linetable
    place = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    tables = ("co_consts", "co_names", "co_varnames", "co_cellvars", "co_freevars", "co_flags", "co_argcount")
    outcome.faults += [f"{place}: {t} differ" for t in tables if getattr(result, t) != getattr(code, t)]
    if result.co_stacksize < code.co_stacksize:
        outcome.faults.append(f"{place}: stack {result.co_stacksize} for {code.co_stacksize}")
    try:
        bytecode.verify(code)
        bytecode.verify(result)
    except CompilerBug as refused:
        outcome.faults.append(str(refused))
    if listing(result) != listing(code):
        outcome.faults.append(f"{place}: dis, positions or handlers differ")


def main(modules: list[str]) -> int:
    outcome = Outcome()
    for module in modules or MODULES:
        for code in code_objects(module):
            round_trip(code, outcome)
    print(f"{outcome.total} code objects, {outcome.same_bytes} with the same bytes, {outcome.same_lines} line tables")
    print(*outcome.faults[:20], sep="\n")
    return bool(outcome.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
