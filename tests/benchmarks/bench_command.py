"""What `cutaway run` costs: processor time of a script with and without it, in turns.

    python -m tests.benchmarks.bench_command [--pairs 5] [--backend aot_eager]

The script compiles layers of a transformer, forward and backward, without caches, and then times calls.  The processor
time is that of the process and all that it starts, from start to end; *compile* is the part of the script's first step.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import json, sys, time
import torch
torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
net, x = torch.nn.TransformerEncoder(layer, 4), torch.randn(2, 16, 64)
step = torch.compile(net, backend=sys.argv[1])
began = time.process_time()
step(x).square().mean().backward()
compiled = time.process_time()
for _ in range(200):
    step(x)
ended = time.process_time()
print(json.dumps({"compile": compiled - began, "call": (ended - compiled) / 200}))
"""


def measured(command: list[str]) -> dict[str, float]:
    """Runs a command; returns its processor time, and what the script printed."""
    env = os.environ | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found | {"all": spent}


def main() -> None:
    """Reads the arguments, runs the pairs and prints the medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--backend", default="inductor")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(SCRIPT)
        plain = [sys.executable, str(script), given.backend]
        commands = {"python": plain, "cutaway run": [sys.executable, "-m", "kernel_magics.command", "run", *plain[1:]]}
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(given.pairs):
            for name, command in commands.items():
                runs[name].append(measured(command))
    for what, unit in (("all", "s"), ("compile", "s"), ("call", "ms")):
        scale = 1e3 if unit == "ms" else 1.0
        medians = {name: statistics.median(each[what] for each in found) * scale for name, found in runs.items()}
        ratios = [b[what] / a[what] for a, b in zip(*runs.values(), strict=True)]
        texts = ", ".join(f"{name} {median:.3f} {unit}" for name, median in medians.items())
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"{given.backend}, {what}: {texts}; ratio {statistics.median(ratios):.3f} ({spread})", flush=True)


if __name__ == "__main__":
    main()
