"""Observing stock torch.compile: the record has everything that PyTorch reports, and PyTorch is not changed."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

import compiler_core
from compiler_core.capture.break_kinds import KINDS
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Record
from compiler_core.tools.stock.build.record_builder import RecordBuilder
from compiler_core.tools.stock.hooks import torch_internals
from compiler_core.tools.stock.read.cache_keys import EVENTS
from compiler_core.tools.stock.read.graph_text import read_graph
from compiler_core.tools.stock.read.trace_event import parse_event
from compiler_core.tools.stock.source_files import SourceLocation
from tests.cases.scripts import namespace_of
from tests.tools.stock.stock_programs import walk_through

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("fresh_stock"),
    # Dynamo reads .grad of non-leaf tensors
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]

SILENT = {"str", "chromium_event", "describe_tensor", "describe_storage", "describe_source", "dynamo_start", ""}


def train(fn: Callable[..., torch.Tensor], size: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(size)
    inputs = {name: torch.randn(size, requires_grad=True) for name in "xy"}
    fn(inputs).sum().backward()
    return inputs


class Handler(logging.Handler):
    """Collects what TORCH_TRACE would write."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[dict[str, Any], str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        event: Any = record
        self.events.append((event.metadata, getattr(event, "payload", None) or ""))


@contextmanager
def trace_events() -> Iterator[Handler]:
    handler, logger = Handler(), logging.getLogger("torch.__trace")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


@pytest.fixture(scope="module")
def observed() -> tuple[Record, Handler]:
    """A run of the walk-through function with empty caches: two sizes, forward and backward."""
    torch._dynamo.reset()
    compiled = torch.compile(walk_through)
    with fresh_cache(), trace_events() as handler, compiler_core.record(engine="torch") as record:
        train(compiled, 8)
        train(compiled, 16)
    return record, handler


def first(record: Record) -> Compile:
    return record.compiles[0]


def texts(record: Record, pane: str) -> list[str]:
    return [a.text for a in record.artifacts if a.pane == pane]


def test_nothing_failed(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    assert record.engine == "torch"
    assert [f.message for c in record.compiles for f in c.failures] == []
    assert record.notes == []
    assert Record.from_json(record.to_json()) == record


def test_ids_are_pytorchs(observed: tuple[Record, Handler]) -> None:
    record, handler = observed
    ids = {f"{m['frame_id']}/{m['frame_compile_id']}" for m, _ in handler.events if "frame_id" in m}
    assert {c.id for c in record.compiles} == ids
    assert {c.outcome for c in record.compiles} == {"compiled"}
    root, resume = record.frames
    assert (root.name, resume.name) == ("walk_through", "walk_through")
    assert (root.kind, resume.kind, resume.resumes) == ("root", "resume", root.compiles[0].id)


def test_every_artifact_that_pytorch_traces_is_there(observed: tuple[Record, Handler]) -> None:
    record, handler = observed
    have = {a.text for a in record.artifacts}
    wanted = [(m, text) for m, text in handler.events if text and not SILENT & m.keys()]
    assert len(wanted) > 60
    lookups = {each.key for compile_ in record.compiles for each in compile_.cache_lookups}
    as_data = {text for m, text in wanted if m.get("artifact", {}).get("name") in EVENTS}
    assert as_data
    assert {json.loads(text)["key"] for text in as_data} <= lookups
    assert [m for m, text in wanted if text not in have | as_data] == []


def test_graph_break_with_explanation_hints_and_link(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    (found,) = first(record).breaks
    assert found.kind == "Data-dependent branching"
    assert found.explanation.startswith("Detected data-dependent branching")
    assert found.hint == KINDS["data-dependent branch"].hint
    assert re.search(r"https://\S+gb0170.html", found.link)
    assert found.stack[-1].text == "if x.mean() > 0.5:"
    assert found.stack[-1].line
    assert record.text(found.stack[-1].line).strip() == "if x.mean() > 0.5:"
    assert found.resumes == [record.frames[1].id]


def test_guards_have_code_source_and_line(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    compile_ = first(record)
    guard = next(g for g in compile_.guards if g.kind == "TENSOR_MATCH")
    assert guard.source == "L['inputs']['x']"
    assert guard.code.startswith("check_tensor(L['inputs']['x'], Tensor")
    assert guard.line
    assert record.text(guard.line).strip() == 'x = inputs["x"].cos().cos()'
    assert compile_.guards_ns
    assert compile_.guards_ns > 0
    assert all(g.cost_ns for g in compile_.guards)
    assert sum(g.cost_ns or 0 for g in compile_.guards) == pytest.approx(compile_.guards_ns, rel=0.05)
    lines = texts(record, "guards")[0].split("\n")
    assert len(compile_.guards) == sum(bool(re.match(r"[| ]*\+- [A-Z_]+(:|$)", line)) for line in lines)


def test_recompile_names_its_guard(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    causes = [c.cause for c in record.compiles if c.cause]
    assert len(causes) == 2
    assert causes[0].of == first(record).id
    assert (causes[0].source, causes[0].expected, causes[0].got) == (
        "L['inputs']['x']",
        "8",
        "16",
    )
    assert causes[0].guard == next(g.code for g in first(record).guards if g.kind == "TENSOR_MATCH")


def test_graphs_of_all_stages(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    compile_ = first(record)
    panes = {a.pane for a in compile_.artifacts}
    assert panes >= {
        "bytecode", "generated", "decompiled", "guards", "captured", "pregrad", "joint", "forward", "backward",
        "postgrad", "passes", "kernel", "wrapper", "other",
    }  # fmt: skip
    captured = compile_.find("captured").graph
    assert captured
    assert [n.target for n in captured.nodes if n.op.startswith("call_")] == ["cos", "cos", "mean", "operator.gt"]
    node = next(n for n in captured.nodes if n.key == "x")
    assert (node.shape, node.dtype, node.device, node.bytes) == ([8], "float32", "cpu", 32)
    assert ["x", "mean"] in captured.edges
    partition = compile_.partition
    assert partition
    assert (partition.saved_count, partition.saved_bytes, partition.default_saved_count) == (1, 32, 2)
    assert [v.node.partition("#")[2] for v in partition.values if v.decision == "recomputed"] == ["cos"]


def lines_of(record: Record, compile_: Compile, kernel: str, text: str) -> set[str]:
    """Returns the user's lines that are linked to the lines of a kernel with this text."""
    artifact = next(a for a in compile_.artifacts if a.pane == "kernel" and a.name.startswith(kernel))
    items = [artifact.item(s.key) for s in artifact.spans if text in artifact.lines(s)]
    assert items
    linked = {i for item in items for i in record.linked(item) if i.startswith("src:")}
    return {record.text(item).strip() for item in linked}


def test_kernel_lines_lead_to_the_users_lines(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    for compile_ in record.frames[0].compiles:
        assert lines_of(record, compile_, "forward", ".cos()") == {'x = inputs["x"].cos().cos()'}
        assert lines_of(record, compile_, "backward", ".sin()") == {'x = inputs["x"].cos().cos()'}
    assert lines_of(record, first(record), "forward", "tmp2 > tmp3") == {"if x.mean() > 0.5:"}
    groups = [sorted(n.partition("#")[2] for n in f.nodes) for f in first(record).fusions]
    assert ["cos", "cos_1", "gt", "mean"] in groups


@pytest.mark.parametrize("before", ["", "Backward of forward node: "])  # as PyTorch 2.13 and 2.15 write it
def test_a_nodes_line_is_read_from_the_comment_above_it(before: str) -> None:
    text = f"""class GraphModule(torch.nn.Module):
    def forward(self, tangents_1: "f32[8][1]cpu"):
        # {before}File: /a/b.py:31 in f, code: x = y.cos()
        sin: "f32[8][1]cpu" = torch.ops.aten.sin.default(tangents_1)
        return (sin,)
"""
    assert read_graph(text).locations["sin"] == SourceLocation("/a/b.py", 31, "f", "x = y.cos()")


def test_bytecode_and_memory_plan(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    compile_ = first(record)
    assert "__compiled_fn" in compile_.find("decompiled").text
    assert "LOAD_FAST" in compile_.find("bytecode").text
    plan = compile_.find("forward.memory").text
    assert re.search(r"buf0 +32 B  line \d+: allocated", plan)


def test_each_phase_has_a_time(observed: tuple[Record, Handler]) -> None:
    record, _ = observed
    events = first(record).events
    names = {e.name for e in events}
    assert {"entire_frame_compile", "bytecode_tracing", "aot_trace_joint_graph", "GraphLowering.run"} <= names
    assert {"min_cut_rematerialization_partition", "Scheduler.codegen", "fx_graph_cache_miss"} <= names
    whole = next(e for e in events if e.name == "entire_frame_compile")
    assert all(e.end is not None and e.outcome == "ok" for e in events)
    inside = [e for e in events if e.name == "bytecode_tracing"]
    assert all(whole.start <= e.start <= (e.end or 0) <= (whole.end or 0) for e in inside)


def small(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).exp()


def test_provenance_survives_pytorchs_cache() -> None:
    with fresh_cache():
        for state in ("miss", "hit"):
            torch._dynamo.reset()
            with compiler_core.record(engine="torch") as record:
                torch.compile(small)(torch.ones(4))
            compile_ = first(record)
            assert any(e.name.endswith(f"cache_{state}") for e in compile_.events), state
            assert lines_of(record, compile_, "forward", ".sin()") == {"return (x.sin() + 1).exp()"}
            assert compile_.fusions[0].nodes


def test_lines_of_a_cached_graph_follow_the_file() -> None:
    """PyTorch's cache gives the graph of an earlier run, in which the line had another number."""
    script = "def program(x):\n    return (x.sin() + 1).exp()\n"
    with fresh_cache():
        for added in ("", "# a line above\n\n", "# one\n# two\n# three\n"):
            torch._dynamo.reset()
            program = namespace_of(added + script, "edited.py")["program"]
            with compiler_core.record(engine="torch") as record:
                torch.compile(program)(torch.ones(4))
            assert any(each.outcome == "hit" for each in first(record).cache_lookups) == bool(added)
            assert lines_of(record, first(record), "forward", ".sin") == {"return (x.sin() + 1).exp()"}


def without_ids(codes: list[str]) -> list[str]:
    return [re.sub(r"AOT ID: \['\d+", "AOT ID: ['n", code) for code in codes]


@contextmanager
def collected_codes(codes: list[str]) -> Iterator[None]:
    with trace_events() as handler:
        yield
    codes += [text for metadata, text in handler.events if "inductor_output_code" in metadata]


@contextmanager
def recorded(codes: list[str], **options: Any) -> Iterator[None]:
    with compiler_core.record(engine="torch", **options) as record:
        yield
    codes += [text for compile_ in record.compiles for text in wrappers(compile_)]


def wrappers(compile_: Compile) -> list[str]:
    return [a.text for a in compile_.artifacts if a.pane == "wrapper" and ".wrapper" in a.name]


def test_stock_does_the_same_with_and_without() -> None:
    """Graphs, recompiles, output code and gradients are equal without, with, and with full observation."""
    full = functools.partial(recorded, steps=True, logs=True)
    ways: list[Callable[[list[str]], Any]] = [collected_codes, recorded, full]
    created = []
    for around in ways:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled, codes = torch.compile(walk_through), list[str]()
        with torch._inductor.config.patch(fx_graph_cache=False), around(codes):
            values = [train(compiled, size) for size in (8, 16)]
        stats = dict(torch._dynamo.utils.counters["stats"])
        created.append((stats, sorted(without_ids(codes)), [i[name].grad for i in values for name in "xy"]))
    for stats, code, grads in created[1:]:
        assert stats == created[0][0]
        assert code == created[0][1]
        assert len(code) == 8
        torch.testing.assert_close(grads, created[0][2], rtol=0, atol=0)


def test_deferred_texts_equal_pytorchs() -> None:
    """If somebody else reads PyTorch's log, texts are printed at once; otherwise when the record closes."""
    created = []
    for around in (nullcontext, trace_events):
        torch._dynamo.reset()
        with (
            torch._inductor.config.patch(fx_graph_cache=False),
            around(),
            compiler_core.record(engine="torch") as record,
        ):
            train(torch.compile(walk_through), 8)
        graphs = [a for c in record.compiles for a in c.artifacts if a.graph or a.pane == "guards"]
        created.append([(a.name, re.sub(r"graph id: \d+|Guard latency.*|\d{9,}", "", a.text)) for a in graphs])
    assert len(created[0]) > 20
    assert created[0] == created[1]


def changed_by_observer() -> list[Any]:
    """Returns the functions and lists that the observer changes."""
    import torch._dynamo.convert_frame as convert_frame

    functions = map(torch_internals.kernel_provenance_function, torch_internals.KERNEL_MODULES)
    places = [getattr(*function) for function in functions]
    refusal, passes = torch_internals.fusion_refusal_class(), torch_internals.pass_observer()
    places += [refusal.__call__, passes.__enter__, passes.__exit__, torch.fx.GraphModule.print_readable]
    places += [
        torch_internals.autotune_cache()[0].__init__,
        list(getattr(torch_internals.autotune_cache()[1], "feedback_saver_fns", ())),
        list(getattr(torch_internals.cudagraphs_log(), "handlers", ())),
    ]
    return [*places, list(logging.getLogger("torch.__trace").handlers), dict(convert_frame._bytecode_hooks)]


def test_all_hooks_are_taken_off_whatever_happens() -> None:
    before = changed_by_observer()
    with contextlib.suppress(ZeroDivisionError), compiler_core.record(engine="torch"):
        assert changed_by_observer() != before
        raise ZeroDivisionError
    assert changed_by_observer() == before


def test_an_error_of_the_observer_stays_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("our bug")

    monkeypatch.setattr(RecordBuilder, "add", broken)
    monkeypatch.setattr("compiler_core.tools.stock.observer._node_names", broken)
    x = torch.ones(3)
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.testing.assert_close(torch.compile(small)(x), small(x))
    assert record.notes
    assert all("RuntimeError: our bug" in note for note in record.notes)


def test_an_unreadable_event_is_a_failure_of_its_compile() -> None:
    record = Record()
    builder = RecordBuilder(record, 0)
    ids = {"frame_id": 3, "frame_compile_id": 1}
    builder.add(parse_event({"chromium_event": {}, **ids}, "{", 0))
    assert "chromium_event" in record.notes[0]
    builder.add(parse_event({"dynamo_cpp_guards_str": {}, **ids}, "no tree", 0))
    builder.process_pending()
    builder.add(parse_event({"chromium_event": {}, **ids}, "{", 0))
    builder.close()
    (compile_,) = record.compiles
    assert (compile_.id, compile_.guards) == ("3/1", [])
    assert "chromium_event" in compile_.failures[0].message


def test_options_reach_the_stock_compiler() -> None:
    with compiler_core.record(engine="torch") as record:
        torch.compile(small, backend="aot_eager", dynamic=True)(torch.ones(4))
    compile_ = first(record)
    graph = compile_.find("forward").graph
    assert graph
    assert any(isinstance(size, str) for node in graph.nodes for size in node.shape or [])
    assert compile_.kernels == []
    assert "symbols" in [a.name for a in compile_.artifacts]
    (symbol,) = compile_.symbols
    assert (symbol.source, symbol.value, symbol.low, symbol.high) == ("L['x'].size()[0]", 4, 2, None)
    assert symbol.line is not None
    assert compile_.backend == "aot_eager"


def not_fused(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x, -1), x.t().contiguous().sin()


def test_reasons_for_not_fusing() -> None:
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.compile(not_fused)(torch.ones(8, 16))
    refusals = first(record).refusals
    assert refusals
    assert all(refusal.reason.startswith(refusal.kind) for refusal in refusals)
    names = {name for refusal in refusals for name in (refusal.first, refusal.second)}
    assert any(re.match(r"op\d.* \(.*(exp|sum_1|amax).*\)", name) for name in names), names


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")  # PyTorch's own warnings about storage
def test_autotuning_records_all_choices() -> None:
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.compile(product, options={"max_autotune": True})(torch.ones(2, 32, 64), torch.ones(2, 64, 32))
    name, *tried = first(record).find("autotuning").text.splitlines()
    assert name == "bmm(2x32x64, 2x64x32)"
    assert {row.split()[2].partition("_")[0] for row in tried} == {"bmm", "cpp"}
    times = [float(row.split()[0]) for row in tried]
    assert times == sorted(times)


def test_reason_for_skipped_cuda_graphs() -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    with compiler_core.record(engine="torch") as record:
        torch.compile(small, backend="eager")(torch.ones(4))
        log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs")
    assert [graph.reason for graph in first(record).cuda_graphs] == ["skipping cudagraphs due to mutated inputs"]
    assert [(p.kind, p.cause) for p in record.problems] == [
        ("no CUDA graph", "Skipping cudagraphs due to mutated inputs.")
    ]


def test_a_graph_on_the_cpu_has_no_cuda_graph() -> None:
    with compiler_core.record(engine="torch") as record:
        torch.compile(small, mode="reduce-overhead")(torch.ones(4))
    assert [graph.reason for graph in first(record).cuda_graphs] == [
        "CUDA graphs need CUDA tensors, and some are on cpu"
    ]


def without_cos(gm: torch.fx.GraphModule, _: object) -> Any:
    for node in gm.graph.find_nodes(op="call_method", target="cos"):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    gm.recompile()
    return gm.forward


def test_the_graph_after_a_backend_that_changes_it() -> None:
    with compiler_core.record(engine="torch") as record:
        torch.compile(lambda x: x.sin().cos(), backend=without_cos)(torch.ones(4))
        torch.compile(lambda x: x.sin().cos() + 1, backend="eager")(torch.ones(4))
    changed, same = record.compiles
    after = changed.find("backend.without_cos")
    assert after.graph is not None
    assert [node.key for node in after.graph.nodes] == ["l_x_", "sin", "output"]
    assert changed.find("captured").item("sin") in record.linked(after.item("sin"))
    assert not [artifact for artifact in same.artifacts if artifact.pane == "passes"]


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.scales = {"a": 2, "b": 3}
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for layer in self.layers:
            x = layer(x).cos()
        for scale in self.scales.values():
            x = x * scale
        return x * self.calls


def test_each_guard_has_the_source_that_its_code_names() -> None:
    with compiler_core.record(engine="torch") as record:
        torch.compile(Counting(), backend="eager")(torch.ones(4))
    guards = first(record).guards
    assert len(guards) > 40
    named = [g for g in guards if g.code != g.kind]  # from 2.14 on, some print their kind alone
    wrong = [g for g in named if g.source not in (g.code, "torch's global state") and g.source not in g.code]
    assert not wrong
    assert all(g.source for g in guards)
    assert not [g for g in guards if re.search(r"\d{8}", g.expected)]


RATE = 0.1


class Normalized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return y * RATE


def test_guards_inside_modules_of_pytorch_have_the_line_of_their_call_and_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with compiler_core.record(engine="torch") as record:
        compiled = torch.compile(Normalized(), backend="eager")
        compiled(torch.ones(5, 4))
        monkeypatch.setitem(globals(), "RATE", 0.2)
        compiled(torch.ones(6, 4))
    guards = [guard for compile_ in record.compiles for guard in compile_.guards]
    without = [g for g in guards if g.line is None and g.source != "torch's global state"]
    assert not without
    (line,) = {record.text(g.line).strip() for g in guards if "['1'].eps" in g.code and g.line}
    assert line == "y: torch.Tensor = self.body(x)"
    meanings = {guard.meaning for guard in guards}
    assert "self.body[1].eps is 1e-05" in meanings
    assert "RATE is not NaN" in meanings
    unreadable = [g.code for g in guards if not g.meaning and re.search(r"_{3}|_dot_|\d{9}|isnan|e\+308", g.code)]
    assert not unreadable


def test_a_counter_is_no_reason_for_dynamic_sizes() -> None:
    with compiler_core.record(engine="torch") as record:
        compiled = torch.compile(Counting(), backend="eager")
        for _ in range(3):
            compiled(torch.ones(4))
    (problem,) = record.problems
    assert (problem.kind, problem.title, problem.count) == ("recompile", "recompiled: self.calls changed", 2)
    assert "register_buffer" in problem.advice


def test_core_compiles_are_not_in_a_stock_record() -> None:
    with compiler_core.record(engine="torch") as record:
        compiler_core.compile(small, backend="eager")(torch.ones(4))
    assert record.compiles == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_already_compiled(backend: str) -> None:
    compiled = torch.compile(walk_through, backend=backend)
    with fresh_cache():
        train(compiled, 8)
        record = compiler_core.already_compiled(compiled)
    root, resume = record.frames
    assert (root.name, resume.kind, resume.name) == ("walk_through", "resume", "walk_through")
    compile_ = first(record)
    assert not compile_.failures
    assert any(g.kind == "TENSOR_MATCH" and g.source == "L['inputs']['x']" for g in compile_.guards)
    panes = {a.pane for a in compile_.artifacts}
    wanted = {
        "eager": {"captured"},
        "aot_eager": {"forward", "backward"},
        "inductor": {"kernel", "wrapper", "postgrad"},
    }
    assert panes >= {"bytecode", "generated", "decompiled", "guards", *wanted[backend]}
    if backend == "inductor":
        assert lines_of(record, compile_, "forward", ".cos()") == {'x = inputs["x"].cos().cos()'}
        assert [k.graph for k in compile_.kernels] == ["forward", "backward"]


def test_already_compiled_without_a_compile() -> None:
    with pytest.raises(UsageError, match="small was not compiled"):
        compiler_core.already_compiled(small)


def helper(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    return [a * b, a]


def with_helper(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both = helper(x.cos(), y)
    print("a graph break")
    return both[0] + both[1]


def test_steps_change_nothing_and_are_all_there() -> None:
    created = []
    for steps in (False, True):
        torch._dynamo.reset()
        with contextlib.redirect_stdout(None), compiler_core.record(engine="torch", steps=steps) as record:
            torch.compile(with_helper, backend="eager")(torch.ones(3), torch.ones(3))
        assert record.notes == []
        created.append(record)
    plain, stepped = ([[a.text for a in c.artifacts if a.pane == "captured"] for c in r.compiles] for r in created)
    assert plain == stepped
    assert [len(c.guards) for c in created[0].compiles] == [len(c.guards) for c in created[1].compiles]
    compile_ = first(created[1])
    assert [s.outcome for s in compile_.steps][-1] == "captured"
    states = [compile_.replay().state(n) for n in range(len(compile_.replay()))]
    inside = next(s for s in states if s.calls[-1].name == "helper" and s.calls[-1].instruction.startswith("BINARY_OP"))
    assert [call.name for call in inside.calls] == ["with_helper", "helper"]
    assert inside.calls[-1].stack == ["Tensor mul"]
    assert "mul = mul" in [note.text for note in inside.added]
    stored = next(s for s in states if "STORE_FAST both" in s.calls[-1].instruction)
    assert stored.calls[-1].locals["both"] == "List"
    assert Record.from_json(created[1].to_json()) == created[1]


class Doubling:
    def __init__(self) -> None:
        super().__init__()

    def product(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        if y is None:
            y = x
        return x[1:] * y[1:]


class Doubled(Doubling):
    def product(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        a, b, c = super().product(x, y), x, 2
        return a - b[1:] / c


def test_a_step_has_its_own_instruction_where_dynamo_replaces_some() -> None:
    """It replaces ``is None`` and ``super()``, and from 3.12 on slices and pairs of loads."""
    torch._dynamo.reset()
    with compiler_core.record(engine="torch", steps=True) as record:
        torch.compile(Doubled().product, backend="eager")(torch.ones(3))
    replay = first(record).replay()
    states = [replay.state(number) for number in range(len(replay))]
    made = [(note.text, state.calls[-1].instruction) for state in states for note in state.added if note.kind == "node"]
    operations = [("mul = mul", "BINARY_OP *"), ("truediv = truediv", "BINARY_OP /"), ("sub = sub", "BINARY_OP -")]
    assert [each for each in made if each in operations] == operations


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y[y > 0].mean()


def of_masked(x: torch.Tensor) -> torch.Tensor:
    return masked(x) * 2


def test_the_stack_of_a_break_begins_with_the_compiled_function() -> None:
    with compiler_core.record("masked", engine="torch") as record:
        torch.compile(of_masked, backend="eager")(torch.ones(3))
    stacks = [[line.function for line in each.stack] for compile_ in record.compiles for each in compile_.breaks]
    assert ["of_masked", "masked"] in stacks
    assert all(stack[0] in ("of_masked", "masked") for stack in stacks)


def test_a_graph_that_the_backend_refuses_is_no_nameless_break() -> None:
    def program(x: torch.Tensor) -> None:
        y = x * 2
        y[y > 1] *= 3  # its gradient has a size that is not known
        y.sum().backward()

    with compiler_core.record(engine="torch") as record:
        torch.compile(program, backend="aot_eager")(torch.ones(3, requires_grad=True))
    kinds = [each.kind for compile_ in record.compiles for each in compile_.breaks]
    assert "Backend compiler exception" in kinds
    assert "" not in kinds


def test_a_constant_in_a_list_is_named_as_the_user_writes_it() -> None:
    def weighted(xs: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
        return sum(x * w for x, w in zip(xs, weights, strict=True))  # type: ignore[return-value]

    with compiler_core.record(engine="torch") as record:
        compiled = torch.compile(weighted, backend="eager")
        for weights in ([1.0, 1.0, 1.0], [1.0, 0.5, 1.0, 1.0]):
            compiled([torch.ones(2)] * len(weights), weights)
    cause = record.compiles[1].cause
    assert cause is not None
    assert [(each.name, each.got) for each in cause.besides] == [("weights", "4"), ("weights[1]", "0.5")]
    record.find_problems()
    assert "Nothing" not in record.problems[0].advice  # since lists of other lengths are compiled again


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), "Sequential"),
        (torch.nn.functional.softplus, "softplus"),
        (torch.nn.functional.normalize, "normalize"),
    ],
    ids=["module", "builtin", "function"],
)
def test_what_a_library_runs_has_its_name_and_the_line_that_calls_it(function: Any, name: str) -> None:
    compiled = torch.compile(function, backend="aot_eager")
    with compiler_core.record(engine="torch") as made:
        compiled(torch.randn(4, 3))
    (compile_,) = made.compiles
    assert [frame.name for frame in made.frames] == [name]
    assert compile_.caller is not None
    assert compile_.caller.text == "compiled(torch.randn(4, 3))"
    for artifact in compile_.artifacts:
        if artifact.pane in ("captured", "forward") and artifact.graph is not None:
            computed = [node.key for node in artifact.graph.nodes if node.op.startswith("call_")]
            assert computed
            assert all(compile_.caller.line in made.linked(artifact.item(key)) for key in computed)


def test_compiles_after_a_reset_are_others() -> None:
    """PyTorch counts its frames from 0 again."""

    def sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
        return x.cos() * by

    def halved(x: torch.Tensor) -> torch.Tensor:
        print("a graph break")
        return scaled(x, 1) / 2

    with compiler_core.record(engine="torch") as record:
        torch.compile(sine, backend="eager")(torch.ones(3))
        torch._dynamo.reset()
        compiled = torch.compile(scaled, backend="eager")
        for by in (2, 3):
            compiled(torch.ones(3), by)
        torch._dynamo.reset()
        torch.compile(halved, backend="eager")(torch.ones(3))
    assert [(frame.name, [c.id for c in frame.compiles]) for frame in record.frames] == [
        ("sine", ["0/0"]), ("scaled", ["1/0", "1/1"]), ("halved", ["2/0"]), ("halved", ["3/0"]),
    ]  # fmt: skip
    (cause,) = [each.cause for each in record.compiles if each.cause]
    assert (cause.name, cause.of) == ("by", "1/0")
    assert [each.failures for each in record.compiles] == [[]] * 5
    lines = {line for each in record.compiles for guard in each.guards if (line := guard.line)}
    assert all(record.line_text(line).strip().startswith(("return", "print")) for line in lines)
