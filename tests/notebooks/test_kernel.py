"""Cells in a real kernel, one after another, as a front end sends them: results, output, awaits, interrupts."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.limits import HANG_S


@dataclass
class Reply:
    """What came back of a cell."""

    status: str
    value: str | None = None
    stdout: str = ""
    order: list[str] = field(default_factory=list)
    """What appeared below the cell, in that order; the explorer is "explorer"."""
    traceback: str = ""


class Kernel:
    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        provisioner: Any = manager.provisioner
        self.pid: int = provisioner.pid
        self.client = client

    def run(self, code: str, interrupt_after: str | None = None) -> Reply:
        """Run a cell; send the Stop button's signal once `interrupt_after` was printed."""
        reply = Reply("")
        stop = threading.Timer(0.2, lambda: os.kill(self.pid, signal.SIGINT))

        def on_message(message: dict[str, Any]) -> None:
            note(reply, message["msg_type"], message["content"])
            if interrupt_after and interrupt_after in reply.stdout and stop.ident is None:
                stop.start()

        reply_message = self.client.execute_interactive(code, timeout=HANG_S, output_hook=on_message)
        reply.status = reply_message["content"]["status"]
        return reply

    def value(self, expression: str) -> str | None:
        return self.run(expression).value


def note(reply: Reply, kind: str, content: dict[str, Any]) -> None:
    if kind == "stream" and content["name"] == "stdout":
        reply.stdout += content["text"]
        reply.order += content["text"].split()
    elif kind == "execute_result":
        reply.value = content["data"]["text/plain"]
        reply.order.append("value")
    elif kind == "display_data":
        ours = "application/vnd.jupyter.widget-view+json" in content["data"]
        reply.order.append("explorer" if ours else content["data"]["text/plain"])
    elif kind == "error":
        reply.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))


@pytest.fixture(scope="module")
def kernel(warm_kernels: None) -> Iterator[Kernel]:
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=HANG_S)
    kernel = Kernel(manager, client)
    loaded = kernel.run("%load_ext kernel_magics\nimport torch, asyncio, kernel_magics\nx = torch.ones(3)")
    assert loaded.status == "ok", loaded.traceback
    yield kernel
    client.stop_channels()
    manager.shutdown_kernel(now=True)


AWAITS = """\
%%compile --backend eager
async def later(t):
    await asyncio.sleep(0)
    return t + 1
y = await later(x)
z = y * 2
tasks = [asyncio.ensure_future(later(z * i)) for i in range(2)]
for task in tasks:
    z = z + await task
async with asyncio.timeout(500):
    w = await later(z)
w.tolist()"""


def test_a_compiled_cell_awaits_in_the_kernel_s_loop(kernel: Kernel) -> None:
    reply = kernel.run(AWAITS)
    assert (reply.status, reply.value) == ("ok", "[11.0, 11.0, 11.0]"), reply.traceback
    assert kernel.value("w.tolist()") == "[11.0, 11.0, 11.0]"
    graphs = "sum(a.pane == 'captured' for c in kernel_magics.last_record().compiles for a in c.artifacts)"
    assert kernel.value(graphs) == "1"
    assert "it awaits" in str(kernel.value("kernel_magics.last_record().notes"))


def test_a_task_of_an_earlier_cell_is_awaited(kernel: Kernel) -> None:
    kernel.run(
        "async def slow():\n    await asyncio.sleep(0.05)\n    return x * 3\ntask = asyncio.ensure_future(slow())"
    )
    assert kernel.run("%%compile --backend eager\n(await task + 1).sum().item()").value == "12.0"


def test_a_semicolon_after_an_await(kernel: Kernel) -> None:
    reply = kernel.run("%%compile --backend eager\nq = 7\nawait asyncio.sleep(0, 5);")
    assert (reply.status, reply.value, kernel.value("q")) == ("ok", None, "7")


def test_an_error_after_an_await_has_its_line(kernel: Kernel) -> None:
    text = "await asyncio.sleep(0)\n1 / 0"
    plain = kernel.run("# %%compile\n" + text).traceback
    reply = kernel.run("%%compile\n" + text)
    assert reply.status == "error"
    assert re.sub(r"In\[\d+\]", "", reply.traceback) == re.sub(r"In\[\d+\]", "", plain)


TRACEBACKS = {
    "after a print": "def f(a, *rest, k=1):\n    b = a + 1\n    print('x')\n    return b[99]\n\nf(x, 3)",
    "two functions deep": "def g(v):\n    print(v)\n    v.nope()\ndef f(v):\n    y = v * 2\n    return g(y) + 1\nf(x)",
    "in a loop": "for i in range(3):\n    y = x + i\n    if y.sum() > 0:\n        y[i + 2]",
    "in a with block": "with torch.no_grad():\n    z = x * 2\n    print(z)\n    raise ValueError(z.sum().item())",
    "in a method": "class A:\n    def run(self, v):\n        w = v + 1\n        print(w)\n        w[7]\n\nA().run(x)",
    "at the first line": "1 / 0",
    "after an import": "import sys\n1 / 0",
}


@pytest.mark.parametrize("cell", TRACEBACKS.values(), ids=TRACEBACKS.keys())
def test_tracebacks_read_as_a_plain_cell_s(kernel: Kernel, cell: str) -> None:
    plain, ours = kernel.run("# %%compile\n" + cell).traceback, kernel.run("%%compile\n" + cell).traceback
    assert re.sub(r"In\[\d+\]", "In", ours) == re.sub(r"In\[\d+\]", "In", plain)


def test_a_break_that_may_not_be_points_at_the_user_s_lines(kernel: Kernel) -> None:
    define = "def f(v, k=2):\n    v = v + 1\n    if v.sum() > k:\n        v = v * 2\n    return v\n"
    trace = kernel.run(f"%%compile --fullgraph\n{define}y = x + 1\nz = f(y)\nw = 1").traceback
    assert "----> 8 z = f(y)" in trace
    assert "in f(v, k)" in trace
    assert "----> 4     if v.sum() > k:" in trace
    assert trace.rstrip().splitlines()[-1].startswith("Hint: ")


def test_a_wrong_option_of_a_cell_that_awaits(kernel: Kernel) -> None:
    reply = kernel.run("%%compile --backend nope\nran = await asyncio.sleep(0)")
    assert reply.status == "error"
    assert kernel.value("'ran' in globals()") == "False"


def test_a_line_that_awaits_says_what_can(kernel: Kernel) -> None:
    assert kernel.run("%compile await asyncio.sleep(0)").status == "error"


def test_output_comes_in_its_order_below_the_explorer(kernel: Kernel) -> None:
    reply = kernel.run("%%compile --backend eager\nprint('one')\ndisplay(2)\nprint('three')\nx.sum().item()")
    assert reply.order == ["explorer", "one", "2", "three", "value"]


@pytest.mark.parametrize("wait", ["time.sleep(0.01)", "await asyncio.sleep(0.01)"])
def test_a_loop_is_interrupted_and_keeps_what_it_did(kernel: Kernel, wait: str) -> None:
    loop = (
        f"import time\nn = 0\nt = x\nwhile True:\n    n += 1\n    t = t + 1\n    if n == 3: print('going')\n    {wait}"
    )
    reply = kernel.run("%%compile --backend eager\n" + loop, interrupt_after="going")
    assert reply.status == "error"
    assert "KeyboardInterrupt" in reply.traceback or "CancelledError" in reply.traceback
    assert kernel.value("n >= 3 and (t == 1 + n).all().item() or n") == "True"
    assert kernel.run("%%compile --backend eager\n(x + 1).sum().item()").value == "6.0"


def test_a_cell_run_again_leaves_no_more_than_the_first_time(kernel: Kernel) -> None:
    kernel.run("def f(v):\n    return v.cos() + 1")
    cell = (
        "%%compile --backend eager\nclass A:\n    def f(self, v): return f(v)\nfor i in range(4):\n    y = A().f(x) * i"
    )
    left = "import gc; from compiler_core.api import compile as api\n"
    left += "from torch._C._dynamo import eval_frame\ngc.collect()\n"
    count = left + "len(eval_frame._debug_get_cache_entry_list(f.__code__)), len(api._regions)"
    counts = []
    for _ in range(4):
        assert kernel.run(cell).status == "ok"
        compiles = kernel.value("[len(c.guards) > 0 for c in kernel_magics.last_record().compiles]")
        counts.append((compiles, kernel.value(count)))
    assert len(set(counts[1:])) == 1, counts


def test_help_and_magics_inside_a_cell(kernel: Kernel) -> None:
    reply = kernel.run(
        "%%compile --backend eager\ny = x * 2\n%time z = y + 1\n!echo from the shell\nlen?\nz.sum().item()"
    )
    assert (reply.status, reply.value) == ("ok", "9.0"), reply.traceback
    assert "from the shell" in reply.stdout
