"""Measures one case in this process: what it compiles to, how fast, how exact, and how much memory it takes."""

from __future__ import annotations

import contextlib
import copy
import resource
import sys
import time as clock
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from compiler_core.api.compile import compile
from compiler_core.records import Record, Timing, to_plain
from compiler_core.tools.questions.counts import count
from compiler_core.tools.recording import record
from compiler_core.tools.sweep.cases import make_case
from compiler_core.tools.timing.call import time
from compiler_core.torch_private import tree_leaves, tree_map

SEED = 0


def measure_case(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a case and returns its row.

    Args:
        spec: `Case.spec`.
        settings: `Settings` as a dict; ``record`` is the path at which the record is saved, empty for none.

    Raises:
        Whatever the case raises.
    """
    torch.manual_seed(SEED)
    fn, args, kwargs = make_case(spec)
    engine = settings["engine"]
    began = clock.perf_counter()
    with record(spec["name"], engine=engine) as opened:
        compiled = (compile if engine == "core" else torch.compile)(fn, **settings["options"])
        result = _seeded_call(compiled, args, kwargs)
        for _ in range(settings["calls"] - 1):
            _seeded_call(compiled, args, kwargs)
    first_seconds = clock.perf_counter() - began
    row = _counts(opened)
    row["first_seconds"] = first_seconds
    row["error"], row["eager_error"] = _errors(fn, args, kwargs, result)
    row.update(_times(fn, compiled, args, kwargs, settings["seconds"]))
    if settings["record"]:
        opened.save(Path(settings["record"]))
    scale = 1 if sys.platform == "darwin" else 1024
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    row["peak_device_bytes"] = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return row


def _seeded_call(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch.manual_seed(SEED)
    with torch.no_grad():
        return fn(*args, **kwargs)


def _counts(opened: Record) -> dict[str, Any]:
    counts = count(opened)
    return {
        "graphs": counts.graphs,
        "graph_breaks": counts.graph_breaks,
        "recompiles": counts.recompiles,
        "failures": counts.failures,
        "compile_seconds": counts.compile_seconds,
        "breaks": to_plain(counts.breaks),
        "failed": to_plain(counts.failed),
    }


def _errors(fn: Any, args: Any, kwargs: Any, result: Any) -> tuple[float | None, float | None]:
    """Returns the greatest error of the compiled result and of eager's, relative to the result in float64.

    None where the case cannot run in float64, or its results have other shapes there.
    """
    with contextlib.suppress(Exception):
        wide = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
        with _default_dtype(torch.float64):
            exact = _seeded_call(wide, *tree_map(_widened, (args, kwargs)))
        eager = _seeded_call(fn, args, kwargs)
        return _error(result, exact), _error(eager, exact)
    return None, None


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _widened(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_narrow else value


def _error(actual: Any, exact: Any) -> float | None:
    """Returns the greatest difference of floating-point tensors, relative to the greatest value of each."""
    greatest = 0.0
    pairs = list(zip(tree_leaves(actual), tree_leaves(exact), strict=True))
    floats = [(a, e) for a, e in pairs if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for value, wanted in floats:
        if value.shape != wanted.shape:
            return None
        if value.numel():
            scale = wanted.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
            error = float(((value.double() - wanted).abs().max() / scale).nan_to_num(nan=float("inf")))
            greatest = max(greatest, error)
    return greatest if floats and greatest != float("inf") else None


def _times(fn: Any, compiled: Any, args: Any, kwargs: Any, seconds: float) -> dict[str, float | None]:
    row: dict[str, float | None] = {"eager_seconds": None, "compiled_seconds": None, "speed": None}
    if seconds <= 0:
        return row
    with torch.no_grad():
        timed = time(None, *args, engines={"eager": fn, "compiled": compiled}, seconds=seconds, **kwargs)  # type: ignore[arg-type]
    names = {each.name for each in timed.rows}
    if {"eager", "compiled"} <= names:
        row["eager_seconds"], row["compiled_seconds"] = timed["eager"].median, timed["compiled"].median
        row["speed"] = _speed(timed["compiled"])
    return row


def _speed(row: Timing) -> float | None:
    """Returns how many times as fast a form is: 1 if no difference was measured, None if nobody can say."""
    if row.unclear:
        return None
    return row.speed if row.differs else 1.0
