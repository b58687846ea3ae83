"""The answers that a record has, as lines of text: where compiling took the time, which caches missed, where values
first differ.

Each function yields lines, the first one without indentation; nothing if there is nothing to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from compiler_core.records import Compile, Frame, ItemId, Record
from compiler_core.records.capture import library_of
from compiler_core.records.timings import bytes_text, plural, time_text
from compiler_core.records.user_lines import ItemLines
from compiler_core.tools.questions.costs import FunctionCost, function_costs
from compiler_core.tools.questions.memory import TRIED_MEMORY, highest_peak
from compiler_core.tools.questions.queries import first_inaccurate

SLOW_NS = 1_000_000_000
"""Compiling that takes longer has its functions, stages and lines listed."""
MAX_FUNCTIONS = 3
MAX_STAGES = 4
MAX_LINES = 3
MAX_HELD = 5
KINDS = {"result": "a result", "saved": "saved for the backward"}
MIN_SHARE = 0.05
"""The share of the whole time below which a function, and of a function's time below which a line, is not listed."""


def answer_lines(record: Record) -> Iterator[str]:
    """Yields the answers of a record that has any."""
    yield from _time_lines(record)
    yield from _cache_lines(record)
    yield from memory_lines(record)
    yield from _value_lines(record)


def _time_lines(record: Record) -> Iterator[str]:
    costs = function_costs(record)
    total = sum(cost.ns for cost in costs)
    if total < SLOW_NS:
        return
    yield f"compiling took {time_text(total / 1e9)}:"
    for cost in [each for each in costs if each.ns >= MIN_SHARE * total][:MAX_FUNCTIONS]:
        yield from (f"  {line}" for line in _function_lines(record, cost))


def _function_lines(record: Record, cost: FunctionCost) -> Iterator[str]:
    stages = ", ".join(f"{stage} {time_text(ns / 1e9)}" for stage, ns in cost.stages[:MAX_STAGES])
    compiles = f" in {cost.compiles} compiles" if cost.compiles > 1 else ""
    yield f"{_frame(record, cost.frame)}: {time_text(cost.ns / 1e9)}{compiles}, of these {stages}"
    compile_ = next(iter(cost.frame.compiles), None)
    for line, ns in [each for each in cost.lines if each[1] >= MIN_SHARE * cost.ns][:MAX_LINES]:
        yield f"  {time_text(ns / 1e9)} to capture and to trace {_users_line(record, compile_, line)}"


def _cache_lines(record: Record) -> Iterator[str]:
    """Counts the outcomes of each cache, and names why graphs are not cached."""
    lookups = [lookup for compile_ in record.compiles for lookup in compile_.cache_lookups]
    outcomes: dict[str, Counter[str]] = {}
    for lookup in lookups:
        outcomes.setdefault(lookup.cache, Counter())[lookup.outcome] += 1
    texts = [
        f"{cache} {', '.join(f'{number} {_outcome(outcome, number)}' for outcome, number in found.items())}"
        for cache, found in outcomes.items()
    ]
    if texts:
        why = " (cutaway diff EARLIER.json THIS.json says why)" if any(c["miss"] for c in outcomes.values()) else ""
        yield f"caches: {'; '.join(texts)}{why}"
    reasons = Counter(f"{lookup.cache}: {lookup.reason}" for lookup in lookups if lookup.reason)
    yield from (f"  {reason}" for reason, _ in reasons.most_common(MAX_LINES))


def _outcome(name: str, number: int) -> str:
    if name == "not cached" or number == 1:
        return name
    return {"hit": "hits", "miss": "misses"}[name]


def memory_lines(record: Record) -> Iterator[str]:
    """Shows the compile with the highest peak: what it holds then, the largest first.

    With a backend that the record has no memory plan of, it is what the forward leaves.
    """
    peak = highest_peak(record)
    if peak is None:
        return
    run, frame = ItemLines(record), next(each for each in record.frames if each.id == peak.compile.frame)
    which = "backward (if it runs)" if peak.which == "backward" else "forward"  # a record has no calls of backwards
    when = f"at its peak, step {peak.step} of the {which}" if peak.is_peak else "at the end of the forward"
    yield f"memory: {when} of {peak.compile.id}, {_frame(record, frame)} holds {bytes_text(peak.bytes)}:"
    kinds = KINDS | {"intermediate": f"an intermediate value of the {peak.which}"}
    owners: Counter[str] = Counter()
    for held in peak.held:
        file, number = run.line_of(held.node)
        line = record.line(file, number) if number else None
        what = f"{held.owner}, {kinds[held.kind]}" if held.owner else kinds[held.kind]
        owners[f"{what}, made at {_users_line(record, peak.compile, line)}" if line else what] += held.bytes
    listed = owners.most_common(MAX_HELD)
    yield from (f"  {bytes_text(size)}: {owner}" for owner, size in listed)
    if rest := peak.bytes - sum(size for _, size in listed):
        yield f"  {bytes_text(rest)}: {len(owners) - len(listed)} more"
    if 2 * peak.saved_bytes >= peak.bytes and not any(note.startswith(TRIED_MEMORY) for note in record.notes):
        yield "  most of it is saved for the backward: --try-advice (%%compile, cutaway run) tries to save less"
    if peak.inputs:
        named = ", ".join(f"{name} {bytes_text(size)}" for name, size in peak.inputs[:MAX_HELD])
        more = f" and {len(peak.inputs) - MAX_HELD} more" if len(peak.inputs) > MAX_HELD else ""
        yield f"  besides, its inputs take {bytes_text(sum(size for _, size in peak.inputs))}: {named}{more}"


def _value_lines(record: Record) -> Iterator[str]:
    """Shows the first value with an error of a kernel's, else the first with one of its precision."""
    checked = sum(len(compile_.accuracy) for compile_ in record.compiles)
    if not checked:
        return
    found = [first for c in record.compiles if c.accuracy and (first := first_inaccurate(c))]
    if not found:
        yield f"{checked} {plural('value', checked)} compared with float64, on random inputs: none has a large error"
        return
    first = min(found, key=lambda each: each.is_eagers)
    each = first.accuracy
    whose = "eager PyTorch has it, too: the precision is too low" if first.is_eagers else "the kernel's own"
    yield f"the first value with a large error on random inputs, {whose}:"
    if first.lines:
        yield f"  {_line(record, first.lines[0])}"
    if text := record.line_text(first.node):
        yield f"  {text}"
    if each.value:
        where = f" at {each.index}" if each.index else ""
        of = f" in {each.node.rpartition('#')[2]}, which the kernel computes from it" if first.node != each.node else ""
        yield f"  {each.value} in place of {each.expected}{where}{of}"
    error, eager = ("not finite" if e is None else f"{e:.1e}" for e in (each.error, each.eager))
    yield f"  the error is {error} of the largest element, eager PyTorch's {eager}"


def _frame(record: Record, frame: Frame) -> str:
    resumes = f", after the graph break of {frame.resumes}" if frame.kind == "resume" and frame.resumes else ""
    caller = next((each.caller for each in frame.compiles if each.caller), None)
    if caller is not None and library_of(frame.filename):
        return f"{_file(record, caller.filename)}:{caller.lineno} (calls {frame.title}){resumes}"
    return f"{_file(record, frame.filename)}:{frame.line} {frame.name}{resumes}"


def _file(record: Record, filename: str) -> str:
    return record.labels.get(filename) or filename


def _users_line(record: Record, compile_: Compile | None, item: ItemId) -> str:
    """Returns a line; for one of a library, the user's line that calls it."""
    caller = compile_.caller if compile_ else None
    file = next((source.name for source in record.sources if source.id == item.rpartition("#")[0]), "")
    if caller is None or not library_of(file):
        return _line(record, item)
    return f"{_file(record, caller.filename)}:{caller.lineno}: {caller.text.strip()}"


def _line(record: Record, item: ItemId) -> str:
    """Returns a line of the user's with its file and number, and its text."""
    artifact, _, number = item.rpartition("#")
    filename = next((source.name for source in record.sources if source.id == artifact), "")
    return f"{_file(record, filename)}:{number}: {record.line_text(item)}"
