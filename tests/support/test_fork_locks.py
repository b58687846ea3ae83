"""A child that was forked while another thread imported or compiled compiles, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_python

ROOT = Path(__file__).parents[2]
PROGRAM = """
import faulthandler, importlib.abc, os, sys, threading, time
import torch
import compiler_core
from tests.limits import HANG_S

# An operator's first call holds a lock of C++, which stays locked in a child that is forked then, in eager, too.
torch.ones(3) * 2
there = threading.Event()

class Slow(importlib.abc.MetaPathFinder):  # stands in the import of a module
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            there.set()
            time.sleep(0.5)

def backend(gm, inputs):
    there.set()
    time.sleep(0.5)
    return gm.forward

def compiles():
    compiler_core.compile(lambda x: x * 2, backend=backend)(torch.ones(3))

if sys.argv[1] == "warmup":
    from kernel_magics.startup import warmup
    sys.argv[1] = "networkx"
    target = warmup._load
else:
    target = compiles
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=target)
thread.start()
there.wait()
if not (child := os.fork()):
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    x = torch.ones(3, requires_grad=True)
    compiler_core.compile(lambda x: (x * 3).sum(), backend="aot_eager", strict=True)(x).backward()
    os._exit(7 if x.grad.tolist() == [3.0] * 3 else 8)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.parametrize(
    "where",
    [
        "compiler_core.pipeline.frame",
        "backend",
        *(
            pytest.param(where, marks=pytest.mark.sweep)
            for where in ("compiler_core.api.compile", "torch._dynamo.guards", "sympy", "warmup")
        ),
    ],
)
def test_a_child_forked_while_another_thread_works_compiles(where: str) -> None:
    if where == "backend":  # after all imports
        done = warm_python.run(["-c", PROGRAM, where])
    else:
        command = [sys.executable, "-c", PROGRAM, where]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


STAGES = """
import faulthandler, os, sys, threading, time
import torch
import compiler_core
from compiler_core.api.compile import record_of
from tests.limits import HANG_S

CALLS = ["Interpreter.run", "lower", "_build_in", "GuardTree.build", "to_plain", "in_backward", "in_break"]
there = threading.Event()

def in_backward(gradient):
    return gradient

@torch.compiler.disable
def in_break():
    pass

def compiles(place, size):
    def stop(frame, event, argument):  # stands in a call
        if event == "call" and frame.f_code.co_qualname == place and not there.is_set():
            there.set()
            time.sleep(0.2)

    def program(x):
        y = (x * 2).sin()
        y.register_hook(in_backward)
        in_break()
        return y.exp().sum()

    sys.setprofile(stop)
    compiled = compiler_core.compile(program)
    compiled(torch.ones(size, requires_grad=True)).backward()
    record_of(compiled).to_json()
    assert there.is_set(), place

def draws(place, size):
    there.set()
    for _ in range(8):
        torch.rand(10_000_000)  # PyTorch's lock of the generator stays locked in the child

known = compiler_core.compile(lambda x: (x * 3).cos().sum())
known(torch.ones(3, requires_grad=True)).backward()
new_size = int(time.time()) % 100_000  # no kernel on disk has it
for number, place in enumerate([*CALLS, "drawing"]):
    there.clear()
    thread = threading.Thread(target=draws if place == "drawing" else compiles, args=(place, new_size + number))
    thread.start()
    there.wait()
    time.sleep(0.05)
    if not (child := os.fork()):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        for compiled in (known, compiler_core.compile(lambda x: (x * 3).cos().sum())):
            compiled(torch.ones(3, requires_grad=True)).backward()
        os._exit(7)
    print(place, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    thread.join()
"""


@pytest.mark.sweep
def test_a_child_compiles_in_whatever_stage_another_thread_is() -> None:
    done = warm_python.run(["-c", STAGES])
    lines = done.stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["7"] * 8, done.stdout + done.stderr


def test_a_thread_that_starts_to_check_guards_while_the_fork_waits_is_noticed() -> None:
    """The C++ lock of its guards would stay locked in the child, which drops what was compiled instead."""
    program = """
import os, threading
import torch
from torch._dynamo import convert_frame
import compiler_core
from compiler_core.api.compiled import region_of

gate = threading.Lock()
held, forks, is_there = threading.Event(), threading.Event(), threading.Event()

@torch.compiler.disable
def stop():
    is_there.set()
    with gate:
        pass

def program(x):
    stop()  # code under the hook, which may be about to check guards
    return x + 1

compiled = compiler_core.compile(program, backend="eager")
first = threading.Thread(target=compiled, args=(torch.ones(3),))
first.start()  # what a thread compiles is there for other threads: they take no lock
first.join()
assert list(region_of(compiled).installed())

def compiles():
    with convert_frame.compile_lock:
        held.set()
        forks.wait()
        is_there.clear()
        threading.Thread(target=compiled, args=(torch.ones(3),), daemon=True).start()
        is_there.wait()

gate.acquire()
threading.Thread(target=compiles, daemon=True).start()
held.wait()
os.register_at_fork(before=forks.set)  # called before ours, which waits for the thread that compiles
if not (child := os.fork()):
    os._exit(8 if list(region_of(compiled).installed()) else 7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""
    run = warm_python.run(["-c", program])
    assert run.stdout == "7\n", run.stderr
