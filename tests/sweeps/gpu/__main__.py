"""Compares compiled programs with eager PyTorch on a GPU:  python -m tests.sweeps.gpu [--minutes 10] [--only TEXT] ...

The corpus, networks, random programs and PyTorch's operator database run in parallel, one process per core, on all
GPUs, for this many minutes.  Differences from eager are printed, and all results are in a JSON summary.
``--device cpu`` runs the same on the CPU.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.sweeps.gpu.pool import CRASHED, DIFFERS, OK, SKIPPED, TIMED_OUT, Job, Pool, Result
from tests.sweeps.gpu.sections import SECTIONS, budgets
from tests.sweeps.gpu.worker import without_expecttest

ROOT = Path(__file__).resolve().parents[3]
WRONG = (DIFFERS, CRASHED, TIMED_OUT)
SHOWN = 12
"""The number of differences printed of each section; the summary has all."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("There is no CUDA device here; --device cpu runs the same on the CPU.")
        return 2
    without_expecttest()
    start, sections = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"CUTAWAY_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        (ROOT / "build").mkdir(exist_ok=True)
        pool = Pool(options.workers, options.device, _gpus(options.device), options.memcheck)
        try:
            for name, budget in budgets(options.sections, 60 * options.minutes):
                left = 60 * options.minutes - (time.monotonic() - start)
                sections[name] = _section(pool, name, budget(left), options)
                summary = _facts(options.device) | {"seconds": round(time.monotonic() - start), "sections": sections}
                options.out.write_text(json.dumps(summary, indent=1))
        finally:
            pool.close()
    wrong = sum(len(s["differences"]) for s in sections.values())
    print(f"\n{wrong} differ, in {summary['seconds']} s; {options.out} has all of them")
    return int(wrong > 0)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=[], help=f"which of {', '.join(SECTIONS)}; all of them if none")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="items whose names contain this: a file, a network, an operator")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first items: go on where a run ended")
    parser.add_argument("--limit", type=int, default=None, help="so many items of each section")
    parser.add_argument("--memcheck", action="store_true", help="find wrong addresses by NVIDIA's compute-sanitizer")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu.json")
    options = parser.parse_args(argv)
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    options.sections = options.sections or list(SECTIONS)
    return options


def _section(pool: Pool, name: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one section and returns its part of the summary."""
    section, start = SECTIONS[name], time.monotonic()
    items = section.items(options.only)[options.skip :][: options.limit]
    print(f"\n{name}: {len(items):,} items, at most {seconds:.0f} s", flush=True)
    results: list[Result] = []
    jobs = [Job(name, item) for item in items]
    workers = max(1, min(options.workers, _memory(options.device) // section.case_bytes))
    for result in pool.run(jobs, seconds, section.case_seconds, section.slice_seconds, workers):
        results.append(result)
        if result.verdict in WRONG and sum(r.verdict in WRONG for r in results) <= SHOWN:
            print(f"  {result.verdict}: {result.case}: {_short(result.detail)}", flush=True)
    left = [job.item for job in pool.left()]
    took = time.monotonic() - start
    counts = collections.Counter(r.verdict for r in results)
    message = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items() if count)
    if shared := sum(any(fact.startswith("differs") for fact in r.facts) for r in results):
        message += f" ({shared:,} of them differ as stock torch.compile does)"
    print(f"{name}: {len(results):,} cases in {took:.0f} s: {message or 'none'}; {len(left):,} items left", flush=True)
    return {
        "seconds": round(took),
        "cases": len(results),
        "counts": dict(counts),
        "items": len(items),
        "items_left": left if len(left) < 2000 else len(left),
        "differences": [dataclasses.asdict(r) for r in results if r.verdict in WRONG],
        "skipped": [f"{r.case}: {r.detail}" for r in results if r.verdict == SKIPPED],
        "facts": {r.case: r.facts for r in results if r.facts and r.verdict == OK},
    }


def _short(text: str) -> str:
    """Returns the most informative line of an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line.removeprefix("E ").strip() for line in lines if "Error" in line or line.startswith("E ")]
    return ((messages or lines or [""])[0])[:240]


def _gpus(device: str) -> int:
    """Returns the number of GPUs to use: all for "cuda", else one."""
    return torch.cuda.device_count() if device == "cuda" else 1


def _memory(device: str) -> int:
    """Returns the bytes of memory of the devices."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory * _gpus(device)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _facts(device: str) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else ""
    return {"device": device, "gpu": gpu, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    sys.exit(main())
