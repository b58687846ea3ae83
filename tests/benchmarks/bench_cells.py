"""Memory of a kernel in which many cells are compiled, each a training step of 12 transformer layers.

python -m tests.benchmarks.bench_cells [--cells 20]
"""

from __future__ import annotations

import argparse
from typing import Any

from jupyter_client.manager import KernelManager

TIMEOUT_S = 600
SETUP = """
%load_ext kernel_magics
import gc, psutil, torch
torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
x = torch.randn(2, 8, 64, requires_grad=True)

def state():
    gc.collect()
    found = sum(str(type(each).__module__).startswith("compiler_core.records") for each in gc.get_objects())
    return f"{psutil.Process().memory_info().rss / 1e6:.0f} MB, {found:,} objects of records"
"""
CELL = "%%compile\nmodel(x).sum().backward()"


def main() -> None:
    """Runs the cells and prints the memory after some of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=20)
    cells = parser.parse_args().cells
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=TIMEOUT_S)

    def run(code: str) -> str:
        texts: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])

        reply = client.execute_interactive(code, timeout=TIMEOUT_S, output_hook=hear)
        if reply["content"]["status"] != "ok":
            raise SystemExit(f"the cell failed: {reply['content']}")
        return "".join(texts)

    try:
        run(SETUP)
        for number in range(1, cells + 1):
            run(CELL)
            if number in (1, 2, 5, 10, cells):
                print(f"after {number} cells: {run('print(state())').strip()}")
    finally:
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
