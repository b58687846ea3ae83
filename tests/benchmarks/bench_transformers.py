"""Trains and runs architectures of transformers in real widths on a GPU, with each engine.

    python -m tests.benchmarks.bench_transformers [--only llama] [--processes 12] [--engines eager ours] [--out FILE]

Each case is a training step under bfloat16 autocast, the same model's inference, or the decoding of one token with a
static cache.  First each engine, in a separate process with empty caches, gives the seconds of the first call and
the MB that PyTorch has reserved at the peak.  Then one process for each case times all engines in interleaved rounds,
while the other processes stand still: milliseconds of wall time, lower quartiles.  An engine that fails is left out.
*gain* is the time of stock's faster mode divided by that of our faster mode.  *error* is the relative error of the
results and gradients beside float64, of each engine; WRONG marks an engine whose error is ten times eager's, and ends
the command with an error.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.questions.line_facts import stage_ns
from compiler_core.tools.testing import break_kinds, graph_count
from tests.benchmarks.bench_nets import ENGINES, Step, milliseconds
from tests.benchmarks.bench_networks import alone, figures_of, gain
from tests.cases import wide_models

CACHES = ("CUTAWAY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def cases() -> list[str]:
    return [
        f"{name} {way}"
        for name in wide_models.MODELS
        for way in (("training", "decoding") if name in wide_models.DECODERS else ("training", "inference"))
    ]


def tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, (dict, list, tuple)):
        for part in output.values() if isinstance(output, dict) else output:
            yield from tensors(part)


def prepared(case: str, device: str) -> tuple[torch.nn.Module, Callable[[torch.nn.Module, Any], Step]]:
    """Returns a model, and what makes a step of a copy of the model and of that copy compiled."""
    name, _, way = case.partition(" ")
    if way == "decoding":
        model, decode = wide_models.decoder(name, device)
        return model, lambda own, run: lambda: [decode(run)]
    model, arguments = wide_models.MODELS[name](device)
    model.train(way == "training")

    def make(own: torch.nn.Module, run: Any) -> Step:
        wide = next(own.parameters()).dtype == torch.float64
        given = {k: v.double() if wide and v.is_floating_point() else v for k, v in arguments.items()}
        parameters = list(own.parameters())

        def cast() -> Any:
            return torch.autocast(device, torch.bfloat16, enabled=not wide)

        def infer() -> list[torch.Tensor]:
            with torch.no_grad(), cast():
                return list(tensors(run(**given)))

        def train() -> list[torch.Tensor]:
            for parameter in parameters:
                parameter.grad = None
            with cast():
                output = run(**given)
            found = [t for t in tensors(output) if t.requires_grad]
            known = getattr(output, "loss", None)
            loss = known if known is not None else torch.stack([t.float().square().mean() for t in found]).sum()
            loss.backward()
            return [loss.detach(), *(p.grad for p in parameters if p.grad is not None)]

        return train if way == "training" else infer

    return model, make


def first_call(case: str, engine: str, device: str) -> dict[str, Any]:
    """Measures one engine in this process: seconds of the first call, MB, and what our record says."""
    model, make = prepared(case, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        compiled = ENGINES[engine](model)
        run = make(model, compiled)
        milliseconds(run, 1)
        seconds = time.perf_counter() - start
        milliseconds(run, 4)
    found: dict[str, Any] = {
        "first": seconds,
        "reserved": torch.cuda.max_memory_reserved() / 1e6 if device == "cuda" else 0.0,
    }
    if engine.startswith("ours"):
        record = record_of(compiled)
        found |= {
            "graphs": graph_count(record),
            "breaks": break_kinds(record),
            "compiles": len(record.compiles),
            "stages": {stage: ns / 1e9 for stage, ns in stage_ns(e for c in record.compiles for e in c.events).items()},
            "launched": sorted({graph.reason for c in record.compiles for graph in c.cuda_graphs if graph.reason}),
            "failures": [f.message[:200] for c in record.compiles for f in c.failures],
            "warned": [str(w.message)[:200] for w in caught if isinstance(w.message, compiler_core.CompileWarning)],
        }
    return found


def in_float64(model: torch.nn.Module, make: Callable[[torch.nn.Module, Any], Step]) -> list[torch.Tensor]:
    wide: Any = copy.deepcopy(model).double()
    if hasattr(wide, "set_experts_implementation"):
        wide.set_experts_implementation("eager")  # the kernel for groups of products takes no float64
    return make(wide, wide)()


def error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Returns the largest relative error of a tensor; those that are 0 but for rounding count beside the largest."""
    norms = [float(b.double().norm()) for b in exact]
    least = max(norms) * 1e-4
    return max(
        float((a.double() - b.double()).norm()) / max(norm, least)
        for a, b, norm in zip(found, exact, norms, strict=True)
    )


def interleaved(case: str, engines: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Times the engines in this process, and compares their results with those of float64 (of eager for a token)."""
    model, make = prepared(case, options.device)
    exact = [] if case.endswith("decoding") else in_float64(model, make)
    steps, errors = {}, {}
    for engine in engines:
        own = copy.deepcopy(model)
        steps[engine] = make(own, ENGINES[engine](own))
        first = steps[engine]()
        exact = exact or [t.clone() for t in first]
        errors[engine] = error(first, exact)
        milliseconds(steps[engine], 4)
    exact = []
    found: dict[str, list[float]] = {name: [] for name in steps}
    with alone(options.lock):
        for _ in range(options.rounds):
            for name, run in steps.items():
                run()
                found[name].append(milliseconds(run, options.calls))
    return {"times": {n: statistics.quantiles(t, n=4)[0] for n, t in found.items()}, "errors": errors}


def in_process(
    case: str, engines: Iterable[str], caches: Path, lock: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Measures one engine, or times all of them, in a separate process."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.bench_transformers"]
    command += ["--one", case, "--lock", str(lock)]
    command += ["--engines", *engines, "--device", options.device, "--rounds", str(options.rounds)]
    command += ["--calls", str(options.calls)]
    caches.mkdir(exist_ok=True)
    environment = os.environ | dict.fromkeys(CACHES, str(caches)) | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": ""}
    return figures_of(command, environment, options.limit)


def wrong(errors: dict[str, float]) -> list[str]:
    """Returns the engines whose error is far above eager's; that of decoding is 0 for eager, beside which it is."""
    least = max(errors.get("eager", 0.0), 1e-2)
    return [engine for engine, found in errors.items() if not found <= 10 * least]


def row(case: str, found: dict[str, Any], engines: Sequence[str]) -> str:
    apart = found["apart"]
    ours = apart.get("ours", {})
    facts = f"graphs {ours.get('graphs')} compiles {ours.get('compiles')} {' '.join(ours.get('breaks', []))}"
    facts += "".join(f" FAILED {f}" for f in dict.fromkeys(ours.get("failures", [])))
    facts += "".join(f" NOT REPLAYED {why}" for why in apart.get("ours r-o", {}).get("launched", []))
    facts += "".join(f" | {engine}: {each['problem']}" for engine, each in apart.items() if "problem" in each)
    facts += f" | {found['problem']}" if "problem" in found else ""
    firsts = " ".join(f"{apart[e].get('first', math.nan):.1f}" for e in engines)
    reserved = " ".join(f"{apart[e].get('reserved', math.nan):.0f}" for e in engines)
    times = " ".join(f"{name} {t:.2f}" for name, t in found.get("times", {}).items())
    errors = " ".join(f"{e:.0e}" for e in found.get("errors", {}).values())
    facts = "".join(f"WRONG: {engine} " for engine in wrong(found.get("errors", {}))) + facts
    gained = f"{gain(found['times']):.2f}" if "times" in found else ""
    return f"{case:24} ms {times} gain {gained} | first {firsts} | MB {reserved} | error {errors} | {facts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", default=[""], help="cases with all words of one of these in their name")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--timed-processes", type=int, default=4, help="of which one at a time runs")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one process")
    parser.add_argument("--rounds", type=int, default=11, help="0: no times")
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write all figures to this file as JSON")
    parser.add_argument("--one", help="measure one case in this process")
    parser.add_argument("--lock", default=os.devnull, help="the file that those hold who are timed")
    options = parser.parse_args()
    if options.one:
        if len(options.engines) == 1:
            print(json.dumps(first_call(options.one, options.engines[0], options.device)))
        else:
            print(json.dumps(interleaved(options.one, options.engines, options)))
        return
    chosen = [case for case in cases() if any(all(word in case for word in o.split()) for o in options.only)]
    print("engines:", *options.engines, flush=True)
    results: dict[str, Any] = {case: {"apart": {}} for case in chosen}
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock")
        lock.touch()

        def caches(case: str, engine: str) -> Path:
            return Path(folder, f"{case} {engine}".replace(" ", "_"))  # g++ gets the path from Inductor, unquoted

        def start(case: str, engine: str) -> dict[str, Any]:
            return in_process(case, [engine], caches(case, engine), lock, options)

        def time_all(case: str, engines: Sequence[str]) -> dict[str, Any]:
            for engine in engines:  # so that nothing is built again
                shutil.copytree(caches(case, engine), caches(case, ""), dirs_exist_ok=True)
            return in_process(case, dict.fromkeys(["eager", *engines]), caches(case, ""), lock, options)

        def done(case: str, last: bool) -> None:
            if last:
                print(row(case, results[case], options.engines), flush=True)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1))

        with ThreadPoolExecutor(options.processes) as pool:
            running: dict[Any, Any] = {pool.submit(start, c, e): (c, e) for c in chosen for e in options.engines}
            for future in as_completed(running):
                case, engine = running[future]
                results[case]["apart"][engine] = future.result()
                if len(results[case]["apart"]) == len(options.engines):
                    done(case, last=not options.rounds)
        with ThreadPoolExecutor(options.timed_processes) as pool:
            running = {}
            for case in chosen if options.rounds else ():
                engines = [e for e in options.engines if "problem" not in results[case]["apart"][e]]
                running[pool.submit(time_all, case, engines)] = case
            for future in as_completed(running):
                results[running[future]] |= future.result()
                done(running[future], last=True)
    gains = [g for r in results.values() if "times" in r and not math.isnan(g := gain(r["times"]))]
    if gains:
        mean = statistics.geometric_mean(gains)
        print(f"{len(gains)} of {len(chosen)} cases: geometric mean {mean:.3f}, least {min(gains):.2f}")
    if any(wrong(r.get("errors", {})) for r in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
