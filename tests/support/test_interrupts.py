"""Tests of interrupts and other signals while code is compiled, built and run: none is lost, and all state is
restored."""

from __future__ import annotations

import dis
import gc
import inspect
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Literal

import pytest
import torch
from torch._C._dynamo import guards as cpp
from torch._dynamo.utils import ExactWeakKeyDictionary, dynamo_timed
from torch.fx._symbolic_trace import _Patcher

import compiler_core
from compiler_core import guards
from compiler_core.autograd.trace import writes
from compiler_core.guards.value_guards import same_constant
from compiler_core.hook import frame_hook
from compiler_core.support import interrupts
from tests import warm_python
from tests.limits import HANG_S
from tests.sampling import sample

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("_interruptible")]

ROOT = Path(compiler_core.__file__).parents[1]


class TimeLimit(Exception):
    """An exception that a program raises from a signal handler."""


@pytest.fixture
def handled_signals() -> Iterator[list[int]]:
    """The signals whose handlers have run."""
    found: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGUSR1, before)


def tree_with(check: Callable[[Any], bool]) -> Any:
    root: Any = cpp.RootGuardManager()
    root.add_lambda_guard(interrupts.guard_function(check), ["a guard"], None)
    return root


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeLimit("after 3 s", 3), SystemExit(2)])
def test_what_a_handler_raises_in_a_guard_is_kept(error: BaseException) -> None:
    def check(obj: Any) -> bool:
        if interrupted:
            raise interrupted.pop()
        return True

    interrupted, tree = [error], tree_with(check)
    assert not tree.check({})
    with pytest.raises(type(error)) as raised:
        interrupts.raise_guard_error()
    assert raised.value is error
    interrupts.raise_guard_error()
    assert tree.check({})


def test_what_a_handler_raises_in_a_guard_may_be_of_a_class_of_failures() -> None:
    class TooLate(ValueError):
        pass

    def handler(number: int, frame: Any) -> None:
        raise TooLate

    def check(obj: Any) -> bool:
        if obj == "missing":
            raise TooLate
        if interrupted:
            interrupted.pop()
            signal.raise_signal(signal.SIGUSR1)
        return True

    interrupted, tree, before = [True], tree_with(check), signal.signal(signal.SIGUSR1, handler)
    try:
        assert not tree.check({})
        with pytest.raises(TooLate):
            interrupts.raise_guard_error()
        assert not tree.check("missing")  # raised by the guard itself: it does not hold
        interrupts.raise_guard_error()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("others", [[], [0]])
def test_an_interrupt_in_a_guard_is_raised_by_that_call(others: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised even if guards of other compiles then hold."""
    numbers, interrupted = [-0.0], [KeyboardInterrupt()]
    compiled = compiler_core.compile(lambda x: x * numbers[0], backend="eager")
    for number in (*others, -0.0):
        numbers[0] = number
        compiled(torch.ones(1))

    def same(a: Any, b: Any) -> bool:
        if interrupted:
            raise interrupted.pop()
        return real(a, b)

    real = same_constant
    monkeypatch.setattr(guards.value_guards, "same_constant", same)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(1))
    assert torch.signbit(compiled(torch.ones(1)))


def test_an_interrupt_in_a_guard_is_raised_by_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later call must not raise it."""
    numbers, checked = [-0.0, 1.0], []

    def program(x: torch.Tensor, fails: bool) -> torch.Tensor:
        y = inner(x)
        if fails:
            raise ValueError
        return y

    def inner(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x * numbers[0]

    def same(a: Any, b: Any) -> bool:
        checked.append(a)
        if interrupted:
            raise interrupted.pop()
        return real(a, b)

    compiled, interrupted, real = compiler_core.compile(program, backend="eager"), list[BaseException](), same_constant
    for fails in (False, True):
        with suppress(ValueError):
            compiled(torch.ones(1), fails)
    monkeypatch.setattr(guards.value_guards, "same_constant", same)
    interrupted.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(1), True)
    assert checked
    compiled(torch.ones(1), False)


def test_a_guard_that_is_too_deep_in_the_stack_does_not_hold() -> None:
    def check(obj: Any) -> bool:
        return obj["depth"] == 0 or check({"depth": obj["depth"] - 1})

    tree = tree_with(check)
    assert not tree.check({"depth": 10**6})
    interrupts.raise_guard_error()
    assert tree.check({"depth": 1})


def test_a_guard_that_fails_to_look_does_not_hold() -> None:
    tree = tree_with(lambda obj: bool(obj["missing"]))
    assert not tree.check({})
    assert tree.check({"missing": True})


def test_a_guard_is_freed() -> None:
    class Held:
        pass

    tree = tree_with(partial(same_constant, held := Held()))
    gone = weakref.ref(held)
    tree.check({})
    del held, tree
    assert gone() is None


@pytest.mark.parametrize("value", [0.0, -0.0, float("nan"), 1.5, float("inf"), 1.5j, complex(0.0, -0.0)])
def test_guards_on_numbers(value: complex) -> None:
    numbers = [value]

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.complex(x, x) * numbers[0]

    compiled, x = compiler_core.compile(program), torch.ones(2)
    for number in (value, 0.0, -0.0, float("nan"), 2.5, value):
        numbers[0] = number
        for ours, eagers in zip(torch.view_as_real(compiled(x)), torch.view_as_real(program(x)), strict=True):
            assert torch.equal(ours.nan_to_num(7), eagers.nan_to_num(7))
            assert torch.equal(torch.signbit(ours), torch.signbit(eagers)) or number != number


def test_signals_wait_for_a_safe_point(handled_signals: list[int]) -> None:
    with interrupts.deferred_signals():
        signal.raise_signal(signal.SIGUSR1)
        assert handled_signals == []
        interrupts.safe_point()
        assert handled_signals == [signal.SIGUSR1]
        signal.raise_signal(signal.SIGUSR1)
        with interrupts.deferred_signals():
            pass
        assert len(handled_signals) == 1
        with interrupts.immediate_signals():
            assert len(handled_signals) == 2
            signal.raise_signal(signal.SIGUSR1)
            assert len(handled_signals) == 3
        signal.raise_signal(signal.SIGUSR1)
    assert len(handled_signals) == 4


def test_an_interrupt_at_a_traced_operator_is_raised_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a backward, which is traced in one call of C++ code."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(x.shape[0]).view(-1)[0] = 1
        return (x.sin() @ y).cumsum(0).relu().sum()

    def run(at: int) -> int:
        """Interrupts at one of the operators; returns how many were traced."""
        count = 0

        def traced() -> None:
            nonlocal count
            count += 1
            if count == at:
                signal.raise_signal(signal.SIGINT)
            interrupts.safe_point()

        compiler_core.reset()  # else it takes over what the run before compiled
        compiled = compiler_core.compile(program, backend="aot_eager", dynamic=True)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if at else nullcontext():
            patch.setattr(writes, "safe_point", traced)
            compiled(x, torch.ones(3, 3))
        assert torch._C._len_torch_dispatch_stack() == 0
        got, want = (function(x, torch.ones(3, 3)) for function in (compiled, program))
        assert torch.equal(got, want)
        assert torch.equal(*(torch.autograd.grad(each, x)[0] for each in (got, want)))
        return count

    x = torch.ones(3, 3, requires_grad=True)
    total = run(at=0)
    assert total > 10
    for at in range(1, total + 1, 5):
        assert run(at) == at


def test_an_interrupt_in_what_may_be_interrupted_is_raised_there() -> None:
    """Also in the methods of the context manager itself: a signal that arrives there is sent again."""
    before = signal.getsignal(signal.SIGINT)
    at = events = raised = 0

    def send(frame: Any, event: str, arg: Any) -> None:
        nonlocal events
        if frame.f_code in interrupts._CODES_OF_IMMEDIATE and event != "c_call":
            events += 1
            if events == at:
                signal.raise_signal(signal.SIGINT)

    while events >= at:
        at, events = at + 1, 0
        try:
            with interrupts.deferred_signals():
                sys.setprofile(send)
                with interrupts.immediate_signals():
                    pass
                sys.setprofile(None)
                time.sleep(0.01)
        except KeyboardInterrupt:
            raised += 1
        finally:
            sys.setprofile(None)
        assert interrupts._state.depth == 0
        assert signal.getsignal(signal.SIGINT) is before
    assert raised == at - 1 > 3


def test_handlers_are_given_back_also_those_that_a_program_sets(handled_signals: list[int]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts.deferred_signals():
        later = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGUSR1, later)
    signal.raise_signal(signal.SIGUSR1)  # ours stood there, and hands on
    assert handled_signals == [signal.SIGUSR1]


def test_other_threads_hold_nothing_back(handled_signals: list[int]) -> None:
    handlers: list[Any] = []

    def work() -> None:
        with interrupts.deferred_signals(), interrupts.immediate_signals():
            interrupts.safe_point()
            handlers.append(signal.getsignal(signal.SIGUSR1))

    before = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


def broken_program(x: torch.Tensor) -> torch.Tensor:
    y = plain(x) + 1
    print(end="")
    return y * 2


def plain(x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return x


@pytest.mark.parametrize("name", ["getstate", "setstate"])
def test_an_interrupt_while_pytorch_keeps_the_state_of_random_is_raised(name: str) -> None:
    """PyTorch's frame hook calls these functions around our callback, and ignores what they raise."""
    code = getattr(random.Random, name).__code__
    raised, calls, at = 0, [0], 0

    def interrupt(frame: Any, event: str, arg: Any) -> None:
        # Python itself prints and drops what is raised in the callback of a weak reference
        if event == "call" and frame.f_code is code and not frame.f_back.f_code.co_filename.endswith("weak.py"):
            calls[0] += 1
            if calls[0] == at:
                signal.raise_signal(signal.SIGINT)

    frame_hook.never_compile(interrupt.__code__)  # the frame hook calls no callback for it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for at in range(1, 20):
            calls[0] = 0
            compiled = compiler_core.compile(broken_program, backend="eager")
            try:
                sys.setprofile(interrupt)
                compiled(torch.ones(2))
            except KeyboardInterrupt:
                raised += 1
            finally:
                sys.setprofile(None)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if calls[0] < at:
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised == at - 1 >= 1


def of_ours(gm: Any, inputs: Any) -> Any:
    for _ in range(100):
        time.sleep(0.01)
    return gm.forward


@pytest.mark.parametrize("backend", ["eager", of_ours])
def test_a_time_limit_ends_a_compile(backend: Any) -> None:
    """The program's exception is raised by a handler while a long function is captured, or in a backend."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3000 if backend == "eager" else 3):
            x = x + 1
        return x

    def on_alarm(number: int, frame: Any) -> None:
        raise TimeLimit("too long")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(TimeLimit, match="too long"):
            compiler_core.compile(program, backend=backend)(torch.ones(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert torch.equal(compiler_core.compile(lambda x: x + 1)(torch.ones(2)), torch.full((2,), 2.0))


class Failure(RuntimeError):
    """Of the class of what operators raise."""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", None])
@pytest.mark.parametrize("kind", [TimeoutError, Failure, ValueError])
@pytest.mark.parametrize("in_backward", [False, True])
def test_what_a_handler_raises_while_compiled_code_runs_is_raised_once(
    backend: str | None, kind: type[Exception], in_backward: bool
) -> None:
    """The frame does not run again: the handler has ended the call, and an operator would run twice."""
    ran: list[str] = []

    @torch.library.custom_op("cutaway_tests::signals", mutates_args=())
    def signals(x: torch.Tensor, name: str) -> torch.Tensor:
        ran.append(name)
        if name == ("backward" if in_backward else "forward") and len(ran) > 2:
            signal.raise_signal(signal.SIGALRM)
        return x.clone()

    signals.register_fake(lambda x, name: torch.empty_like(x))
    signals.register_autograd(lambda ctx, gradient: (signals(gradient, "backward"), None))

    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = signals(x.sin(), "forward").cos()
        return result

    def on_alarm(number: int, frame: Any) -> None:
        raise kind("too long")

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        compiled = compiler_core.compile(program, backend=backend, strict=True)
        x = torch.randn(3, requires_grad=True)
        compiled(x).sum().backward()
        with pytest.raises(kind, match="too long"):
            compiled(x).sum().backward()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ran == ["forward", "backward", "forward", "backward"][: 4 if in_backward else 3]


@pytest.mark.parametrize(("engine", "count"), [("core", "2"), ("torch", "1")])
def test_interrupts_at_random_moments(engine: str, count: str) -> None:
    """Runs in a separate process; the whole test is ``make interrupts``."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["-m", "tests.sweeps.interrupts", "--engine", engine, "--count", count, "--limit", str(HANG_S)]
    done = warm_python.run(command, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


def test_forks_and_spawns_while_other_threads_compile() -> None:
    """The children compile and build too: locks that were held by threads of the parent are free."""
    program = """
import multiprocessing, os, threading, time
import torch
import compiler_core

torch.set_num_threads(1)
function = compiler_core.compile(lambda x, n: (x * n).sin() + n, recompile_limit=10**6)

ended = threading.Event()
def work():
    number = 0
    while not ended.is_set():
        number += 1
        function(torch.ones(3), number)
        compiler_core.compile(lambda x: (x * number).cos())(torch.ones(3))

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(1)
for number in range(3):
    time.sleep(0.11)
    child = os.fork()
    if not child:
        function(torch.ones(3), -5)
        compiler_core.compile(lambda x: (x - 7 - number).exp())(torch.ones(3))
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        os.write(2, f"a child ended with {status}".encode())
        os._exit(1)
compiles = "import torch, compiler_core; compiler_core.compile(lambda x: (x - 99).exp())(torch.ones(3))"
child = multiprocessing.get_context("spawn").Process(target=exec, args=(compiles,))
child.start()
ended.set()  # what they do is no matter any more: a spawned process takes over no locks
child.join()
os._exit(child.exitcode)
"""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = warm_python.run(["-c", program], env=env)
    assert done.returncode == 0, done.stderr


def test_forks_while_other_threads_call_compiled_functions() -> None:
    """A thread waits for the GIL with the lock of the guards held, which would stay locked in the child."""
    program = """
import os, threading, time
import torch
import compiler_core

torch.set_num_threads(1)
function = compiler_core.compile(lambda x, n: (x * n).sin() + n)
x = torch.ones(3)

def work():
    while True:
        function(x, 2)

function(x, 2)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
children = []
for _ in range(40):
    time.sleep(0.003)
    child = os.fork()
    if not child:
        function(x, 2)
        os._exit(0)
    children.append(child)
os._exit(max(os.waitpid(child, 0)[1] for child in children))
"""
    done = warm_python.run(["-c", program], env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr


class Finalized:
    """An object that weak references can refer to."""


def interrupt_in_a_finalizer() -> None:
    weakref.finalize(Finalized(), os.kill, os.getpid(), signal.SIGINT)
    time.sleep(HANG_S)


@pytest.mark.parametrize("engine", ["core", "torch"])
def test_while_a_record_is_open_an_interrupt_in_a_finalizer_is_raised_a_moment_later(
    engine: Literal["core", "torch"],
) -> None:
    """Python prints and drops what a finalizer raises."""
    handler = signal.getsignal(signal.SIGINT)
    for _ in range(2):  # the handlers are kept after the first interrupt, too
        with compiler_core.record(engine=engine):
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    interrupt_in_a_finalizer()
        assert signal.getsignal(signal.SIGINT) == handler


def test_no_callback_of_a_weak_reference_runs_when_a_tensor_of_a_compile_is_freed() -> None:
    """An interrupt would be lost there: PyTorch keeps such references to each tensor that has a fake one."""
    called: list[str] = []

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename == torch.utils.weak.__file__:
            called.append(frame.f_code.co_name)

    def program(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        y: torch.Tensor = held[0](x)
        return y.sin().cumsum(0).sum()

    held: list[Any] = [torch.nn.Linear(3, 3), torch.ones(3, 3)]
    compiled = compiler_core.compile(program, backend="aot_eager")
    compiled(held[1]).backward()
    try:
        sys.setprofile(profile)
        held.clear()
        gc.collect()
    finally:
        sys.setprofile(None)
    assert called == []


@contextmanager
def interrupted_in(function: Any) -> Iterator[None]:
    """Sends SIGINT when `function` is first called in the block; one KeyboardInterrupt must be raised, later."""
    code: CodeType = function.__code__
    sent: list[bool] = []
    raised = None

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is code and not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGINT)

    frame_hook.never_compile(profile.__code__)  # the frame hook calls no callback for it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with compiler_core.record(engine="torch"):
            sys.setprofile(profile)
            yield
            sys.setprofile(None)
            time.sleep(HANG_S)
    except KeyboardInterrupt as error:
        raised = error
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, before)
    assert sent
    assert raised is not None
    assert code not in [frame.f_code for frame, _ in traceback.walk_tb(raised.__traceback__)]


def test_an_interrupt_while_patches_of_the_tracer_are_reverted() -> None:
    """It would leave functions of PyTorch patched."""
    names: dict[str, Any] = {"a": 1, "b": 2}
    patcher = _Patcher()
    for name in names:
        patcher.patch(names, name, lambda: 0)
    with interrupted_in(_Patcher.revert_all_patches):
        patcher.revert_all_patches()
    assert names == {"a": 1, "b": 2}


def test_an_interrupt_while_stock_frees_what_belongs_to_a_function() -> None:
    """Python prints and drops what the callback of a weak reference raises."""
    held, key = ExactWeakKeyDictionary(), Finalized()
    held[key] = "value"
    with interrupted_in(ExactWeakKeyDictionary._remove_id):
        del key
    assert not held.values


def test_an_interrupt_while_what_a_program_compiled_is_freed() -> None:
    """Python drops what the callback of a weak reference raises: ours store it for the next compiled call."""

    def run(held: list[Any]) -> None:
        module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        text = f"def apply(module, x): return module(x).sin() + {len(held)}"
        names: dict[str, Any] = {}
        exec(text, names)
        held += [module, compiler_core.compile(names["apply"], backend="eager"), names.pop("apply")]
        held[1](module, torch.ones(2))

    def trace(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        # Python runs handlers where a frame starts or resumes, but not where a generator is closed
        if event == "call" and code.co_filename.startswith(package) and code.co_code[frame.f_lasti] == resume:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            calls.append(code.co_qualname)
            return trace if len(calls) == moment else None
        if event == "opcode":
            frame.f_trace_opcodes = False
            signal.raise_signal(signal.SIGINT)
        return None

    package, resume = os.path.dirname(compiler_core.__file__), dis.opmap["RESUME"]
    dropped: list[Any] = []
    frame_hook.never_compile(trace.__code__)
    after = compiler_core.compile(lambda x: x + 1, backend="eager")
    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
    sys.unraisablehook = dropped.append
    try:
        for moment in itertools.count(1):
            calls: list[str] = []
            held: list[Any] = []
            run(held)
            raised = 0
            try:
                sys.settrace(trace)
                held.clear()
                sys.settrace(None)
                after(torch.ones(2))
            except KeyboardInterrupt:
                raised = 1
            finally:
                sys.settrace(None)
            assert raised == (len(calls) >= moment), (moment, calls, dropped)
            if not raised:
                break
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook
    assert moment > 3


def test_a_failure_in_the_callback_of_a_weak_reference_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is none of the program, which must not meet it in its next compiled call."""

    def fail(_: object) -> None:
        raise RuntimeError("a failure")

    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: printed.append(failure.exc_value))
    key = Finalized()
    reference = weakref.ref(key, interrupts.weak_callback(fail))
    del key
    assert reference() is None
    assert [type(each) for each in printed] == [RuntimeError]
    interrupts.raise_guard_error()


def test_an_interrupt_while_a_timer_of_stock_is_freed() -> None:
    """It is a generator, which Python closes then; what is raised in it is printed and dropped."""
    timer = dynamo_timed("a phase")
    timer.__enter__()
    with interrupted_in(inspect.unwrap(dynamo_timed)):
        del timer


INTERRUPTED_STOCK = """
import pkgutil, sys
import torch
from compiler_core.support import interrupts
from tests.support.test_interrupts import interrupted_in

@torch.compile(backend="aot_eager", dynamic=True)
def program(x):
    return (x.cumsum(0) / x.shape[0]).exp().sum()

interrupts._MAX_HELD_S = 60  # a busy machine is slow
with interrupted_in(pkgutil.resolve_name(sys.argv[1])):
    program(torch.randn(3, 4))
assert program(torch.ones(2, 2)).shape == ()
print("runs on")
"""


@pytest.mark.parametrize(
    "name",
    sample(
        [
            "torch._library.simple_registry:find_torch_dispatch_rule",
            "torch.fx.experimental.sym_node:SymNode.wrap_int",
            "torch._subclasses.fake_tensor:FakeTensorMode.dispatch",
        ],
        2,
    ),
)
def test_an_interrupt_in_what_cpp_code_calls_while_stock_compiles(name: str) -> None:
    """Raised in the first of them, it would end the process: the C++ code that calls it must not throw."""
    done = warm_python.run(["-c", INTERRUPTED_STOCK, name], env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout == "runs on\n", done.stderr


def test_a_handler_that_a_program_sets_while_a_record_is_open_stays() -> None:
    handler, received = signal.getsignal(signal.SIGUSR1), []
    try:
        with compiler_core.record():
            signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
            compiler_core.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert received == [signal.SIGUSR1] * 2


ASYNCHRONOUS = """
import ctypes, threading, time
import torch, compiler_core

class TooLong(Exception):
    pass

def step(x):
    for _ in range(30):
        x = torch.mm(x, x).tanh() + x.sin()
    return x

x = torch.randn(150, 150) * 0.05
for backend in ("eager", "aot_eager", None):
    compiled = compiler_core.compile(step, backend=backend)
    compiled(x)
    main, raised = threading.get_ident(), 0

    def raise_in_main():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(TooLong))

    for i in range(20):
        timer = threading.Timer(0.0005 + 0.0004 * (i % 10), raise_in_main)
        try:
            timer.start()
            while timer.is_alive():
                compiled(x)
            time.sleep(0.001)
        except TooLong:
            raised += 1
    print(raised)
"""


def test_an_exception_that_another_thread_raises_is_raised_once() -> None:
    run = warm_python.run(["-c", ASYNCHRONOUS])
    assert run.stdout.split() == ["20", "20", "20"], run.stderr


WITHOUT_A_TRACE = """
import signal, sys, warnings
import torch, compiler_core

class TooLong(Exception):
    pass

def without_its_frame(number, frame):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    del frame
    raise TooLong

def without_arguments(number, frame):
    signal.signal(number, signal.SIG_IGN)
    del number, frame
    raise_it()

def raise_it():
    raise TooLong

def step(x):
    for _ in range(30):
        x = torch.mm(x, x).tanh() + x.sin()
    return x

warnings.simplefilter("error")
x = torch.randn(150, 150) * 0.05
for backend in ("eager", "aot_eager", None):
    compiled, raised = compiler_core.compile(step, backend=backend), 0
    compiled(x)
    for i in range(20):
        handler = without_its_frame if i % 2 else without_arguments
        signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0004 * (i % 10))
            while signal.getsignal(signal.SIGALRM) is handler:
                compiled(x)
        except TooLong:
            raised += 1
    print(raised)
"""


def test_what_a_handler_raises_that_leaves_no_trace_is_raised_once(tmp_path: Path) -> None:
    """It has replaced itself and dropped what it was called with, so that it looks like any function of the program."""
    script = tmp_path / "script.py"  # of text that Python runs, code is taken for generated code
    script.write_text(WITHOUT_A_TRACE)
    run = warm_python.run([str(script)])
    assert run.stdout.split() == ["20", "20", "20"], run.stderr


def test_what_a_handler_raises_while_stock_compiles_is_raised_as_it_is() -> None:
    """Unobserved, stock raises BackendCompilerFailed in its place."""

    class TooLong(Exception):
        pass

    def on_alarm(*_: Any) -> None:
        raise TooLong

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return gm.forward

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with compiler_core.record(engine="torch") as record, pytest.raises(TooLong):
            torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not record.notes


INTERRUPTED_IMPORT = """
import signal, sys
import torch
import compiler_core

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "torch._dynamo.guards" and not raised:
        raised.append(event)
        signal.raise_signal(signal.SIGINT)

raised = []
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(interrupt)
try:
    compiler_core.compile(torch.sin)
except KeyboardInterrupt:
    print("interrupted")
function = compiler_core.compile(lambda x: x.cos(), backend="eager", strict=True)
print(function(torch.zeros(2)).tolist())
"""


def test_an_interrupt_does_not_leave_half_an_import_of_pytorch() -> None:
    """It is raised after the import, after which compiles work."""
    command = [sys.executable, "-c", INTERRUPTED_IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n[1.0, 1.0]\n", "")
