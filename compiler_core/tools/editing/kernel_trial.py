"""Tries a kernel that was written by hand beside the generated one, on the same arguments.

The arguments are those of the kernel's first launch in its program, run with random inputs like the recorded ones
(`replay`).  Both kernels then run in a separate process, in memory with guard zones (`guarded_run`), so that a
wrong one does no harm here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from compiler_core.backends.kernel_recorder import generate
from compiler_core.codegen.build import compilers
from compiler_core.codegen.cpp import launch
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.source import KernelSource
from compiler_core.config import CodeEdit
from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.records import Compile, Kernel
from compiler_core.tools import replay
from compiler_core.tools.accuracy import relative_error
from compiler_core.tools.changes.edited_texts import apply_edits, edited_loops, function_text, written_schedule
from compiler_core.tools.changes.loops_from_text import ParseContext, parse
from compiler_core.tools.editing import guarded_run
from compiler_core.tools.measure import preserved_state
from compiler_core.tools.questions.verdict import doubts_of
from compiler_core.tools.timing.faster import SpeedComparison, compare, fastest, slowest
from compiler_core.tools.timing.machine_load import machine_load

SECONDS = 30
"""How long both kernels may run in all, from an alarm that the process sets after its imports."""
START_SECONDS = 300
"""How long the process may take to import and build what it needs."""
MAX_BYTES = 1 << 31
"""The most bytes of all arguments together."""


@dataclass
class Trial:
    """The result of trying an edited kernel or graph beside the one that the compiler made."""

    name: str
    fault: str = ""
    """Why it cannot be used: it crashed, did not end, or wrote outside of its buffers; empty if none of these."""
    errors: dict[str, float | None] = field(default_factory=dict)
    """For each result the greatest error, divided by the greatest value; None: a NaN or infinity in one of both."""
    wrong: list[str] = field(default_factory=list)
    """The results whose error is more than rounding."""
    seconds: tuple[float, float] | None = None
    """The median time of the original, and of the edited one."""
    compared: SpeedComparison | None = None
    """How the edited one's times compare with the original's."""
    doubts: list[str] = field(default_factory=list)
    """What makes the times doubtful, as sentences."""
    change: str = ""
    """The difference of both texts."""

    @property
    def is_right(self) -> bool:
        return not self.fault and not self.wrong

    @property
    def times(self) -> str:
        """Both times and how they compare; empty if nothing was timed."""
        if not self.seconds or not self.compared:
            return ""
        before, after = self.seconds
        is_doubtful = self.doubts and self.compared.outcome in ("faster", "slower")
        compared = f"{self.compared.text}{', doubtful' if is_doubtful else ''}"
        return f"{before * 1e6:.1f} us -> {after * 1e6:.1f} us ({compared})"

    def set_times(self, rounds: Sequence[Sequence[float]]) -> None:
        """Sets the times from those of the original, and of the edited one, in each round."""
        before, after = rounds
        self.seconds = statistics.median(before), statistics.median(after)
        self.compared = compare(after, before)
        ranges = {
            name: (fastest(times), slowest(times)) for name, times in (("the original", before), ("yours", after))
        }
        self.doubts = doubts_of(ranges, machine_load())

    def __str__(self) -> str:
        lines = [f"{self.name}: {'the same values' if self.is_right else 'WRONG'}"]
        if self.fault:
            lines.append(self.fault)
        for name, error in self.errors.items():
            shown = "NaN or infinity in one of both" if error is None else f"error {error:.1e}" if error else "equal"
            lines.append(f"  {name:24} {shown}{'  <- more than rounding' if name in self.wrong else ''}")
        lines += [f"  {text}" for text in (self.times, *self.doubts) if text]
        return "\n".join(lines) + (f"\n{self.change}" if self.change else "")


def text_change(before: str, after: str) -> str:
    """Returns the lines that differ, with one line around."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))
    return "\n".join(lines[2:])


def tolerance(dtype: torch.dtype) -> float:
    """Returns the greatest relative error that counts as rounding."""
    return float(torch.finfo(dtype).eps ** 0.75) if dtype.is_floating_point else 0.0


def try_kernel(compile_: Compile, kernel: Kernel, source: str, edit: CodeEdit) -> Trial:
    """Runs the edited kernel beside the original, which is in the generated text `source`.

    Raises:
        UsageError: it cannot be tried: its program cannot run here, or its arguments are too large.
        BuildError: it cannot be built; the message has what the compiler says.
    """
    language: Any = kernel.language
    edited = apply_edits(KernelSource(language, source, ()), [edit]).text
    return _try_sources(kernel, source, edited, edit.original, first_launch(compile_, kernel))


def try_loops(compile_: Compile, kernel: Kernel, original: str, text: str) -> tuple[ir.Loops, Trial]:
    """Runs the kernel of an edited loop nest beside that of the original; returns the nest, and what was found.

    Raises:
        UsageError: the text is not a loop nest that can replace the original, or it cannot be tried.
        BuildError: as for `try_kernel`.
    """
    launched = _Launched(compile_, kernel, original)
    edited = edited_loops(launched.loops, text, {name: buffer.dtype for name, buffer in launched.buffers.items()})
    return edited, launched.compare(launched.source(launched.loops), launched.source(edited))


def try_schedule(compile_: Compile, kernel: Kernel, original: str, text: str) -> Trial:
    """Runs a kernel with a schedule of the user's beside the one with the compiler's; `original` is its loop nest.

    Raises:
        UsageError: a line is no rewrite, or is not legal there; or the kernel cannot be tried.
        BuildError: as for `try_kernel`.
    """
    launched = _Launched(compile_, kernel, original)
    language: Any = kernel.language
    schedules = {kernel.name: written_schedule(launched.loops, text, language)}
    return launched.compare(launched.source(launched.loops), launched.source(launched.loops, schedules))


class _Launched:
    """A kernel's loop nest, read from its text, with the arguments of its first launch."""

    def __init__(self, compile_: Compile, kernel: Kernel, text: str) -> None:
        self._kernel, self._arguments = kernel, first_launch(compile_, kernel)
        names = [*dict.fromkeys(re.findall(r" = load (\w+)\[", text)), *dict.fromkeys(_STORED.findall(text))]
        tensors = {n: each for n, each in zip(names, self._arguments, strict=False) if isinstance(each, torch.Tensor)}
        self.loops = parse(text, ParseContext({n: t.dtype for n, t in tensors.items()}, scalars=_scalars(text)))
        self.buffers = {
            n: ir.Buffer(n, t.dtype, tuple(t.shape), t.stride(), t.device, "input") for n, t in tensors.items()
        }

    def source(self, loops: ir.Loops, schedules: cpp.Schedules = cpp.NO_SCHEDULES) -> str:
        """Returns the source of the kernel of a loop nest."""
        language: Any = self._kernel.language
        program = ir.Program(self._kernel.graph, self.buffers, (), (loops,), ())
        return generate(program, language, schedules=schedules).text

    def compare(self, source: str, edited: str) -> Trial:
        """Runs both sources."""
        head = function_text(source, self._kernel.name) or ""
        return _try_sources(self._kernel, source, edited, head, self._arguments)


_STORED = re.compile(r"^ +store (\w+)\[", re.MULTILINE)
_BARE_NAME = re.compile(r"^ +\w+: (?:f64|i64) = ([A-Za-z_]\w*)$", re.MULTILINE)


def _scalars(text: str) -> set[str]:
    """Returns the names of the scalar arguments of a loop nest: the names that are read once and defined nowhere."""
    return {name for name in _BARE_NAME.findall(text) if len(re.findall(rf"\b{name}\b", text)) == 1}


def _try_sources(kernel: Kernel, source: str, edited: str, head: str, launched: tuple[Any, ...]) -> Trial:
    """Runs the kernel of two sources on the arguments of a launch; `head` begins with its parameters."""
    trial = Trial(kernel.name)
    language: Any = kernel.language
    with tempfile.TemporaryDirectory() as name, preserved_state():
        folder = Path(name)
        job: dict[str, Any] = {"language": language, "name": kernel.name, "returns": None, "seconds": SECONDS}
        if kernel.language == "cpp":
            for which, text in enumerate((source, edited)):
                library = compilers.library_content(launch.library_source(text))
                (folder / f"kernel{which}.so").write_bytes(library)
            (signature,) = [s for s in compilers.signatures(source) if s.name == kernel.name]
            job["returns"] = signature.returns
        else:
            (folder / "kernel0.py").write_text(source)
            (folder / "kernel1.py").write_text(edited)
        arguments = _Arguments(launched, folder, head)
        (folder / "job.json").write_text(json.dumps(job | arguments.job))
        lines = _run(language, folder, trial, arguments)
        if len(lines) > 1:
            arguments.compare(folder, trial)
            if lines[0]["fault"] != lines[1]["fault"]:
                trial.fault = "it reports an index out of range where the original does not, or the other way round"
        if rounds := next((line["seconds"] for line in lines if "seconds" in line), None):
            trial.set_times(rounds)
    return trial


def first_launch(compile_: Compile, kernel: Kernel) -> tuple[Any, ...]:
    """Returns the arguments of the first launch of a kernel; the tensors are copies from before it."""
    saved: dict[str, Any] = {}
    found: list[tuple[Any, ...]] = []

    def keep(args: tuple[Any, ...]) -> None:
        if not found:
            found.append(_copied(args))

    for wrapper in replay.wrappers(compile_):
        direction = wrapper.name.partition(".")[0]
        program = replay.load(compile_, wrapper, lambda kernel: None, lambda kernel, values: None)
        names = _names(compile_, direction)
        for at, name in enumerate(names[0]):
            program.inputs[at] = saved.get(name, program.inputs[at])
        try:
            if direction == kernel.graph:
                program.observe_launches(kernel.name, keep)
            results = program.run()
        finally:
            program.release()
        if found:
            return found[0]
        saved = dict(zip(names[1], results, strict=False))
    raise UsageError(f"{kernel.name} was not launched when its program ran with inputs like the recorded ones")


def _names(compile_: Compile, direction: str) -> tuple[list[str], list[str]]:
    """Returns the names of a graph's inputs and of its results."""
    graph = compile_.find(direction).graph
    assert graph is not None
    inputs = [node.key for node in graph.nodes if node.op == "placeholder"]
    text = compile_.find(direction).text.rpartition("return [")[2].partition("]")[0]
    return inputs, [name.strip() for name in text.split(",")]


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns arguments whose tensors are copies; tensors that share memory share it in the copies."""
    storages: dict[int, Any] = {}
    copies = []
    for each in args:
        if isinstance(each, torch.Tensor):
            storage: Any = each.untyped_storage()
            if storage.data_ptr() not in storages:
                storages[storage.data_ptr()] = storage.clone()
            copies.append(_in_memory(storages[storage.data_ptr()], each))
        else:
            copies.append(each)
    return tuple(copies)


def _in_memory(storage: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns the tensor `like` in other memory."""
    tensor = torch.empty(0, dtype=like.dtype, device=storage.device)
    return tensor.set_(storage, like.storage_offset(), like.size(), like.stride())


class _Arguments:
    """The arguments of one launch, written to a folder."""

    def __init__(self, args: Sequence[Any], folder: Path, text: str) -> None:
        self._names = list(_parameters(text))
        self._tensors: list[tuple[str, int, torch.Tensor]] = []
        self._contents: list[bytes] = []
        numbers: dict[int, int] = {}
        described: list[dict[str, Any]] = []
        device = "cpu"
        for name, each in zip(self._names, args, strict=False):
            if not isinstance(each, torch.Tensor):
                described.append({"real": each} if isinstance(each, float) else {"whole": int(each)})
                continue
            device = str(each.device)
            storage = each.untyped_storage()
            if storage.data_ptr() not in numbers:
                numbers[storage.data_ptr()] = len(self._contents)
                self._contents.append(_bytes(storage))
            number = numbers[storage.data_ptr()]
            self._tensors.append((name, number, each))
            described.append({
                "buffer": number,
                "offset": each.storage_offset() * each.element_size(),
                "dtype": str(each.dtype).removeprefix("torch."),
                "size": list(each.size()),
                "stride": list(each.stride()),
            })  # fmt: skip
        if sum(map(len, self._contents)) > MAX_BYTES:
            raise UsageError(f"its arguments take more than {MAX_BYTES >> 30} GiB; try it with smaller inputs")
        self._poison_results(text)
        for number, content in enumerate(self._contents):
            (folder / f"{number}.in").write_bytes(content)
        self.job = {"args": described, "buffers": len(self._contents), "device": device}

    def _poison_results(self, text: str) -> None:
        """Fills memory that is only written, so that what an edited kernel leaves out is found."""
        stored = set(re.findall(r"tl\.store\((\w+)_ptr", text)) - set(re.findall(r"tl\.load\((\w+)_ptr", text))
        read = {number for name, number, _ in self._tensors if not name.startswith("out_") and name not in stored}
        for number in range(len(self._contents)):
            if number not in read:
                self._contents[number] = b"\xa5" * len(self._contents[number])

    def name(self, number: int) -> str:
        """Returns the parameters that are in a buffer."""
        return ", ".join(name for name, n, _ in self._tensors if n == number)

    def compare(self, folder: Path, trial: Trial) -> None:
        """Compares what both kernels left in each buffer."""
        for number, content in enumerate(self._contents):
            before, after = ((folder / f"{number}.{which}").read_bytes() for which in (0, 1))
            inside = torch.zeros(len(content), dtype=torch.bool)
            for name, of, tensor in self._tensors:
                if of != number:
                    continue
                right, found = (_viewed(bytes_, tensor) for bytes_ in (before, after))
                _mark(inside, tensor)
                if before == content:  # an input
                    if after != content:
                        trial.fault = f"it stores to {name}, which the original only reads"
                    continue
                error = relative_error(found, right)
                trial.errors[name] = error
                if error is None or error > tolerance(tensor.dtype):
                    trial.wrong.append(name)
            gaps = torch.frombuffer(bytearray(before or b"\0"), dtype=torch.uint8)[: len(content)]
            others = torch.frombuffer(bytearray(after or b"\0"), dtype=torch.uint8)[: len(content)]
            count = int(((gaps != others) & ~inside).sum())
            if count:
                trial.fault = f"it stores {count:,} bytes between the elements of {self.name(number)}"


def _parameters(text: str) -> Iterator[str]:
    """Yields the names of a kernel's parameters, from its text; those of a Triton kernel without ``_ptr``."""
    head, _, rest = text.partition("(")
    listed = rest.partition(") noexcept")[0] if 'extern "C"' in head else rest.partition("):")[0]
    for each in listed.replace("\n", " ").split(","):
        if "constexpr" not in each and each.strip():
            name = each.partition(":")[0].split()[-1] if 'extern "C"' not in head else each.split()[-1]
            yield name.removesuffix("_ptr")


def _bytes(storage: Any) -> bytes:
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage.cpu()).numpy())


def _viewed(content: bytes, like: torch.Tensor) -> torch.Tensor:
    """Returns the tensor `like` in memory with this content."""
    return _in_memory(torch.frombuffer(bytearray(content or bytes(16)), dtype=torch.uint8).untyped_storage(), like)


def _mark(inside: torch.Tensor, tensor: torch.Tensor) -> None:
    """Marks the bytes of a tensor in those of its memory."""
    width, start = tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    if tensor.numel():
        inside.as_strided((*tensor.shape, width), (*(s * width for s in tensor.stride()), 1), start).fill_(True)


def _run(language: str, folder: Path, trial: Trial, arguments: _Arguments) -> list[dict[str, Any]]:
    """Runs both kernels in a separate process, and returns what it printed."""
    lines = run_apart(["-m", guarded_run.__name__, str(folder)], trial, "it accesses", silent="the original")
    if len(lines) > 1 and not trial.fault:
        for number, overrun in enumerate(lines[1]["overruns"]):
            if overrun:
                trial.fault = _overrun_text(overrun, arguments.name(number))
    return lines


def run_apart(arguments: list[str], trial: Trial, accesses: str, silent: str = "it") -> list[dict[str, Any]]:
    """Runs Python in a separate process and returns the lines of JSON that it printed; notes how it failed in `trial`.

    Args:
        arguments: those of Python.
        trial: where the failure is noted.
        accesses: who accesses memory if it crashes.
        silent: what failed if nothing was printed.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=START_SECONDS, env=environment, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        trial.fault = f"it did not end within {START_SECONDS} s"
        return []
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    which = "it" if lines else silent
    if done.returncode == -signal.SIGALRM and (len(lines) > 1 or any("errors" in line for line in lines)):
        trial.doubts = ["They were not timed: both gave their values, but further runs did not end in time."]
    elif done.returncode == -signal.SIGALRM:
        trial.fault = "it did not end within its time limit"
    elif done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        trial.fault = f"{which} crashed ({name}): {accesses} memory far outside of its buffers"
    elif done.returncode:
        trial.fault = f"{which} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return lines


def _overrun_text(overrun: dict[str, int], name: str) -> str:
    where = "its end" if "after" in overrun else "its start"
    far = overrun.get("after", overrun.get("before", 0))
    how = f", {far:,} bytes {'after' if 'after' in overrun else 'before'} {where}" if far else f", at {where}"
    return f"out of range: it stores {overrun['bytes']:,} bytes outside of {name}{how}"
