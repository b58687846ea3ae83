# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Stock torch.compile behaves as it does alone; this compiler is right beside other threads, tracers and processes."""

from __future__ import annotations

import cProfile
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.errors import UsageError
from compiler_core.pipeline import compiled_region
from tests import warm_python
from tests.hook.coexist import PROGRAMS
from tests.sampling import sample

ROOT = Path(__file__).parents[2]
NAMES = [run.__name__ for run in PROGRAMS]


@pytest.fixture(scope="module")
def runs(request):
    """What stock did in each program of coexist.py that is tested, alone and beside this compiler."""
    test = test_stock_does_what_it_does_alone
    tested = [item for item in request.session.items if getattr(item, "function", None) is test]
    command = ["-m", "tests.hook.coexist", *(item.callspec.params["name"] for item in tested)]
    alone = subprocess.run([sys.executable, *command, "alone"], cwd=ROOT, capture_output=True, text=True)
    found = []
    for run in (alone, warm_python.run([*command, "ours"])):
        assert run.returncode == 0, run.stderr[-3000:]
        assert "Exception ignored" not in run.stderr, run.stderr[-3000:]
        found.append({line[0]: line[1:] for line in map(json.loads, run.stdout.splitlines())})
    return found


@pytest.mark.parametrize("name", sample(NAMES, 5))
def test_stock_does_what_it_does_alone(runs, name):
    alone, beside = runs
    parts = ("results", "graphs", "counts", "breaks", "guards")
    for what, want, got in zip(parts, alone[name], beside[name], strict=True):
        assert got == want, what


@pytest.mark.usefixtures("fresh_stock")
def test_entries_of_this_compiler_are_not_taken_for_stocks():
    """Outside the main thread, and before PyTorch 2.13, both are in one list."""

    def callee(x):
        return x.sin() + 1

    ours = cc.compile(lambda x: callee(x) + len(locals()), backend="eager", strict=True)
    thread = threading.Thread(target=ours, args=(torch.ones(3),))
    thread.start()
    thread.join()
    with pytest.raises(UsageError, match="was not compiled by"):
        cc.already_compiled(callee)
    with cc.record(engine="torch") as record:
        stock = torch.compile(callee, backend="eager")
        stock(torch.ones(4)), stock(torch.ones(5))
    first, second = record.compiles
    assert not first.cause
    assert (second.cause.of, second.cause.got) == (first.id, "5")
    assert len(cc.already_compiled(callee).compiles) == 2


def test_frames_are_decided_on_once_also_in_a_thread(monkeypatch):
    """There, decisions are not stored in code objects, where stock torch.compile would find them."""

    def program(x):
        y = x + 1
        cc.graph_break()
        return y * len(json.dumps([1, {"a": 2}], indent=1))  # the encoder is a generator in Python

    asked = []
    decide = compiled_region.Region.decide
    monkeypatch.setattr(compiled_region.Region, "decide", lambda *args: asked.append(args[1].code) or decide(*args))
    compiled, x, found = cc.compile(program, backend="eager"), torch.ones(3), []

    def run():
        for _ in range(3):
            found.append((compiled(x), len(asked)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert all(torch.equal(result, program(x)) for result, _ in found)
    assert found[0][1] > 2
    assert found[0][1] == found[2][1], asked[found[0][1] :]
    cc.reset()
    compiled(x)
    assert len(asked) > found[2][1]


def test_callbacks_of_the_garbage_collector_are_not_compiled():
    def callback(phase, info):
        calls.append(time.perf_counter())

    def program(x):
        y = x + 1
        gc.collect()
        return y * 2

    calls = []
    gc.callbacks.append(callback)
    try:
        with cc.record() as record:
            assert torch.equal(cc.compile(program, backend="eager")(torch.ones(2)), torch.full((2,), 4.0))
    finally:
        gc.callbacks.remove(callback)
    assert calls
    assert [frame.name for frame in record.frames if frame.compiles] == ["program", record.frames[-1].name]
    assert sum(len(compile_.breaks) for frame in record.frames for compile_ in frame.compiles) == 1


def helper(x):
    if x.sum() > 1000:
        return x
    return x + 1


def program(x, n):
    y = helper(x) * n
    print("", end="")
    return helper(y) - n


def test_one_compiled_function_in_many_threads():
    compiled = cc.compile(program, backend="eager", strict=True, recompile_limit=50)
    wrong = []

    def work(n):
        for i in range(6):
            x = torch.full((1 + (n + i) % 3,), float(n))
            if not torch.equal(compiled(x, n), program(x, n)):
                wrong.append((n, i))

    run_all(work, range(5))
    assert not wrong


def run_all(work, items):
    failed = []

    def guarded(item):
        try:
            work(item)
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=guarded, args=(item,)) for item in items]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed


def test_nested_regions_in_many_threads():
    inner = cc.compile(helper, backend="eager", strict=True)

    def work(n):
        own = cc.compile(lambda x: inner(x) + n, backend="eager", strict=True)
        outer = cc.compile(lambda x: own(x) * 2, backend="eager", strict=True)
        for _ in range(3):
            x = torch.ones(n + 1)
            assert torch.equal(outer(x), (x + 1 + n) * 2)

    run_all(work, range(4))


def test_compiled_in_one_thread_and_called_in_others():
    compiled = cc.compile(program, backend="eager", strict=True)
    x = torch.ones(3)
    want = program(x, 2)
    run_all(lambda _: torch.equal(compiled(x, 2), want) or pytest.fail("differs"), [0])
    count = len(record_of(compiled).compiles)
    run_all(lambda _: torch.equal(compiled(x, 2), want) or pytest.fail("differs"), range(3))
    assert torch.equal(compiled(x, 2), want)
    assert len(record_of(compiled).compiles) == count


def test_data_loader_workers():
    compiled = cc.compile(lambda x: x * 2 + 1, backend="eager", strict=True)

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return compiled(torch.tensor([float(i)]))

    compiled(torch.tensor([0.0]))
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=workers, multiprocessing_context=None)
        assert torch.cat([*loader]).flatten().tolist() == [2.0 * i + 1 for i in range(8)]


@pytest.mark.own_process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork():
    compiled = cc.compile(program, backend="eager", strict=True)
    x = torch.ones(3)
    want = compiled(x, 2)
    child = os.fork()
    if child == 0:
        same = torch.equal(compiled(x, 2), want) and torch.equal(compiled(torch.ones(5), 3), program(torch.ones(5), 3))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(compiled(x, 2), want)


def test_a_generator_outlives_the_call():
    def numbers(x):
        for i in range(3):
            yield x + i

    compiled = cc.compile(lambda x: (y for y in numbers(x * 2)), backend="eager")
    left = compiled(torch.ones(1))
    other = cc.compile(helper, backend="eager")
    other(torch.ones(1))
    assert [v.item() for v in left] == [2, 3, 4]


def test_recursion_through_the_compiled_function():
    @cc.compile(backend="eager")
    def count(n, x):
        return x if n == 0 else count(n - 1, x + 1)

    assert count(3, torch.zeros(1)).item() == 3
    assert count(3, torch.zeros(1)).item() == 3


def test_exceptions_leave_no_hook():
    from torch._C._dynamo import eval_frame

    def fails(x, error):
        helper(x)
        raise error

    compiled = cc.compile(fails, backend="eager")
    before = eval_frame.get_eval_frame_callback()
    for error in (ValueError("one"), KeyboardInterrupt(), SystemExit(), GeneratorExit()):
        for _ in range(2):
            with pytest.raises(type(error)):
                compiled(torch.ones(1), error)
            assert eval_frame.get_eval_frame_callback() is before


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile])
def test_under_a_tracer(install):
    log = []
    compiled = cc.compile(program, backend="eager", strict=True)
    x = torch.ones(3)
    want = program(x, 2)
    former = sys.gettrace() if install is sys.settrace else sys.getprofile()
    install(lambda frame, event, arg: log.append(event))
    try:
        got = [compiled(x, 2), compiled(x, 2)]
    finally:
        install(former)
    assert log
    for each in (*got, compiled(x, 2)):
        assert torch.equal(each, want)


def test_under_a_profiler():
    compiled = cc.compile(program, backend="eager", strict=True)
    x = torch.ones(3)
    with cProfile.Profile():
        first = compiled(x, 2)
    assert torch.equal(first, program(x, 2))
    with torch.profiler.profile(acc_events=True):  # some versions warn without it
        assert torch.equal(compiled(x, 2), first)


@cc.compile(backend="eager")
def decorated(x):
    return x + 5


def test_a_decorated_function_is_pickled_by_name():
    again = pickle.loads(pickle.dumps(decorated))
    assert again is decorated
    assert again(torch.zeros(1)).item() == 5
