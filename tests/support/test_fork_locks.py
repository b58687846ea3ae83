"""A child that was forked while another thread imported or compiled compiles, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import faulthandler, importlib.abc, os, sys, threading, time
import torch
import compiler_core

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
assert there.wait(100)
if not (child := os.fork()):
    faulthandler.dump_traceback_later(40, exit=True)
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
    command = [sys.executable, "-c", PROGRAM, where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
