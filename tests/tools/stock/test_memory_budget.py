"""Reading a log takes linear time and bounded memory, whatever it contains, and counts what it leaves out."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_core.records import Record, limits
from compiler_core.tools.stock import trace_logs
from compiler_core.tools.stock.build.record_builder import RecordBuilder
from compiler_core.tools.stock.read.graph_text import read_graph
from compiler_core.tools.stock.read.origins import first_nodes
from compiler_core.tools.stock.read.output_code import read_output_code
from compiler_core.tools.stock.read.trace_event import TraceEvent
from compiler_core.tools.stock.trace_logs import read_logs
from kernel_magics.display import summary
from tests.cases.counted import instructions, is_linear
from tests.sampling import sample

HEAD = "V1121 10:20:57.653000 10669 torch/_dynamo/utils.py:2350] "


def entry(about: dict[str, Any], payload: str | None = None, frame: int | None = 0) -> str:
    ids = {} if frame is None else {"frame_id": frame, "frame_compile_id": 0, "attempt": 0}
    text = "" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"
    return f"{HEAD}{json.dumps(about | ids)}\n{text}"


def start(frame: int, file: str = "a.py") -> str:
    return entry({"dynamo_start": {"stack": [{"file": file, "line": 1, "name": "f"}]}}, frame=frame)


def event(name: str, phase: str, at: int = 0) -> str:
    return entry({"chromium_event": {}}, json.dumps({"name": name, "ts": 1e15 + at, "ph": phase}))


def graph(nodes: int) -> str:
    lines = [f'        x{i}: "f32[8][1]cpu" = torch.sin(x);  x = None' for i in range(nodes)]
    return "\n".join(["    def forward(self, x):", *lines, "        return (x,)"])


def break_at(file: str) -> str:
    return f'Graph Break Reason: a kind\nUser code traceback:\n  File "{file}", line 3, in f\n    x = 1\n'


def guards(n: int) -> str:
    leaves = [f"| +- EQUALS_MATCH: L['x'] == {i}.5  # y = x  # b{i}.py:7 in f" for i in range(n)]
    return "\n".join(["+- RootGuardManager", *leaves])


def starts(n: int) -> Iterator[str]:
    yield from (start(i) for i in range(n))


def files(n: int) -> Iterator[str]:
    yield from (start(i, f"a/b{i}.py") for i in range(n))


def broken_files(n: int) -> Iterator[str]:
    yield from (entry({"dynamo_graph_break_reason": {}}, break_at(f"a/b{i}.py")) for i in range(n))


def artifacts(n: int) -> Iterator[str]:
    yield from (entry({"artifact": {"name": f"a{i}"}}, "text") for i in range(n))


def unmatched(n: int) -> Iterator[str]:
    yield from (event(f"begins{i}", "B") for i in range(n))
    yield from (event(f"ends{i}", "E") for i in range(n))


def guards_in_files(n: int) -> Iterator[str]:
    yield from files(n)
    yield entry({"dynamo_cpp_guards_str": {}}, guards(n))


def reasons(n: int) -> Iterator[str]:
    yield entry({"dynamo_cpp_guards_str": {}}, guards(n))
    for i in range(n):
        yield entry({"recompile_reasons": {}}, json.dumps([f"0/0: L['x'] == {i}.5"] * 2), frame=i + 1)


def symbols(n: int) -> Iterator[str]:
    for i in range(n):
        yield entry({"create_symbol": {"symbol": f"s{i}", "val": "7"}})
        yield entry({"aot_forward_graph": {}}, graph(1))


def inputs(n: int) -> Iterator[str]:
    lines = ["    def forward(self, " + ", ".join(f"L_x{i}_" for i in range(n)) + "):"]
    lines += [f"        l_x{i}_ = L_x{i}_" for i in range(n)]
    yield entry({"dynamo_output_graph": {}}, "\n".join(lines))


def graphs(n: int) -> Iterator[str]:
    yield entry({"dynamo_output_graph": {}}, graph(n))
    yield from (entry({"aot_forward_graph": {}}, graph(1)) for _ in range(n))


@pytest.mark.parametrize(
    ("log", "size"),
    sample(
        [
            *((log, 100) for log in (starts, files, broken_files, artifacts, reasons, symbols, inputs, graphs)),
            *((log, 500) for log in (unmatched, guards_in_files)),
        ],
        3,
    ),
)
def test_work_is_linear(log: Callable[[int], Iterator[str]], size: int, tmp_path: Path) -> None:
    file = tmp_path / "a.log"

    def work(n: int) -> Callable[[], object]:
        file.write_text("".join(log(n)))
        return lambda: read_logs(file)

    is_linear(work, 10)  # 10: work that does not depend on the size
    assert is_linear(work, size)


def strings(n: int) -> Iterator[str]:
    yield from (entry({"str": ["x" * 1000 + str(i), i]}, frame=None) for i in range(n // 8))


def faults(n: int) -> Iterator[str]:
    yield from (entry({"chromium_event": {}}, f'{{"{"x" * 80}{i}') for i in range(n))


def notes(n: int) -> Iterator[str]:
    for i in range(n):
        yield entry({"torch_version": {}}, f"[{i}")
        yield entry({"compilation_metrics": {"cudagraph_skip_reason": f"{i}"}})


def empty_lines(n: int) -> Iterator[str]:
    yield from (entry({"inductor_output_code": {}}, "\n" * 1000) for _ in range(n // 8))


def edges(n: int) -> Iterator[str]:
    names = [f"x{i}" for i in range(100)]
    head = f"    def forward(self, {', '.join(names)}):\n"
    for _ in range(n // 8):
        yield entry({"aot_forward_graph": {}}, head + f"        y = f({', '.join(names)})\n" * 2)


def values(n: int) -> Iterator[str]:
    yield from (entry({"create_symbol": {"symbol": "s", "val": [[]] * 100}}) for i in range(n))


@pytest.mark.parametrize(
    "log",
    sample(
        [
            starts,
            files,
            broken_files,
            artifacts,
            unmatched,
            strings,
            faults,
            notes,
            empty_lines,
            edges,
            values,
            symbols,
        ],
        3,
    ),
)
def test_memory_does_not_grow_with_the_log(
    log: Callable[[int], Iterator[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_logs, "CHUNK_BYTES", 2**15)
    file, peaks = tmp_path / "a.log", []
    for n in (30, 1500, 4500):
        file.write_text("".join(log(n)))
        tracemalloc.start()
        (record,) = read_logs(file, budget=2**18)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.25 * peaks[1]
    assert peaks[2] < 6 * 2**18
    assert Record.from_json(record.to_json()) == record


def record_of(tmp_path: Path, *entries: str, budget: int = limits.MEMORY) -> Record:
    file = tmp_path / "a.log"
    file.write_text("".join(entries))
    return read_logs(file, budget=budget)[0]


def test_compiles_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRAMES", 3)
    more = [entry({"artifact": {"name": "text"}}, "text", frame=i) for i in range(5)]
    record = record_of(tmp_path, *starts(5), *more)
    assert [[a.name for a in c.artifacts] for c in record.compiles] == [["text"]] * 3
    assert record.notes == ["The first 3 of 5 compiles are kept."]
    assert "note: The first 3 of 5 compiles are kept." in summary.text(record)


def test_graphs_and_times_of_whole_compiles_are_kept_before_other_texts(tmp_path: Path) -> None:
    record = record_of(
        tmp_path,
        start(0),
        *(entry({"artifact": {"name": f"a{i}"}}, "x" * 1000) for i in range(400)),
        *(event(f"phase{i}", "B") for i in range(300)),
        entry({"dynamo_output_graph": {}}, graph(10)),
        *(entry({"aot_forward_graph": {}}, graph(10)) for _ in range(20)),
        event("entire_frame_compile", "B"),
        event("entire_frame_compile", "E", 5),
        budget=2**18,
    )
    (compile_,) = record.compiles
    assert {a.name for a in compile_.artifacts} >= {"a0", "captured", "forward"}
    assert compile_.events[-1].name == "entire_frame_compile"
    assert compile_.events[-1].outcome == "ok"
    (note,) = record.notes
    assert note.startswith("Left out of PyTorch's trace (beyond 0.2188 MiB, or another limit): ")
    kept = sum(a.name.startswith("forward") for a in compile_.artifacts)
    assert f" {20 - kept} graphs" in note
    assert f" {400 - sum(a.pane == 'other' for a in compile_.artifacts)} other texts" in note
    assert f" {301 - len(compile_.events)} times" in note


def test_a_truncated_text_states_how_much_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TEXT", 1000)
    record = record_of(tmp_path, entry({"artifact": {"name": "long"}}, "x" * 1500))
    (text,) = record.compiles[0].artifacts
    assert text.text == "x" * 948 + "… (552 bytes left out)"
    assert "1 ends of long texts" in record.notes[0]


def test_deferred_texts_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TEXT", 1000)
    record = Record(engine="torch")
    builder = RecordBuilder(record, 0)
    placeholder = builder.deferred.defer(lambda: "x" * 1500)
    builder.add(TraceEvent("some text", {}, placeholder, 0, 0, 0))
    builder.close()
    assert record.compiles[0].artifacts[0].text == "x" * 950 + "… (550 characters left out)"
    assert "1 ends of long texts" in record.notes[0]


def test_long_names_are_truncated(tmp_path: Path) -> None:
    long = "n" * 10_000
    record = record_of(
        tmp_path,
        entry({"str": [long, 1]}, frame=None),
        entry({"dynamo_start": {"stack": [{"filename": 1, "line": 1, "name": long}]}}),
        event(long, "B"),
        entry({"artifact": {"name": long}}, "text"),
    )
    (frame,) = record.frames
    (compile_,) = frame.compiles
    for text in (frame.name, frame.filename, compile_.events[0].name, compile_.artifacts[0].name):
        assert text == "n" * (limits.NAME - limits.TRUNCATION_NOTE) + "… (5,954 characters left out)"


def test_nodes_and_edges_beyond_the_limits_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODES", 5)
    monkeypatch.setattr(limits, "EDGES", 3)
    record = record_of(tmp_path, entry({"dynamo_output_graph": {}}, graph(10)))
    (artifact,) = record.compiles[0].artifacts
    assert artifact.graph
    assert [n.key for n in artifact.graph.nodes] == ["x", "x0", "x1", "x2", "x3", "output"]
    assert len(artifact.graph.edges) == 3
    assert "2 graph edges, 6 graph nodes" in record.notes[0]


def test_too_long_metadata_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_logs, "MAX_METADATA_BYTES", 500)
    record = record_of(tmp_path, start(0), entry({"create_symbol": ["x" * 500]}))
    assert "1 long entries" in record.notes[0]


def test_a_buffer_that_is_freed_many_times() -> None:
    def work(n: int) -> int:
        code = read_output_code("def call(args):\n" + "    del buf0\n" * n)
        return sum(map(len, code.plan))

    assert work(200) == work(100)


def test_a_graph_is_read_line_by_line() -> None:
    small, large = (instructions(lambda n=n: read_graph(graph(n))) for n in (100, 200))  # type: ignore[misc]
    assert large < 2.2 * small


def test_a_log_that_grows_is_read_up_to_its_first_size(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(start(0) + start(1))

    def grow(done: int, total: int) -> None:
        with file.open("a") as stream:
            stream.write(start(2) + start(3)[:-9])

    (record,) = read_logs(file, grow)
    assert len(record.compiles) in (1, 2)
    assert record.notes == ["The log grew while it was read; what was added is left out."]


def test_links_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINKS", 3)
    left_out: Counter[str] = Counter()
    groups = [["a", "b", "c", "d"], ["e"]]
    assert first_nodes(groups, {name: i for i, name in enumerate("abcde")}, left_out) == ["a", "b", "c"]
    assert left_out == {"links of kernels to nodes": 2}
