"""Runs two texts of one wrapper on the same inputs: ``python -m compiler_core.tools.editing.wrapper_run FOLDER``.

It runs in its own process, which a wrong wrapper may crash.  ``job.json`` in the folder has the texts of the wrappers
and of the kernels that they launch.  What a wrapper allocates, and its inputs, lie between zones filled with a pattern
(`guarded_run.DeviceBuffer`), so that a store outside is found.  A line of JSON says what was found.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from compiler_core.codegen.wrapper.executable import NAMES, launchers
from compiler_core.tools.accuracy import relative_error
from compiler_core.tools.editing.guarded_run import PATTERN, ZONE
from compiler_core.tools.example_inputs import random_tensor
from compiler_core.tools.in_turn import seconds_in_rounds
from compiler_core.tools.replay import inductor_inputs
from compiler_core.torch_private import AutoDispatchBelowADInplaceOrView, tree_leaves

ALLOCATIONS = {
    "empty": "cpu", "empty_large": "cpu", "empty_cuda": "cuda",
    "empty_strided_cpu": "cpu", "empty_strided_cuda": "cuda",
}  # fmt: skip
"""The functions by which wrappers allocate, ours and Inductor's, with their device."""


class GuardedMemory:
    """Allocates tensors between zones that are filled with a pattern."""

    def __init__(self) -> None:
        self._memory: list[tuple[str, torch.Tensor]] = []

    def allocate(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
        """Returns a tensor whose elements also have the pattern, which is NaN as a float."""
        length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
        memory = torch.full((2 * ZONE + length * dtype.itemsize,), PATTERN[0], dtype=torch.uint8, device=device)
        self._memory.append((f"a buffer of size {tuple(size)}", memory))
        return torch.empty(0, dtype=dtype, device=device).set_(
            memory.untyped_storage(), ZONE // dtype.itemsize, size, stride
        )

    def copied(self, value: Any) -> Any:
        """Returns a copy of a tensor; anything else as it is."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        return self.allocate(value.shape, value.stride(), value.dtype, value.device).copy_(value)

    def overrun(self) -> str:
        """Returns what was stored outside of the tensors; empty if nothing was."""
        for name, memory in self._memory:
            zones = torch.stack([memory[:ZONE], memory[memory.numel() - ZONE :]])
            if count := int((zones != PATTERN[0]).sum()):
                return f"out of range: it stores {count:,} bytes outside of {name}"
        return ""


def main(folder: Path) -> None:
    """Runs the job in `folder`, and prints what was found."""
    job = json.loads((folder / "job.json").read_text())
    inputs = _loaded(job, 0, None)[1]
    signal.alarm(job["seconds"])  # ends the process, also inside a kernel
    runs = []
    for which in (0, 1):
        memory = GuardedMemory()
        try:
            runs.append(_run(_loaded(job, which, memory)[0], [memory.copied(each) for each in inputs]))
        except Exception as error:
            message = (str(error).strip().splitlines() or [""])[0]
            _print({"which": which, "fault": f"it raises {type(error).__name__}: {message}"})
            return
        if fault := memory.overrun():
            _print({"which": which, "fault": fault})
            return
    _print(_compared(runs[0], runs[1], job["names"]))
    calls = [_timed_call(_loaded(job, which, None)[0], inputs) for which in (0, 1)]
    on_gpu = any(isinstance(each, torch.Tensor) and each.is_cuda for each in inputs)
    _print({"seconds": seconds_in_rounds(calls, torch.cuda.synchronize if on_gpu else lambda: None)})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _loaded(job: dict[str, Any], which: int, memory: GuardedMemory | None) -> tuple[Callable[..., Any], list[Any]]:
    """Returns the function that a text defines, and its random inputs, which are made with its constants."""
    namespace: dict[str, Any] = {"__name__": "wrapper"}
    if job["kernels"] is not None:  # ours
        names = {**NAMES, "random_tensor": random_tensor}
        namespace |= names | {f"{name}_": value for name, value in names.items()} | launchers(job["kernels"])
    exec(compile(job["texts"][which], f"<wrapper {which}>", "exec"), namespace)
    if memory is not None:
        for name, device in ALLOCATIONS.items():
            for each in {name, f"{name}_"} & namespace.keys():
                namespace[each] = functools.partial(memory.allocate, device=device)
    own = namespace.get("random_inputs") or namespace.get("random_inputs_")
    torch.manual_seed(0)
    return namespace[job["function"]], own() if own else inductor_inputs(namespace)


def _run(function: Callable[..., Any], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the results, and the inputs after the run."""
    torch.manual_seed(0)
    with torch.no_grad(), AutoDispatchBelowADInplaceOrView():
        results = function(list(inputs))
    return tree_leaves(results, is_leaf=lambda each: each is None), inputs


def _timed_call(function: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    def call() -> None:
        with torch.no_grad(), AutoDispatchBelowADInplaceOrView():
            function(list(inputs))

    return call


def _compared(one: tuple[list[Any], list[Any]], other: tuple[list[Any], list[Any]], names: list[str]) -> dict[str, Any]:
    """Compares what both texts returned, and what they left in their inputs."""
    (right, right_inputs), (found, found_inputs) = one, other
    if len(right) != len(found):
        return {"fault": f"it must return {len(right)} values; it returns {len(found)} now"}
    errors: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    both = zip(right, found, strict=True)
    pairs = [(names[at] if at < len(names) else f"result {at}", *pair) for at, pair in enumerate(both)]
    both = zip(right_inputs, found_inputs, strict=True)
    pairs += [(f"input {at}", *pair) for at, pair in enumerate(both)]
    for name, before, after in pairs:
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor) or before != after:
                return {"fault": f"{name} must stay {_kind(before)}; it is {_kind(after)} now"}
        elif _kind(before) != _kind(after):
            return {"fault": f"{name} must stay {_kind(before)}; it is {_kind(after)} now"}
        else:
            error = relative_error(after, before)
            if error != 0 or not name.startswith("input "):
                errors[name], dtypes[name] = error, str(before.dtype).removeprefix("torch.")
    return {"errors": errors, "dtypes": dtypes}


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)[:80]
    strides = "" if value.is_contiguous() else f" with strides {value.stride()}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
