"""Finds and grades the problems of a record: the only place that counts them."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from compiler_core.records.artifacts import Failure, ItemId
from compiler_core.records.capture import (
    BODY_IS_COMPILED,
    BODY_OF_LOOP,
    CALL_OUTSIDE,
    IF_IT_RAISES,
    NO_CHANGE,
    NO_CHANGE_KNOWN,
    NOTHING_CAPTURED,
    RECOMPILE_LIMIT,
    STEP_HINTS,
    WHOLE_STEP,
    BreakReason,
    GraphBreak,
    StackLine,
    is_around_call,
    library_of,
    users_line,
)
from compiler_core.records.differences import AdviceTrial
from compiler_core.records.problems import GRADES, SLOW_COMPILE_S, Grade, Part, Problem, ProblemKind
from compiler_core.records.recompiles import NOTHING_YET, FailedGuard, Recompile, has_generated_name, readable
from compiler_core.records.record import Compile, Frame, Record
from compiler_core.records.timings import time_text
from compiler_core.tools.questions.advice import (
    DYNAMIC,
    FROM_PYTORCH,
    NOTHING_TO_CHANGE,
    NUMPY_NUMBERS,
    PROVEN,
    UNCHANGED,
    Situation,
    advice_after,
    checked_text,
    differences_to_avoid,
    remedies,
    sentences,
    shown_name,
    subject_of_change,
    values_over_time,
    what_changed,
)
from compiler_core.tools.questions.changed_nodes import changed_nodes
from compiler_core.tools.questions.conditions import condition_text, is_of_all_compiles
from compiler_core.tools.questions.memory import is_view
from compiler_core.tools.questions.needed_values import (
    decides_by,
    function_lines,
    is_compared,
    needs_number,
    parameters,
    variables_of_loops,
)
from compiler_core.tools.questions.what_failed import what_failed
from compiler_core.tools.stack_values import calls_are_nested, passed_alone, statement_of

_ASKED_FOR = frozenset[BreakReason]({"asked for"})
"""Reasons of breaks that the program asks for."""
_COMPUTES_NOTHING = frozenset[BreakReason]({"tensor value read", "print", "requires_grad"})
"""Reasons of breaks at which nothing is computed that a graph could hold, or only a new tensor."""
_BRANCHES = frozenset[BreakReason]({"data-dependent branch"})
"""Reasons of breaks after which it depends on values what is computed."""
_CALLS = frozenset[BreakReason]({"skipped function", "unsupported call"})
"""Reasons of breaks at calls of functions, which may themselves compute what a graph could hold."""
_SETS_SOMETHING = re.compile(
    r"(?:torch|random|np|numpy)(?:\.\w+)*\.(?:manual_seed|manual_seed_all|seed|set_\w+|use_deterministic_algorithms)\("
)
"""Calls that set a state of the process, and compute nothing."""
_OF_THE_CALL = frozenset[BreakReason](
    {
        "distribution check",
        "checkpoint",
        "packed sequence",
        "requires_grad",
        "custom operator",
        *_ASKED_FOR,
        *NO_CHANGE,
    }
)
"""Reasons whose advice is on how the user's code calls a library."""
_Key = tuple[str, str, int, str, int]
MIN_REGIONS = 3
"""The fewest calls of `compile` for one function that are a problem, if all compile it to the same code."""
MIN_REPEATS = 8
"""The fewest equal blocks that are worth compiling once."""
_VERY_SLOW = 5
"""How many times longer than a slow compile one takes that is a problem without a trial."""
_IF_TOO_LONG = "Only if that is too long: "
_RUNS = (1, 4, 16, 64)
"""The lengths of the runs of targets whose distances may be the length of a block."""
_DISTANCES = 8
"""How many lengths of a block are tried, for each of them."""
_CONSEQUENCE = (
    "Nothing to change here: it is about a value that the graph break before it leaves, and goes with that break."
)
_OF_BROKEN_CALL = (
    "Nothing to change here: Python calls this function of a library since the line has a graph break, and this one "
    "goes with that one."
)
_MORE_BREAKS = "{} more graph {} in what this line calls."
HINT = "hint"
"""The part of the advice on a graph break that is the hint for its kind."""
STEP = "step"
"""The part of the advice on a graph break of a step of training that keeps the whole step in the graph."""
LOOP = "loop"
"""The part of the advice on a graph break that is for the loop that it is in."""
_ONE_OPERATION = (
    "Make these views with one operation: `x.unfold(dim, size, step)` for windows, `x.split(size, dim)` or "
    "`x.view(...)` for parts without overlap, `x[:, index]` with a tensor of indices for others."
)
BLOCKS = "blocks"
"""The part of the advice on a slow compile that compiles the repeated block."""
_IF_IT_STAYS = "If the graph break stays, move the body of the loop into a function: it is compiled by itself."
_HELD_ACROSS = (
    "Nothing to change here: {} is made again in each call and held across the graph break in its line, and goes with "
    "that break."
)
_ANOTHER_ITEM = (
    "Nothing to change here: each round of the loop has another {}, and Python runs the loop since it has a graph "
    "break.  Each class is compiled once."
)
_CARRIED = "Nothing to change here: the rounds of a loop pass {} on, and each case is compiled once."
_OF_ROUNDS = (
    "Nothing to change: a comparison holds for `{}` in some rounds of a loop only, and both cases are compiled once."
)
_OTHER_MODULE = (
    "Nothing to change if it is another module of this class: those with parameters of other sizes are compiled "
    "separately, each size once.  If the parameters of one module grow, give them their last size before the first "
    "call."
)
_NO_TENSORS = "Nothing to change: this function computes nothing with tensors."
_RAISES = "Nothing to change: this compile is for calls in which the program raises."
_RAISED_BEFORE = "Nothing to change: compile {} is for calls in which the program raises, and this one for others."
_ENDED_BY = "Nothing to change here: the {} in line {} ended this compile."
_ENDED_EARLY = "Nothing to change: this compile ended early, for another reason."
_NO_MORE = (
    "Nothing to change if the compiles cover all other calls: this call computes nothing with tensors, and PyTorch "
    "compiles no more calls of the function after one that does not.  Others run as plain Python.  To have them "
    "compiled, decide outside of the compiled function whether there is anything to compute, and call it only then."
)
_NOTHING_FROM_HERE = "Nothing to change: no tensor is computed from here on."
_OF_MEMORY = frozenset({"stride", "storage offset"})
"""What of a tensor only operations use: a line that reads its shape does not."""
_OF_TENSORS = frozenset({"dtype", "device", "requires_grad", "rank", "size", "dispatch keys"})
_CARRIED_ASPECTS = frozenset({"class", "dtype", "requires_grad", "rank"})
_MOVE_READER = (
    "Move this line into a separate function, and pass it what it needs: then only that function runs as Python."
)
_REMOVE_RECOMPILES = "Remove the recompiles of this function: each is a problem that says what changed."
_REWRITE = "Nothing, unless the line must be fast: then write it in another way."
_REPORT = "Report it with the record: %%compile --save record.json writes it; --strict raises the error itself."


def break_id(compile_: Compile, break_: GraphBreak) -> str:
    """Returns the id of a graph break, unique in its record."""
    return f"{compile_.id}#{break_.key}"


def find_problems(record: Record, slow_compile_s: float = SLOW_COMPILE_S) -> list[Problem]:
    """Returns the problems of a record, the worst grade first and in the order in which they occurred.

    What came of trying their advice is kept.  A compile of repeated blocks is slow if it took `slow_compile_s` seconds.
    """
    charged: set[int] = set()
    divided = _DividedGraphs(record)
    slow_ns = slow_compile_s * 1e9
    of_frames = (p for frame in record.frames for p in _of_frame(record, frame, divided, charged, slow_ns))
    found = list(_merged(itertools.chain(of_frames, _compiled_anew(record))))
    _tell_apart(found)
    tried = {_identity(problem): problem.tried for problem in record.problems}
    for problem in found:
        conclude(problem, tried.get(_identity(problem), []))
    compiles = {compile_.id: compile_ for compile_ in record.compiles}
    for problem in found:
        if problem.kind == "graph break":
            problem.compiles.sort(key=lambda id_: not _is_in_own_code(problem, compiles[id_]))
    return sorted(found, key=lambda p: GRADES.index(p.grade))


def _tell_apart(problems: Sequence[Problem]) -> None:
    """Adds what is called to the causes of graph breaks that read alike in one line."""
    alike: dict[tuple[str, int, str], list[Problem]] = {}
    for problem in (each for each in problems if each.kind == "graph break"):
        alike.setdefault((problem.filename, problem.lineno, problem.cause), []).append(problem)
    for problem in (each for group in alike.values() if len(group) > 1 for each in group):
        problem.cause += f"  It is `{min(problem._causes)}`."


def _is_in_own_code(problem: Problem, compile_: Compile) -> bool:
    """Whether the line of a break is in the function that was compiled, and not in one that it calls."""
    return any(b.place is b.stack[0] and b.place.lineno == problem.lineno for b in compile_.breaks if b.stack)


def conclude(problem: Problem, tried: list[AdviceTrial]) -> None:
    """Notes what came of trying the advice on a problem; its `advice` and `checked` follow from it."""
    problem.tried = tried
    is_slow = problem.kind == "slow compile" and any(trial.outcome == "helps" for trial in tried)
    if is_slow and problem.grade == "expected":
        problem.grade, problem.advice = "costly", problem._parts[BLOCKS].text
    if any(trial.is_refuted and trial.remedies for trial in tried):
        problem.advice = advice_after(problem._parts, tried)
    if tried or problem._proof is not None:
        problem.checked = checked_text(tried, problem._proof or "", _how_to_try(problem))


def _how_to_try(problem: Problem) -> str:
    """Returns how a reader tries the advice, where that takes no other program."""
    lines = f"before each call `{'; '.join(problem.lines)}`" if problem.lines and problem._has_names else ""
    ways = [
        "`dynamic=True`" if DYNAMIC.intersection(problem.remedies) else "",
        "`capture_backward=True`" if STEP in problem._parts else "",
        lines,
    ]
    return f"To try it: {', or '.join(filter(None, ways))}." if any(ways) else ""


def _identity(problem: Problem) -> tuple[str, ...]:
    """Returns what problems have in common that are counted as one."""
    place = (problem.filename, str(problem.lineno))
    return (problem.title, *place, *_place_and_advice(problem), *problem.breaks[:1])


def _place_and_advice(problem: Problem) -> tuple[str, ...]:
    if problem._library:  # the user's line is all that the user can change
        return (problem.kind, problem._library, problem.filename, str(problem.lineno))
    if problem.kind == "recompile":  # what changed may be read in several lines
        return (problem.kind, problem.compiles[0].partition("/")[0], *sorted(problem.remedies))
    cause = problem.cause if problem.kind == "failure" else problem.behind
    title = problem.title if problem.kind == "graph break" else ""
    return (problem.kind, title, problem.filename, str(problem.lineno), cause, *sorted(problem.remedies))


def _merged(found: Iterable[Problem]) -> Iterator[Problem]:
    """Yields problems, each once.

    Recompiles are one problem if they have a cause in common, whichever of their causes comes first, and those of the
    rest after a graph break go with those before it that have the same cause and the same advice.
    """
    groups: dict[tuple[str, ...], list[list[Problem]]] = {}
    first_of: dict[str, Problem] = {}
    after_breaks: dict[int, dict[str, None]] = {}
    for problem in found:
        before = next((first_of[id_] for id_ in problem._follows if id_ in first_of), None)
        if before is not None and before.grade == problem.grade and _is_remedied(problem, before):
            before.compiles += problem.compiles
            before.count += problem.count
            before.ns += problem.ns
            first_of |= dict.fromkeys(problem.compiles, before)
            after_breaks.setdefault(id(before), {})[f"{problem._changed} in line {problem.lineno}"] = None
            continue
        first_of |= dict.fromkeys(problem.compiles if problem.kind == "recompile" else [], problem)
        here = groups.setdefault(_place_and_advice(problem), [])
        of_it = [group for group in here if any(_causes(each) & _causes(problem) for each in group)]
        if of_it:
            of_it[0] += [*(each for group in of_it[1:] for each in group), problem]
            here[:] = [group for group in here if not any(group is other for other in of_it[1:])]
        else:
            here.append([problem])
    for first, *rest in (group for here in groups.values() for group in here):
        for again in rest:
            first.compiles += again.compiles
            first.breaks += again.breaks
            first.count += again.count
            first.ns += again.ns
            worse = GRADES.index(first.grade) - GRADES.index(again.grade)
            if first.remedies == again.remedies == ["dynamic sizes"]:  # of other dimensions
                again.lines = list(dict.fromkeys([*first.lines, *again.lines]))
            if worse > 0 or (worse == 0 and first.kind != "graph break"):
                if first._changed != again._changed or again.behind:  # it may be read, or passed in, elsewhere
                    first.filename, first.lineno, first.line = again.filename, again.lineno, again.line
                    first._changed, first.behind = again._changed, again.behind
                first.title, first.cause, first.advice = again.title, again.cause, again.advice or first.advice
                first.compiles = list(dict.fromkeys([*again.compiles, *first.compiles]))
                first.breaks = list(dict.fromkeys([*again.breaks, *first.breaks]))
                first.remedies, first.lines = again.remedies or first.remedies, again.lines or first.lines
                first._parts, first._proof = again._parts, again._proof
                first.grade = again.grade
        others = len({each.behind for each in rest if each._library} - {first.behind})
        if first.kind == "graph break":
            others += len(frozenset[str]().union(*map(_causes, rest)) - _causes(first))
        if others:
            first.cause += f"  {_MORE_BREAKS.format(others, 'break is' if others == 1 else 'breaks are')}"
        later = dict.fromkeys(line for each in [first, *rest] for line in after_breaks.get(id(each), ()))
        if later:
            first.cause += f"  What follows graph breaks is compiled again, too: {', '.join(later)}."
        first.cost = _cost(first)
        yield first


def _is_remedied(problem: Problem, by: Problem) -> bool:
    """Whether what is advised on one recompile is all that another needs."""
    return set(problem.remedies) - set(by.remedies) <= NOTHING_TO_CHANGE and bool(by.remedies) == bool(problem.remedies)


def _causes(problem: Problem) -> frozenset[str]:
    return frozenset({problem._library}) if problem._library else problem._causes or frozenset({problem.title})


def _cost(problem: Problem) -> str:
    took = time_text(problem.ns / 1e9) if problem.ns else ""
    if problem.kind == "recompile":
        times = "once" if problem.count == 1 else f"{problem.count} times"
        return f"Compiled again {times}, in {took}." if took else f"Compiled again {times}."
    if problem.kind == "graph break":
        # what follows an expected break is compiled in any case
        return f"What follows is compiled separately, in {took}." if took and problem.grade != "expected" else ""
    if problem.kind == "no CUDA graph":
        return "Its kernels are launched one by one, as in the default mode."
    if problem.kind == "slow compile":
        return f"It took {took} to compile."
    return f"{took} of compile time had no effect." if took and problem.grade == "blocking" else ""


# ---- one frame ---------------------------------------------------------------------------------


def _of_frame(
    record: Record, frame: Frame, divided: _DividedGraphs, charged: set[int], slow_ns: float
) -> Iterator[Problem]:
    """Yields the problems of one frame.

    `charged`: frames of resume functions whose time was charged to a break already.
    """
    if frame.skipped and (frame.calls or frame.compiles) and _skipping_break(frame) is None:
        yield _plain_python(record, frame)
    for compile_ in frame.compiles:
        at_frame = _Place.of_frame(record, frame, compile_)
        yield from (_failure(record, compile_, failure) for failure in compile_.failures)
        if _raised_error(record, compile_):
            yield _raised(record, compile_, at_frame)
        yield from (_graph_break(record, frame, compile_, each, divided, charged) for each in compile_.breaks)
        if compile_.cause and not _is_reported(frame, compile_, compile_.cause):
            yield _recompile(record, frame, compile_, compile_.cause, divided)
        for graph in compile_.cuda_graphs:
            if graph.reason:
                title = f"no CUDA graph of the {graph.graph}"
                cause = _ended(f"{graph.reason[:1].upper()}{graph.reason[1:]}")
                yield at_frame.problem("no CUDA graph", "costly", title, cause, compile_)
        if compile_.duration_ns >= slow_ns:
            grade: Grade = "costly" if compile_.duration_ns >= _VERY_SLOW * slow_ns else "expected"
            yield from _repeated_blocks(record, compile_, at_frame, grade)
        yield from _changed_graph(record, compile_, at_frame)


def _is_past_limit(compile_: Compile) -> bool:
    """Whether stock refused a compile since the function had as many as the limit allows."""
    return any(break_.kind == RECOMPILE_LIMIT for break_ in compile_.breaks)


def _is_reported(frame: Frame, compile_: Compile, cause: Recompile) -> bool:
    """Whether a compile past the limit was asked for by what other recompiles of its function were made for."""
    earlier = [each.cause for each in frame.compiles if each is not compile_ and each.cause is not None]
    return _is_past_limit(compile_) and any(_subject(each) == _subject(cause) for each in earlier)


def _skipping_break(frame: Frame) -> GraphBreak | None:
    """Returns the graph break for which a frame runs as plain Python; None if it runs otherwise or for another
    reason."""
    last = frame.compiles[-1] if frame.compiles else None
    return last.breaks[-1] if frame.skipped and last and last.outcome == "skipped" and last.breaks else None


def _plain_python(record: Record, frame: Frame) -> Problem:
    last = frame.compiles[-1] if frame.compiles else None
    advice = _MOVE_READER if frame.skipped_line else ""
    if record.engine == "torch" and last is not None and last.outcome == "skipped":
        advice = (
            "If later calls compute with tensors, decide outside of the compiled function whether there is anything to "
            "compute, and call it only then."
        )
    place = _Place.of_frame(record, replace(frame, line=frame.skipped_line or frame.line), last)
    title = f"{frame.title} runs as plain Python"
    problem = place.problem("plain Python", "costly", title, frame.skipped, last, advice)
    problem._proof = PROVEN if frame.skipped_line else "" if advice else None
    return problem


def _repeated_blocks(record: Record, compile_: Compile, place: _Place, grade: Grade) -> Iterator[Problem]:
    """Yields a problem if a compile took long because its graph has a block of operations many times.

    It is shown at the block's first line, if that is the user's, else at the function's.  If it is expected, a trial
    that helps makes it costly.
    """
    captured = next(iter(compile_.captured_graphs), None)
    nodes = [n for n in captured.graph.nodes if n.op.startswith("call_")] if captured and captured.graph else []
    targets = [f"{node.target} {node.dtype}{node.shape}" for node in nodes]  # others are compiled for other sizes
    length, repeats, start = repeated_block(targets)
    if repeats < MIN_REPEATS or 2 * length * repeats < len(targets):
        return
    operations = "1 operation" if length == 1 else f"{length} operations"
    cause = (
        f"Its graph has {repeats} equal blocks of {operations} in a row, {length * repeats:,} of {len(targets):,} "
        "operations, and each of them is compiled."
    )
    api = "torch" if record.engine == "torch" else "compiler_core"
    # our `compile` compiles each module by itself, and stock's `module.compile()` nothing of PyTorch's own classes
    advice = (
        "Compile the repeated block in place of the whole: the class of a module by "
        f"`Block.forward = {api}.compile(Block.forward)`, or the function that the loop calls; if it is in neither, "
        "move it into a function.  It is compiled once and used for each repetition."
    )
    parts = {BLOCKS: Part(advice)}
    if all(is_view(node.target) for node in nodes[start : start + length]):
        # a call of a compiled function takes longer than making a view, and gives another graph nothing to fuse
        parts, advice = {}, _ONE_OPERATION
    title = "the same block is compiled many times"
    block = {captured.item(node.key) for node in nodes[start : start + length]} if captured else set()
    sources = [source for edge in compile_.edges if edge.made in block for source in edge.sources]
    of_user = [line for line in _lines(record, sources) if line.filename and not line.library]
    place = _Place.of_stack(record, compile_, of_user[:1]) if of_user else place
    advice = advice if grade == "costly" else f"{_IF_TOO_LONG}{advice}"
    problem = place.problem("slow compile", grade, title, cause, compile_, advice, ns=compile_.duration_ns)
    problem._parts |= parts
    problem._proof = PROVEN
    yield problem


def _compiled_anew(record: Record) -> Iterator[Problem]:
    """Yields a problem for each function that several calls of our `compile` have compiled, all to the same code."""
    groups: dict[tuple[str, int, str, str], list[tuple[Frame, Compile]]] = {}
    for frame in record.frames if record.engine == "core" else []:
        for compile_ in frame.compiles if frame.kind == "root" else []:
            if compile_.outcome == "compiled" and compile_.captured_graphs:
                texts = "\n".join(artifact.text for artifact in compile_.artifacts)
                made = texts.replace(f"graph_{compile_.id.replace('/', '_')}", "graph")
                groups.setdefault((frame.filename, frame.line, compile_.backend, made), []).append((frame, compile_))
    for (frame, _), *again in groups.values():
        regions = len({each.id for each, _ in again} - {frame.id}) + 1
        if regions < MIN_REGIONS:
            continue
        cause = f"{regions} calls of compile have compiled {frame.title}, each for itself and all to the same code."
        advice = (
            "Call compile once, before the loop, and call what it returns.  For modules of one class, compile the "
            "class: `Block.forward = compiler_core.compile(Block.forward)`."
        )
        compiles = [compile_ for _, compile_ in again]
        place = _Place.of_frame(record, frame, compiles[0])
        took = sum(each.duration_ns for each in compiles)
        title = "the same function is compiled again and again"
        problem = place.problem("slow compile", "costly", title, cause, compiles[0], advice, ns=took)
        problem.compiles = [each.id for each in compiles]
        problem._proof = PROVEN
        yield problem


def repeated_block(targets: Sequence[str]) -> tuple[int, int, int]:
    """Returns the length of the block that fills most of `targets` by repetition in a row, its repetitions, and where
    the first one starts.

    All are 0 if nothing is repeated.  Only the most common distances between equal runs of targets are tried as
    lengths: a long run is there once in a block, whose single targets may be there several times.
    """
    lengths = set[int]()
    for size in _RUNS:
        latest: dict[tuple[str, ...], int] = {}
        distances: Counter[int] = Counter()
        for at in range(len(targets) - size + 1):
            run_of_targets = tuple(targets[at : at + size])
            if run_of_targets in latest:
                distances[at - latest[run_of_targets]] += 1
            latest[run_of_targets] = at
        lengths |= {length for length, _ in distances.most_common(_DISTANCES)}
    best = (0, 0, 0)
    for length in sorted(lengths):
        run = 0
        for at in range(length, len(targets)):
            run = run + 1 if targets[at] == targets[at - length] else 0
            repeats = run // length + 1
            if repeats > 1 and (repeats * length, -length) > (best[0] * best[1], -best[0]):
                best = (length, repeats, at - run - length + 1)
    return best


def _changed_graph(record: Record, compile_: Compile, place: _Place) -> Iterator[Problem]:
    """Yields a problem, which is expected, if a pass or a backend of the user changed the captured graph."""
    if compile_.changes:
        listed = ", ".join(dict.fromkeys(compile_.changes))
        cause = f"What runs is not the captured graph: the pane Passes has the graph after {listed}."
        changed = [node for name in dict.fromkeys(compile_.changes) for node in changed_nodes(record, compile_, name)]
        cause = "\n".join([cause, *(node.text for node in changed)])
        of_user = [line for line in _lines(record, [node.line for node in changed]) if not line.library]
        place = _Place.of_stack(record, compile_, of_user[:1]) if of_user else place
        yield place.problem("changed graph", "expected", "a pass or backend changed the graph", cause, compile_)


def _raised_error(record: Record, compile_: Compile) -> bool:
    """Whether a compile of stock ended with an error that is no graph break."""
    is_failed = record.engine == "torch" and compile_.outcome == "failed" and not compile_.failures
    return is_failed and not compile_.is_broken


def _raised(record: Record, compile_: Compile, at_frame: _Place) -> Problem:
    place = _Place.of_stack(record, compile_, [compile_.raised_at]) if compile_.raised_at else at_frame
    cause, _, hint = compile_.reason.partition("\n\n")[0].partition("\n  Hint: ")
    cause = cause.replace("\n  Explanation: ", ".  ")
    problem = place.problem("failure", "blocking", "the compile raised an error", cause, compile_, hint.strip())
    problem._proof = FROM_PYTORCH if hint else None
    return problem


def _failure(record: Record, compile_: Compile, failure: Failure) -> Problem:
    grade: Grade = "costly" if failure.kind == "refusal" else "blocking"
    cause = "\n".join(filter(None, [failure.message.partition("\n")[0], failure.meaning]))
    advice = {"bug": _REPORT, "refusal": _REWRITE}.get(failure.kind, "")
    lost_ns = compile_.duration_ns if compile_.outcome != "compiled" else 0
    at = StackLine(failure.filename, failure.lineno, "", "", failure.line)
    place = _Place.of_stack(record, compile_, [at] if at.lineno else [])
    return place.problem("failure", grade, _failure_title(failure), cause, compile_, advice, ns=lost_ns)


def _failure_title(failure: Failure) -> str:
    has_run = failure.stage == "run"
    if failure.kind == "tool":
        return "kernels cannot be built"
    if failure.kind == "refusal":
        return "not done" if has_run else "not compiled"
    if failure.kind == "pass":
        return "graph pass not applied"
    if failure.kind == "backend":
        return "the backend's result raised" if has_run else "the backend raised"
    return "failed as it ran" if has_run else f"failed in {failure.stage}"


_Verdict = tuple[bool, Grade, str]
"""A condition, and the grade and the advice of a problem for which it holds."""


def _first(verdicts: Sequence[_Verdict]) -> tuple[Grade, str]:
    """Returns the grade and the advice of the first verdict whose condition holds."""
    return next((grade, advice) for holds, grade, advice in verdicts if holds)


def _graph_break(
    record: Record, frame: Frame, compile_: Compile, break_: GraphBreak, divided: _DividedGraphs, charged: set[int]
) -> Problem:
    library = break_.stack[-1].library if break_.stack else ""
    goes_with_call = divided.goes_with_call(compile_)
    needs_no_change = break_.reason in _ASKED_FOR or break_.reason in NO_CHANGE or break_.hint == BODY_IS_COMPILED
    advice = NO_CHANGE.get(break_.reason, break_.hint)
    if break_.kind == RECOMPILE_LIMIT:
        advice = _REMOVE_RECOMPILES
    is_of_library = bool(library) and break_.reason not in _OF_THE_CALL
    if is_of_library:
        advice = CALL_OUTSIDE  # a hint would be on the library's own statement
    is_hint = advice in (break_.hint, CALL_OUTSIDE) and advice not in ("", NO_CHANGE_KNOWN)
    parts = {HINT: Part(advice)}
    is_step = break_.hint == STEP_HINTS.get(break_.reason) and not goes_with_call
    if is_step:
        parts[STEP], advice = Part(WHOLE_STEP), break_.hint
    in_loop = break_.in_loop or (break_.statement == "For" and compile_.is_broken)
    in_loop = in_loop and len(break_.stack) == 1 and break_.reason != "exception"
    if in_loop:
        parts = {} if needs_no_change or not break_.hint else parts
        if break_.hint != BODY_OF_LOOP:
            parts[LOOP] = Part(_IF_IT_STAYS if parts else BODY_OF_LOOP)
        advice = "  ".join(part.text for part in parts.values() if part.text)
    raised = compile_.is_broken and break_ is compile_.breaks[-1] and break_.reason != "exception"
    why_harmless = "" if in_loop else divided.why_harmless(break_)
    for_whole = f"  For fullgraph=True: {advice}" if advice else ""
    harmless = f"Nothing to change: {why_harmless}, so it divides no graph.{for_whole}"
    is_consequence = break_.is_consequence or divided.enters_what_a_break_made(frame, break_)
    # what was given to the compiler is itself disabled: a function of PyTorch's is around its call
    is_disabled = break_.reason in _ASKED_FOR and frame.kind == "root" and library_of(frame.filename) == "torch"
    verdicts: tuple[_Verdict, ...] = (
        (goes_with_call, "expected", _OF_BROKEN_CALL),
        (is_disabled, "costly", advice),
        (raised and not break_.is_consequence, "blocking", advice),
        (needs_no_change and not in_loop, "expected", advice),
        (bool(why_harmless), "expected", harmless),
        (is_consequence, "expected", _CONSEQUENCE),
        (True, "costly", advice),
    )
    grade, advice = _first(verdicts)
    shows_hint = break_.hint in advice if break_.hint else grade != "expected"
    if break_.link and shows_hint and break_.reason not in NO_CHANGE:
        advice = f"{advice}\nMore about it: {break_.link}".lstrip()
    resumed = [c for f in record.frames if f.id in set(break_.resumes) - charged for c in f.compiles]
    charged.update(break_.resumes)
    place = _Place.of_stack(record, compile_, break_.stack)
    place = place._replace(library="") if is_disabled else place  # the advice is on the user's code
    cause, whole = readable(break_.explanation), f"{'the rest of ' if frame.kind == 'resume' else ''}{frame.title}"
    if break_ is _skipping_break(frame) and not break_.in_loop:
        cause += f"  So {whole} runs as plain Python."
    is_whole = raised and break_.kind != RECOMPILE_LIMIT and all(each.is_broken for each in frame.compiles)
    if (record.engine == "torch" and is_whole) or is_disabled:
        what = "what it calls" if is_disabled else whole
        cause += f"{'' if cause.endswith('.') else '.'}  So nothing of {what} is compiled."
    problem = place.problem("graph break", grade, f"graph break: {break_.kind}", cause, compile_, advice,
                            ns=sum(c.duration_ns for c in resumed))  # fmt: skip
    problem._library = place.library if place.behind else ""
    problem.breaks, problem.is_training = [break_id(compile_, break_)], break_.reason in STEP_HINTS
    why, _, _ = break_.explanation.partition("\n")  # a loop adds to it, in which Python calls the function
    problem._causes = frozenset({break_.expression or why, *divided.broken_inside(frame, break_)})
    problem._parts |= parts if grade != "expected" or is_step else {HINT: Part(advice)}
    is_hint = is_hint and HINT in parts
    if grade != "expected" and (is_hint or LOOP in parts):
        is_pytorchs = break_.reason == "other" and is_hint and break_.hint != IF_IT_RAISES
        problem._proof = FROM_PYTORCH if is_pytorchs else PROVEN
    elif is_step:
        problem._proof = ""
    return problem


def _recompile(record: Record, frame: Frame, compile_: Compile, cause: Recompile, divided: _DividedGraphs) -> Problem:
    is_inside = frame.kind == "resume"

    is_librarys = bool(library_of(frame.filename)) and not is_inside
    passed = _passed_by_caller(compile_, [cause, *cause.besides]) if is_librarys else None

    def situation(failed: FailedGuard) -> Situation:
        return _situation(record, frame, compile_, failed, passed or failed.name)

    found = remedies(cause, situation, compile_.id, is_inside, passed)
    to_avoid, differences = differences_to_avoid(cause, situation), [cause, *cause.besides]
    resized = next(filter(_is_of_parameter, differences), None)
    named = resized or to_avoid[0]
    names = ", ".join(dict.fromkeys(f"`{each.name}`" for each in to_avoid))
    is_in_library = bool(library_of(frame.filename)) and not _has_operations(compile_)
    is_generated = cause.aspect == "identity" and has_generated_name(cause.source)
    is_of_rounds = bool(frame.carried) and {each.key for each in found} == {"one case"}

    def raises(each: Compile) -> bool:
        return bool(each.breaks) and _only_reads_or_raises([each])

    nearest = next((each for each in frame.compiles if each.id == cause.of), None)
    broken_at = compile_.breaks[-1].place if compile_.is_broken and compile_.breaks else None
    ended_at, what_ended = broken_at or compile_.raised_at, "graph break" if broken_at else "error"
    gives_up = record.engine == "torch" and compile_.outcome == "skipped" and compile_.reason == NOTHING_CAPTURED
    of_remedies = sentences(each.text for each in found)
    is_at_one_read = _reasons(frame.compiles) <= _COMPUTES_NOTHING
    verdicts: tuple[_Verdict, ...] = (
        (frame.kind == "resume" and not divided.computes_from(frame), "expected", _NOTHING_FROM_HERE),
        (is_generated, "expected", _HELD_ACROSS.format(shown_name(cause.name))),
        (nearest is not None and raises(nearest), "expected", _RAISED_BEFORE.format(cause.of)),
        (gives_up, "expected", _NO_MORE),
        (_is_past_limit(compile_), "blocking", of_remedies),
        (ended_at is not None, "expected", _ENDED_BY.format(what_ended, ended_at and ended_at.lineno)),
        (compile_.outcome in ("failed", "skipped"), "expected", _ENDED_EARLY),
        (_only_reads_or_raises(frame.compiles), "expected", _NO_TENSORS),
        (is_at_one_read and not divided.computes_from(frame), "expected", _NO_TENSORS),
        (raises(compile_), "expected", _RAISES),
        (frame.limit_reached, "blocking", of_remedies),
        (all(_is_carried(frame, each) for each in to_avoid), "expected", _CARRIED.format(names)),
        (_is_another_item(record, frame, cause), "expected", _ANOTHER_ITEM.format(shown_name(cause.name))),
        (is_in_library and divided.goes_with_call(compile_), "expected", _OF_BROKEN_CALL),
        (resized is not None, "expected", _OTHER_MODULE),
        (is_of_rounds, "expected", _OF_ROUNDS.format(named.name)),
        (bool(found) and all(each.is_nothing for each in found), "expected", of_remedies),
        (True, "costly", of_remedies),
    )
    grade, advice = _first(verdicts)
    if advice != of_remedies:
        found = []
    place = _Place.of_frame(record, frame, compile_)
    lines = _lines(record, [named.caller, named.line])
    is_at_function = bool(lines) and (lines[-1].filename, lines[-1].lineno) == (frame.filename, frame.line)
    is_at_function = is_at_function and not library_of(frame.filename)
    if named.aspect in _OF_MEMORY or (named.aspect in _OF_TENSORS and is_at_function):  # logs: read in a library
        lines = _first_operation(record, compile_, named) or lines
    if lines and users_line(lines) is lines[-1] and lines[-1].library and not library_of(frame.filename):
        lines = [StackLine(frame.filename, frame.line, frame.name, ""), *lines]  # logs have no line between them
    if lines and not is_around_call(lines[-1].filename):
        place = _Place.of_stack(record, compile_, lines)
    text = cause.text if named is cause else what_failed(cause, named)
    same = [c.cause for c in frame.compiles if c.cause is not None and _subject(c.cause) == _subject(cause)]
    if len(same) > 1 and cause.aspect != "relation" and len(values := values_over_time(same)) > 2:
        text += f"  So far: {', '.join(values)}."
    if frame.limit_reached:
        done = sum(each.outcome != "failed" or record.engine == "core" for each in frame.compiles)
        limit = f"limit of {done} compiles" if done else "limit of compiles"  # none of them is in the record
        text += f"  The {limit} is reached: calls that none covers run as plain Python."
    changed = what_changed(named)
    problem = place.problem(
        "recompile", grade, f"recompiled: {changed}", text, compile_, advice, ns=compile_.duration_ns
    )
    problem._changed = changed
    problem._follows = divided.same_before(frame, named)
    problem.remedies = [each.key for each in found]
    problem._causes = frozenset(map(subject_of_change, differences))
    is_passed_on = any(_is_passed_on(record, each) for each in differences)
    if all(each.lines for each in found) and not is_passed_on:  # else the recompile stays
        problem.lines = list(dict.fromkeys(line for each in found for line in each.lines))
    problem._has_names = not is_librarys
    problem._parts |= {each.key: Part(each.text, each.without) for each in found}
    problem._proof = PROVEN if set(problem.remedies) - UNCHANGED else None
    return problem


def _passed_by_caller(compile_: Compile, differences: Sequence[FailedGuard]) -> str:
    """Returns what the user's line passes to a function of a library as the argument that differs; empty if the line
    does not say."""
    names = {each.name if each.place == "argument" else "" for each in differences}
    is_one_argument = len(names) == 1 and names.pop().isidentifier()
    return passed_alone(statement_of(compile_.caller.text.strip())) if is_one_argument and compile_.caller else ""


def _is_of_parameter(failed: FailedGuard) -> bool:
    """Whether a parameter of a module has another size, as it has in another module of the same class."""
    return failed.type == "Parameter" and failed.place == "attribute" and failed.aspect in ("size", "rank")


def _only_reads_or_raises(compiles: Sequence[Compile]) -> bool:
    """Whether calls that compiles are for have only read or raised, and nothing with tensors followed a graph break."""
    return not any(map(_has_operations, compiles)) and _reasons(compiles) <= {"exception"}


def _reasons(compiles: Iterable[Compile]) -> set[BreakReason]:
    return {break_.reason for compile_ in compiles for break_ in compile_.breaks}


def _first_operation(record: Record, compile_: Compile, failed: FailedGuard) -> list[StackLine]:
    """Returns the user's line of the first operation on an input of the graph; an empty list if it is none, or code of
    a library."""
    captured = next(iter(compile_.captured_graphs), None)
    if captured is None or captured.graph is None:
        return []
    inputs = {captured.item(n.key) for n in captured.graph.nodes if n.op == "placeholder" and n.place == failed.name}
    lines = _lines(record, [source for edge in compile_.edges if edge.made in inputs for source in edge.sources])
    return [line for line in lines if line.filename and not line.library][:1]


def _is_carried(frame: Frame, failed: FailedGuard) -> bool:
    """Whether a guard is on what mostly differs between the first round of a loop and the others."""
    is_unset = failed.aspect == "value" and "None" in (failed.expected, failed.got)
    return failed.name in frame.carried and (failed.aspect in _CARRIED_ASPECTS or is_unset)


def _is_another_item(record: Record, frame: Frame, failed: FailedGuard) -> bool:
    """Whether the variable of a ``for`` whose body is compiled has an object of another class."""
    if frame.kind != "resume" or failed.aspect != "class":
        return False
    return failed.name in variables_of_loops(_function_lines(record, record.line(frame.filename, frame.line)))


def _situation(record: Record, frame: Frame, compile_: Compile, failed: FailedGuard, name: str) -> Situation:
    """Returns what the record says about a difference, for which `compile_` was made; conditions on it have `name`."""
    having = [c for c in frame.compiles if c.cause and any(_is_same(failed, e) for e in [c.cause, *c.cause.besides])]
    is_symbolic, cases = _has_symbols(compile_, failed), _cases(compile_, failed)
    later = having[having.index(compile_) + 1 :] if compile_ in having else []
    is_last = all(is_symbolic and (_cases(each, failed) or _allows(compile_, each, failed)) for each in later)
    is_one_case = bool(cases) and any(_has_symbols(each, failed) for each in having)
    is_number = failed.aspect == "value" and failed.type in ("int", "float")
    lines = _function_lines(record, failed.line) if is_number else []
    is_needed = bool(cases) or any(needs_number(line, failed.name) for line in lines)
    is_decided = is_number and _is_decided(record, compile_, failed, lines)
    conditions = tuple(_conditions(compile_, failed, name))
    case = condition_text(cases[0], failed.source, name) if is_one_case else ""
    return Situation(
        is_symbolic, is_needed, is_decided, len(having), is_last, conditions, compile_.no_symbols,
        _is_made_by_first_step(record, failed), _is_made_inside(record, frame, failed), case,
        any(_has_symbols(each, failed) and _allows(each, compile_, failed) for each in frame.compiles),
    )  # fmt: skip


def _allows(compile_: Compile, later: Compile, failed: FailedGuard) -> bool:
    """Whether a compile does not serve a call for other reasons than this difference, as far as the cause of the
    `later` compile, which does, says."""
    others = later.cause.others if later.cause else []
    return any(
        each.compile == compile_.id and not any(_is_same(failed, other) for other in each.failed) for each in others
    )


def _has_symbols(compile_: Compile, failed: FailedGuard) -> bool:
    """Whether a compile has a symbol for each number that differs."""
    symbolic = {symbol.source for symbol in compile_.symbols if symbol.became is None}
    return symbolic.issuperset(_sources(failed)) and not _cases(compile_, failed)


def _cases(compile_: Compile, failed: FailedGuard) -> list[str]:
    """Returns the numbers that symbols of a compile became, of those that differ, as conditions."""
    sources = _sources(failed)
    return [f"{s.source} == {s.became}" for s in compile_.symbols if s.source in sources and s.became is not None]


def _is_decided(record: Record, compile_: Compile, failed: FailedGuard, lines: list[str]) -> bool:
    """Whether the function that reads a number decides by it or slices by it, as far as its lines say.

    What a line compares it with is no tensor if the line has no operation in the graph.
    """
    line = failed.line
    if line and is_compared(record.line_text(line), failed.name) and _has_operations(compile_):
        graphs = {graph.id for graph in compile_.captured_graphs}
        return not any(line in edge.sources and edge.made.partition("#")[0] in graphs for edge in compile_.edges)
    return any(decides_by(line, failed.name) for line in lines)


def _is_passed_on(record: Record, failed: FailedGuard) -> bool:
    """Whether a number is read in a function that has another name for it, or compares it and may return that, so that
    what it is needed for is not known."""
    lines = _function_lines(record, failed.line) if failed.aspect == "value" and failed.type in ("int", "float") else []
    *_, name = re.findall(r"\w+", failed.name) or [""]
    is_read = any(re.search(rf"\b{name}\b", line) for line in lines)
    return bool(lines) and (not is_read or any(is_compared(line, failed.name) for line in lines))


def _is_made_by_first_step(record: Record, failed: FailedGuard) -> bool:
    """Whether stock reads a part of an optimizer's state in PyTorch's optimizers, and the first call found none."""
    is_state = (
        "state[" in failed.name and failed.expected in NOTHING_YET and failed.aspect in ("keys", "length", "value")
    )
    lines = _lines(record, [failed.line]) if is_state and record.engine == "torch" else []
    return any("/torch/optim/" in each.filename.replace("\\", "/") for each in lines)


def _is_made_inside(record: Record, frame: Frame, failed: FailedGuard) -> bool:
    """Whether the rest of a function has a value from before the graph break that is none of its parameters."""
    if frame.kind != "resume" or failed.place != "argument":
        return False
    known = parameters(_function_lines(record, record.line(frame.filename, frame.line)))
    root = re.match(r"\w+", failed.name)
    return bool(known) and root is not None and root[0] not in known


def _function_lines(record: Record, item: ItemId | None) -> list[str]:
    """Returns the lines of the function around a line."""
    id_, _, key = (item or "").rpartition("#")
    source = next((artifact for artifact in record.sources if artifact.id == id_), None)
    if source is None or not key.isdecimal():
        return []
    numbers = (int(span.key) for span in source.spans if span.key.isdecimal())
    return function_lines(dict(zip(numbers, source.text.split("\n"), strict=False)), int(key))


def _conditions(compile_: Compile, failed: FailedGuard, name: str) -> list[str]:
    """Returns the conditions of a compile on the sizes or the number that differ, as a user would write them.

    That sizes are at least 2, and numbers finite and not huge, is so for all compiles.  Conditions on strides come
    last: they mostly follow from those on sizes.
    """
    found, sources = [], _sources(failed)
    for guard in compile_.guards:
        code = guard.code
        if guard.kind not in ("CONDITION", "LAMBDA_GUARD") or not any(source in code for source in sources):
            continue
        if not is_of_all_compiles(code, sources if failed.aspect == "size" else ()):
            found.append(condition_text(code, failed.source, name))
    return sorted(found, key=lambda code: ".stride(" in code)


def _sources(failed: FailedGuard) -> list[str]:
    """Returns the sources of the sizes or of the number that differ, as symbols have them."""
    if failed.aspect == "size":
        return [f"{failed.source}.size()[{dim}]" for dim in failed.dims]
    return [f"{failed.source}.item()" if failed.type in NUMPY_NUMBERS else failed.source]


def _is_same(one: FailedGuard, other: FailedGuard) -> bool:
    """Whether two differences are of one subject; those of sizes also of a dimension."""
    is_of_dims = one.aspect != "size" or bool(set(one.dims).intersection(other.dims))
    return _subject(one) == _subject(other) and is_of_dims


def _subject(failed: FailedGuard) -> tuple[str, str, bool]:
    """Returns what differs; sizes 0 and 1 are another matter than other sizes."""
    return failed.name, failed.aspect, failed.is_broadcast


# ---- where a problem is shown ------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a problem is shown: its own line, or for code of a library the user's line that calls it."""

    filename: str = ""
    lineno: int = 0
    line: ItemId | None = None
    library: str = ""
    """Whose code has the problem; empty if it is the user's."""
    behind: str = ""
    """The line that has it, as a sentence, if another one is shown."""

    @classmethod
    def of_frame(cls, record: Record, frame: Frame, compile_: Compile | None) -> _Place:
        """Returns the place of a function."""
        return cls.of_stack(record, compile_, [StackLine(frame.filename, frame.line, frame.name, "")])

    @classmethod
    def of_stack(cls, record: Record, compile_: Compile | None, stack: Sequence[StackLine]) -> _Place:
        """Returns the place of the innermost of these lines, which a compile has compiled."""
        shown = users_line(stack)
        if shown is None:
            return cls()
        innermost = stack[-1]
        if shown.library and compile_ is not None and compile_.caller is not None:
            shown = compile_.caller
        behind = "" if shown is innermost else _behind(innermost)
        line = shown.line or record.line(shown.filename, shown.lineno)
        library = "" if is_around_call(innermost.filename) else innermost.library
        return cls(shown.filename, shown.lineno, line, library, behind)

    def problem(
        self, kind: ProblemKind, grade: Grade, title: str, cause: str, compile_: Compile | None, advice: str = "",
        ns: int = 0,
    ) -> Problem:  # fmt: skip
        """Returns a problem at this place."""
        is_of_call = kind == "recompile" and self.behind  # what the user's line passes in
        parts = {}
        if self.library and grade != "expected" and not is_of_call:
            parts = {"": Part(f"This is code of {self.library}, not yours.")}
            advice = f"{parts[''].text}  {advice}".strip()
        ids = [compile_.id] if compile_ else []
        if self.behind:
            first, newline, more = _ended(cause).partition("\n")
            cause = f"{first}  {self.behind}{newline}{more}".strip()
        return Problem(kind, grade, title, cause, advice, "", ns=ns, compiles=ids, filename=self.filename,
                       lineno=self.lineno, line=self.line, behind=self.behind, _parts=parts)  # fmt: skip


def _ended(text: str) -> str:
    """Returns a text whose first line ends as a sentence does."""
    first, newline, more = text.partition("\n")
    return f"{first}{'' if first.endswith(('.', ':', '!', '?')) else '.'}{newline}{more}"


def _lines(record: Record, items: Iterable[ItemId | None]) -> list[StackLine]:
    """Returns lines of source by their items, without those that are None."""
    files = {artifact.id: artifact.name for artifact in record.sources}
    parts = [(item, *item.rpartition("#")[::2]) for item in items if item]
    return [StackLine(files.get(id_, ""), int(key) if key.isdigit() else 0, "", "", item) for item, id_, key in parts]


def _behind(innermost: StackLine) -> str:
    """Returns a sentence on the line that has a problem, for a line that calls it."""
    shown = innermost.text.strip()
    if shown.endswith(("(", "[", "{")):  # the first line of a longer statement
        shown += "..."
    text = f": `{shown}`" if shown else ""
    if not innermost.library:
        return f"In {innermost.function}{text}."
    _, _, file = innermost.filename.replace("\\", "/").rpartition("/")
    if is_around_call(innermost.filename):  # Dynamo's function around the call, which only its frame names as the user
        return "" if innermost.function == "inner" else f"It is in {innermost.function}, which this line calls."
    return f"It is in code of {innermost.library} ({file}:{innermost.lineno}{text}), which this line calls."


# ---- breaks that divide no graph ---------------------------------------------------------------


class _DividedGraphs:
    """Which graph breaks of a record divide a graph: those with operations before them and after them.

    A break in an inlined function is one of its caller's compile, too: what is computed before and after a break is
    asked of all compiles that have it.
    """

    def __init__(self, record: Record) -> None:
        self._frames = {frame.id: frame for frame in record.frames}
        self._compiles = {compile_.id: compile_ for compile_ in record.compiles}
        # stock makes no compile of the rest after a break if there are no tensors
        resumed = [frame for frame in record.frames if frame.kind == "resume"]
        self._may_end = record.engine == "torch" and all(frame.resumes for frame in resumed)
        self._before: set[_Key] = set()
        """The breaks with operations before them, or of which that is not known."""
        self._after: set[_Key] = set()
        self._broken = set()
        """The lines of breaks in functions of the user's."""
        callees: set[tuple[str, str]] = set()
        called_from: dict[_Key, int] = {}
        """The frame of stock whose graph ends at the call that leads to a break."""
        for compile_ in record.compiles:
            for break_ in compile_.breaks:
                if break_.place is not None and not library_of(self._frames[compile_.frame].filename):
                    self._broken.add((break_.place.filename, break_.place.lineno))
                caller = called_from.setdefault(_key_anywhere(break_), compile_.frame)
                between = range(caller + 1, compile_.frame if record.engine == "torch" else 0)
                ran = [c for id_ in between if id_ in self._frames for c in self._frames[id_].compiles]
                keys = self._keys_with_origin(self._frames[compile_.frame], break_)
                # a module of PyTorch's around it may have been compiled before, and computes what no compile here shows
                is_inside = any(library_of(line.filename) == "torch" for line in break_.stack[:-1])
                computes = self._computes_before(compile_) or any(map(_has_operations, ran))
                if compile_.outcome != "compiled" or computes or is_inside:
                    self._before |= keys
                is_library = library_of(self._frames[compile_.frame].filename)  # what its caller computes is not known
                if compile_.outcome != "compiled" or is_library or self._computes_after(break_):
                    self._after |= keys
                    callees |= {(line.filename, line.function) for line in break_.stack[1:]}
        # a function that is compiled by itself since its caller has a graph break in it
        for compile_ in record.compiles:
            frame = self._frames[compile_.frame]
            if (frame.filename, frame.name) in callees:
                self._after |= set(map(_key, compile_.breaks))

    def why_harmless(self, break_: GraphBreak) -> str:
        """Returns why a break divides no graph; an empty string if it divides one, or if that is not known."""
        if break_.reason not in _COMPUTES_NOTHING | _BRANCHES | _CALLS:
            return ""
        may_compute = break_.reason in _CALLS and not _sets_something(break_)
        if not may_compute and self._before.isdisjoint((_key(break_), _key_anywhere(break_))):
            return "nothing is computed before it"
        if break_.reason in _BRANCHES or not self._after.isdisjoint((_key(break_), _key_anywhere(break_))):
            return ""
        is_known = break_.is_last or break_.resumes
        return "nothing is computed after it" if is_known else "no graph is compiled after it"

    def _keys_with_origin(self, frame: Frame, break_: GraphBreak) -> set[_Key]:
        """Returns the keys of a break, and of those before it that it goes with: without them it would not be there."""
        keys = {_key(break_)}
        while break_.is_consequence or self.enters_what_a_break_made(frame, break_):
            resumed = self._compiles.get(frame.resumes or "")
            if resumed is None or not resumed.breaks or _key(resumed.breaks[-1]) in keys:
                break
            frame, break_ = self._frames[resumed.frame], resumed.breaks[-1]
            keys.add(_key(break_))
        return keys

    def goes_with_call(self, compile_: Compile) -> bool:
        """Whether a function of a library was compiled by itself only since the user's line that calls it has a break.

        Without it, the function is called in the graph.
        """
        caller = compile_.caller
        is_library = bool(library_of(self._frames[compile_.frame].filename))
        return is_library and caller is not None and (caller.filename, caller.lineno) in self._broken

    def enters_what_a_break_made(self, frame: Frame, break_: GraphBreak) -> bool:
        """Whether a break is where a ``with`` enters or leaves what its own line made, which broke the graph."""
        resumed = self._compiles.get(frame.resumes or "")
        if resumed is None or not break_.expression.startswith("with ") or break_.place is None:
            return False
        made = [each.place.lineno for each in resumed.breaks if each.place and each.statement == "With"]
        return break_.place.lineno in made

    def broken_inside(self, frame: Frame, break_: GraphBreak) -> list[str]:
        """Returns the parts of a break's expression that broke the graph before, with the same advice: the expressions
        of these breaks, or their explanations if those are not known.

        ``iter(loader)`` is one of ``next(iter(loader))``.
        """
        resumed, at = self._compiles.get(frame.resumes or ""), break_.place
        before = [b for b in resumed.breaks if b.place] if resumed and at else []
        here = [b for b in before if at and b.place and (b.place.filename, b.place.lineno) == (at.filename, at.lineno)]
        if break_.expression:
            return [b.expression for b in here if b.hint == break_.hint and _is_part(b.expression, break_.expression)]
        is_nested = at is not None and calls_are_nested(statement_of(at.text.strip()))
        return [b.explanation for b in here if b.reason == break_.reason and is_nested]

    def same_before(self, frame: Frame, failed: FailedGuard) -> list[str]:
        """Returns the compiles of what a frame resumes that were made for the same difference.

        What a graph break leaves differs as what was passed to the function.
        """
        found: list[str] = []
        wanted = (failed.aspect, failed.expected, failed.got, failed.is_broadcast)
        seen = set[int]()
        while (resumed := self._compiles.get(frame.resumes or "")) and resumed.frame not in seen:
            seen.add(resumed.frame)
            frame = self._frames[resumed.frame]
            for each in (c for c in frame.compiles if c.cause is not None and failed.got):
                causes = [each.cause, *each.cause.besides] if each.cause is not None else []
                if wanted in [(c.aspect, c.expected, c.got, c.is_broadcast) for c in causes]:
                    found.append(each.id)
        return found

    def computes_from(self, frame: Frame) -> bool:
        """Whether a frame, or what follows the graph breaks in it, computes anything, or that is not known."""
        compiles = frame.compiles
        if any(map(_may_compute, compiles)):
            return True
        return any(self._computes_after(b) for c in compiles for b in c.breaks)

    def _computes_before(self, compile_: Compile) -> bool:
        """Whether the graph of a compile has operations, or one of those that it resumes."""
        seen = set()
        while not _has_operations(compile_):
            frame = self._frames.get(compile_.frame)
            if frame is not None and frame.kind != "resume":
                return False
            seen.add(compile_.id)
            before = self._compiles.get(frame.resumes or "") if frame else None
            if before is None or before.id in seen:
                return True  # not known
            compile_ = before
        return True

    def _computes_after(self, break_: GraphBreak) -> bool:
        waiting, seen = list(break_.resumes), set(break_.resumes)
        if not waiting and not (self._may_end and break_.is_last is not False):
            return True  # not known
        while waiting:
            frame = self._frames.get(waiting.pop())
            if frame is None or frame.skipped:
                return True  # not known
            for compile_ in frame.compiles:
                if _may_compute(compile_):
                    return True
                further = {id_ for each in compile_.breaks for id_ in each.resumes} - seen
                seen |= further
                waiting += further
        return False


def _sets_something(break_: GraphBreak) -> bool:
    """Whether the line of a break only sets a state of the process, such as the seed."""
    return break_.place is not None and _SETS_SOMETHING.match(break_.place.text.strip()) is not None


def _is_part(inner: str, outer: str) -> bool:
    """Whether the source of one expression is in that of another."""
    try:
        wanted, tree = (ast.parse(text, mode="eval").body for text in (inner, outer))
    except SyntaxError:
        return False
    return any(ast.dump(each) == ast.dump(wanted) for each in ast.walk(tree) if each is not tree)


def _key(break_: GraphBreak) -> _Key:
    """Returns what a break has in common in all compiles that have it: its line, and for code of a library the user's
    line that calls it."""
    shown = break_.place
    is_users = shown is not None and not shown.library
    return (*_key_anywhere(break_)[:3], shown.filename, shown.lineno) if shown and is_users else _key_anywhere(break_)


def _key_anywhere(break_: GraphBreak) -> _Key:
    """Returns the key of a break in code of a library that is compiled by itself, so that its caller is not known."""
    at = break_.stack[-1] if break_.stack else None
    return (break_.kind, at.filename, at.lineno, "", 0) if at else (break_.kind, "", 0, "", 0)


def _may_compute(compile_: Compile) -> bool:
    """Whether a compile has operations, or that is not known."""
    if compile_.reason == NOTHING_CAPTURED and not compile_.breaks:
        return False
    return _has_operations(compile_) or compile_.outcome != "compiled"


def _has_operations(compile_: Compile) -> bool:
    return bool(compile_.captured_graphs)
