# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""What is freed of compiled functions after they are deleted: cache entries, graphs and guards."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch._C._dynamo import eval_frame

import compiler_core as cc
from compiler_core.api.compiled import _regions
from compiler_core.capture.interpreter import Interpreter
from compiler_core.guards import GuardSpec
from compiler_core.hook import skip_rules
from compiler_core.pipeline.compiled_region import Region


def entries(fn):
    return len(eval_frame._debug_get_cache_entry_list(fn.__code__))


def make_helper():
    source = "def helper(x):\n    if x.sum() > 100:\n        return x\n    return x + 1\n"
    space = {}
    exec(compile(source, "helper.py", "exec"), space)
    return space["helper"]


@pytest.fixture
def helper():
    return make_helper()


def run_once(helper, backend="eager"):
    """Compiles and runs a function that calls `helper`, which breaks the graph."""
    compiled = cc.compile(lambda x: helper(x) * 2, backend=backend)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    return compiled


def test_entries_stay_flat(helper):
    counts = []
    for _ in range(12):
        run_once(helper)
        gc.collect()
        counts.append(entries(helper))
    assert max(counts) <= 2, counts


def test_memory_stays_flat():
    """No object of a compile outlives its function: neither regions nor guards nor graphs."""
    kinds = (Region, GuardSpec, torch.fx.GraphModule, Interpreter)
    counts = []
    for i in range(50):
        compiled = cc.compile(lambda x: x + 1, backend="eager")
        compiled(torch.ones(2))
        del compiled
        if i in (9, 49):
            gc.collect()
            counts.append([sum(issubclass(type(o), kind) for o in gc.get_objects()) for kind in kinds])
    assert all(late <= early for early, late in zip(*counts, strict=True)), counts


def test_an_autograd_function_of_the_user_is_freed():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    function = weakref.ref(Twice)
    cc.compile(lambda x: Twice.apply(x))(torch.ones(2, requires_grad=True)).sum().backward()
    del Twice
    cc.reset()
    gc.collect()
    assert function() is None


def test_the_names_of_generated_files_are_not_kept_for_ever():
    for number in range(skip_rules._CACHED_FILES + 1):
        skip_rules.is_library_file(f"<generated {number}>")
    assert skip_rules.is_library_file.cache_info().currsize == skip_rules._CACHED_FILES
    assert skip_rules._file_skip_reason.cache_info().currsize == skip_rules._CACHED_FILES


def test_what_a_graph_holds_is_freed(helper):
    graphs = []

    def backend(gm, inputs):
        graphs.append(weakref.ref(gm))
        return gm.forward

    for _ in range(3):
        run_once(helper, backend)
    cc.reset()  # the last one is kept for the next function of this code
    gc.collect()
    assert graphs
    assert [g() for g in graphs] == [None] * len(graphs)


def test_a_region_in_use_keeps_its_entries(helper):
    kept = run_once(helper)
    compiles = len(cc.api.compile.record_of(kept).compiles)
    for _ in range(5):
        run_once(helper)
        assert torch.equal(kept(torch.ones(2)), torch.full((2,), 4.0))
    assert len(cc.api.compile.record_of(kept).compiles) == compiles


def test_entries_of_stock_stay(helper):
    log = []

    def backend(gm, inputs):
        log.append(gm)
        return gm.forward

    stock = torch.compile(helper, backend=backend)
    stock(torch.ones(2))
    count = len(log)
    for _ in range(5):
        run_once(helper)
        assert torch.equal(stock(torch.ones(2)), torch.full((2,), 2.0))
    assert len(log) == count
    torch._dynamo.reset()


def test_reset_frees_ours_only(helper):
    cc.reset()
    log = []

    def backend(gm, inputs):
        log.append(gm)
        return gm.forward

    stock, ours = torch.compile(helper, backend=backend), run_once(helper)
    stock(torch.ones(2))
    before = len(log), len(cc.api.compile.record_of(ours).compiles)
    cc.reset()
    assert torch.equal(stock(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(ours(torch.ones(2)), torch.full((2,), 4.0))
    assert len(log) == before[0]
    assert len(cc.api.compile.record_of(ours).compiles) == before[1]  # a new record with the same number of compiles
    torch._dynamo.reset()


def test_what_is_compiled_again_in_each_call_is_compiled_twice():
    """The first function that is deleted frees its code; from the second on, the next one takes it over."""
    log = []

    def backend(gm, inputs):
        log.append(gm)
        return gm.forward

    def step(x, scale):
        return cc.compile(lambda y: y * scale, backend=backend)(x)

    for scale in (2.0, 2.0, 2.0, 3.0, 3.0):
        assert torch.equal(step(torch.ones(2), scale), torch.full((2,), scale))
    assert len(log) == 3
    cc.reset()
    assert torch.equal(step(torch.ones(2), 2.0), torch.full((2,), 2.0))
    assert len(log) == 4


def test_what_is_compiled_again_for_other_modules_is_never_given_up():
    def last_reason(net):
        compiled = cc.compile(net, backend="eager", recompile_limit=4)
        compiled(torch.ones(1, 2))
        return cc.api.compile.record_of(compiled).frames[0].limit_reached

    assert not any(last_reason(torch.nn.Linear(2, size)) for size in range(1, 12))


def test_the_limit_is_counted_anew_after_reset():
    compiled = cc.compile(lambda x, n: x + n, backend="eager", recompile_limit=2)
    for n in range(4):
        compiled(torch.ones(1), n)
    record = cc.api.compile.record_of(compiled)
    assert len(record.compiles) == 2
    cc.reset()
    compiled(torch.ones(1), 9)
    assert len(record.compiles) == 2
    assert len(cc.api.compile.record_of(compiled).compiles) == 1


def test_the_limit_counts_what_is_there(helper):
    """Entries that stock's reset removed are compiled again and do not count towards the limit."""
    compiled = cc.compile(lambda x: helper(x) + 1, backend="eager", recompile_limit=2)
    for _ in range(4):
        compiled(torch.ones(1))
        for state in _regions[compiled].states.values():
            for entry in state.entries:
                eval_frame.reset_code(entry.code)
    assert not cc.api.compile.record_of(compiled).notes
    assert len(cc.api.compile.record_of(compiled).compiles) >= 4
