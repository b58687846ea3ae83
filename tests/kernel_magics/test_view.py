"""Tests in a real kernel: what a compiled cell displays, and how it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from kernel_magics.display.interrupt import Interrupt
from kernel_magics.display.packing import pack, unpack
from tests.limits import HANG_S

MIME = "application/vnd.cutaway.record+json"


@dataclass
class CellMessages:
    """The messages that a cell sent while it ran."""

    status: str = ""
    errors: list[dict[str, Any]] = field(default_factory=list)
    displays: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""

    def hear(self, message: dict[str, Any]) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "error":
                self.errors.append(content)
            case "display_data":
                self.displays.append(content["data"])
            case "update_display_data":
                self.updates.append(content["data"])
            case "execute_result":
                self.results.append(content["data"])
            case "stream":
                self.text += content["text"]
            case "comm_msg" if progress := content["data"].get("state", {}).get("progress"):
                self.progress.append(progress)


def run(client: BlockingKernelClient, code: str) -> CellMessages:
    output = CellMessages()
    reply = client.execute_interactive(code, timeout=HANG_S, output_hook=output.hear)
    output.status = reply["content"]["status"]
    return output


@pytest.fixture(scope="module")
def kernel(warm_kernels: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingKernelClient]:
    home = tmp_path_factory.mktemp("home")
    places = {"IPYTHONDIR": str(home), "CUTAWAY_CACHE_DIR": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=os.environ | places, cwd=str(home))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=HANG_S)
        run(client, "%load_ext kernel_magics\nimport torch, kernel_magics")
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_cell_displays_one_explorer_with_its_record(kernel: BlockingKernelClient) -> None:
    output = run(kernel, "%%compile\nx = torch.ones(3).cos()\nprint('printed')\nx.shape[0]")
    assert output.status == "ok"
    assert output.text == "printed\n"
    (shown,) = output.displays
    assert "application/vnd.jupyter.widget-view+json" in shown
    (whole,) = output.updates
    record = unpack(whole[MIME])
    assert record.title.startswith("Cell In[")
    assert len(record.frames) >= 1
    assert whole["text/plain"].startswith("Cutaway of Cell In[")
    assert "<script" not in whole["text/html"]
    assert [r["text/plain"] for r in output.results] == ["3"]
    assert output.progress


def test_last_is_the_explorer_of_that_cell(kernel: BlockingKernelClient) -> None:
    run(kernel, "%%compile\ntorch.ones(5).sin()")
    output = run(kernel, "print(kernel_magics.last().record is kernel_magics.last_record())")
    assert output.text == "True\n"


def test_error_is_one_and_the_record_is_still_shown(kernel: BlockingKernelClient) -> None:
    output = run(kernel, "%%compile\nx = torch.ones(3) + 1\nx / 0\nx.nope")
    assert output.status == "error"
    (error,) = output.errors
    assert error["ename"] == "AttributeError"
    shown = "\n".join(error["traceback"])
    assert shown.count("Traceback (most recent call last)") == 1
    assert "line 4" in shown
    assert "kernel_magics" not in shown
    assert len(output.updates) == 1


def test_syntax_error_stops_the_notebook(kernel: BlockingKernelClient) -> None:
    output = run(kernel, "%%compile\nx = = 1")
    assert output.status == "error"
    assert [e["ename"] for e in output.errors] == ["SyntaxError"]
    assert output.displays == []


def test_cancel_button_interrupts_the_cell(kernel: BlockingKernelClient) -> None:
    run(
        kernel,
        "import threading, time\nreached = threading.Event()\n"
        "def slow(gm, inputs):\n    reached.set()\n    for _ in range(9000): time.sleep(0.01)\n    return gm.forward",
    )
    press = (
        f"def press():\n    reached.wait({HANG_S})\n"
        "    kernel_magics.last()._handle_custom_msg({'type': 'cancel'}, [])\n"
        "threading.Thread(target=press).start()"
    )
    run(kernel, press)
    output = run(kernel, "%%compile --backend slow\ntorch.ones(3) + 1")
    assert [e["ename"] for e in output.errors] == ["KeyboardInterrupt"]
    output = run(kernel, "%%compile\n(torch.ones(3) + 1).tolist()")
    assert [r["text/plain"] for r in output.results] == ["[2.0, 2.0, 2.0]"]


def test_a_record_is_shown_although_its_completion_was_interrupted(kernel: BlockingKernelClient) -> None:
    run(
        kernel,
        "from kernel_magics.run import core\n"
        "labels = core.cell_labels\n"
        "def interrupted(record):\n    core.cell_labels = labels\n    raise KeyboardInterrupt\n"
        "core.cell_labels = interrupted",
    )
    output = run(kernel, "%%compile\ntorch.ones(3).exp()")
    assert [e["ename"] for e in output.errors] == ["KeyboardInterrupt"]
    assert [unpack(update[MIME]).raised for update in output.updates] == [""]


def test_a_record_whose_message_was_lost_is_sent_again(kernel: BlockingKernelClient) -> None:
    shown = run(kernel, "%%compile\ntorch.ones(3).exp()").updates
    message = {"content": {"data": {"method": "custom", "content": {"type": "resend"}}}, "buffers": []}
    again = run(kernel, f"kernel_magics.last()._handle_msg({message})").updates
    assert [update[MIME] for update in again] == [update[MIME] for update in shown]


def test_saved_outputs_make_a_record_again(kernel: BlockingKernelClient) -> None:
    output = run(kernel, "%%compile\ntorch.ones(3).exp()")
    saved = json.loads(json.dumps(output.updates[0][MIME]))
    assert pack(unpack(saved)) == saved


def test_interrupt_after_the_end_does_nothing() -> None:
    interrupt = Interrupt()
    interrupt.disarm()
    thread = threading.Thread(target=interrupt)
    thread.start()
    thread.join()


def test_interrupt_is_a_signal_to_the_main_thread() -> None:
    warned: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: warned.append(number))
    try:
        thread = threading.Thread(target=Interrupt())
        thread.start()
        thread.join()
        time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert warned == [signal.SIGINT]
