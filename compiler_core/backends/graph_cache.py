"""The cache of compiled graphs on disk: the results of all stages after capture.

    ~/.cache/cutaway/graphs/<digest>       `graph_key` has the digest, `codegen/build/disk_cache` the files

An entry is compressed JSON: what is needed to run the graph, and what the stages wrote to the record.  Capture and
guards are not cached.  A file that is damaged or of another format is ignored.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.autograd_function import (
    AutogradSource,
    BoxedGraph,
    CompiledCall,
    GraphCallables,
    bind_source,
)
from compiler_core.autograd.trace.shape_assumptions import (
    ShapeAssumptions,
    collect_assumptions,
    replay_assumptions,
    shape_env_of,
)
from compiler_core.backends.cuda_graphs import ReplayedRunner, ReplayLayout
from compiler_core.backends.graph_key import graph_digest, graph_key
from compiler_core.backends.replay_memory import GraphMemory
from compiler_core.codegen.build import disk_cache
from compiler_core.codegen.build.kernel_lookups import noted_lookups
from compiler_core.codegen.wrapper.executable import Executable, load
from compiler_core.config import Options
from compiler_core.errors import CompileWarning, MissingTool, NotCacheable, StrictError
from compiler_core.hook.failures import NOT_KEPT, report_failure
from compiler_core.loops import ir
from compiler_core.records import Compile, CudaGraph, RecordError, from_plain, public_fields, to_plain, without_gc
from compiler_core.records.kernels import CacheLookup
from compiler_core.support.interrupts import immediate_signals

MAX_BYTES = 1 << 20
"""The largest size, in bytes, of the constants of a graph in the cache."""


@dataclass(frozen=True)
class Constant:
    """A serialised tensor."""

    dtype: str
    size: list[int]
    device: str
    content: str
    """Its bytes in base64."""


def serialize(constants: Mapping[str, Any]) -> dict[str, Constant]:
    """Serializes constants to plain data.

    Raises:
        NotCacheable: one is not a plain tensor, or they are larger than `MAX_BYTES`.
    """
    for value in constants.values():
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise NotCacheable(f"it has a {type(value).__name__} as a constant, which cannot be saved")
        if value.is_meta:
            raise NotCacheable("it has a constant tensor without values")
        if not value.is_contiguous() or value.is_conj() or value.is_neg() or value.requires_grad:
            raise NotCacheable("it has a constant tensor that is not a plain contiguous one")
    if (size := sum(value.nbytes for value in constants.values())) > MAX_BYTES:
        raise NotCacheable(f"its constants have {size:,} bytes, and at most {MAX_BYTES:,} are saved")
    return {name: _serialize_tensor(value) for name, value in constants.items()}


def _serialize_tensor(tensor: torch.Tensor) -> Constant:
    content = tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Constant(dtype, list(tensor.shape), str(tensor.device), base64.b64encode(content).decode())


def deserialize(constants: Mapping[str, Constant]) -> dict[str, torch.Tensor]:
    """Restores the tensors that `serialize` was given, on their devices."""
    return {name: _deserialize_tensor(constant) for name, constant in constants.items()}


def _deserialize_tensor(constant: Constant) -> torch.Tensor:
    content = bytearray(base64.b64decode(constant.content))
    memory = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return memory.clone().view(getattr(torch, constant.dtype)).reshape(constant.size).to(constant.device)


RECORD_FIELDS = (
    "artifacts",
    "expansions",
    "fusions",
    "refusals",
    "schedules",
    "kernels",
    "resources",
    "tunings",
    "memory",
    "cuda_graphs",
    "edges",
)
"""The lists of a `Compile` to which the stages after capture add."""


@dataclass(frozen=True)
class CachedFunction:
    """A compiled forward or backward, as plain data."""

    executable: Executable
    constants: dict[str, Constant]
    replayed: ReplayLayout | None
    """Set if its launches are replayed with a CUDA graph, which each process records again."""

    @staticmethod
    def of(run: Any) -> CachedFunction:
        """Converts a compiled function to plain data.

        Raises:
            NotCacheable: it cannot be saved.
        """
        if not hasattr(run, "constants") and not isinstance(run, ReplayedRunner):
            raise NotCacheable("a part of it runs on the CPU")
        inner: Any = run.run if isinstance(run, ReplayedRunner) else run
        layout = run.layout if isinstance(run, ReplayedRunner) else None
        return CachedFunction(inner.executable, serialize(inner.constants), layout)

    def load(self, graphs: Sequence[CudaGraph], compile_: Compile, memory: GraphMemory) -> BoxedGraph:
        """Returns the compiled function; if it is replayed, its entry in `graphs` records what happens, and `memory` is
        what forward and backward share."""
        run = load(self.executable, deserialize(self.constants))
        if self.replayed is None:
            return run
        note = next(graph for graph in graphs if graph.graph == self.executable.program)
        return ReplayedRunner(run, self.replayed, note, compile_, memory)


@dataclass(frozen=True)
class CacheEntry:
    """A compiled graph, as plain data."""

    source: AutogradSource
    forward: CachedFunction
    backward: CachedFunction | None
    assumed: ShapeAssumptions | None
    """The assumptions on symbolic sizes, if there are any."""
    notes: Compile
    """What the stages after capture wrote to the record."""


class CacheSlot:
    """The place of one graph in the cache: its key, and its entry if there is one."""

    def __init__(
        self, gm: fx.GraphModule, examples: Sequence[Any], compile_: Compile, options: Options, languages: ir.Languages
    ) -> None:
        self._captured, self._compile, self._env = gm, compile_, shape_env_of(examples)
        self._guards = len(self._env.guards) if self._env else 0
        self._key: str | None = None
        self._found: CacheEntry | None = None
        self._error: Exception | None = None
        """The failure because of which there is no key; it is reported after the graph has been compiled."""
        self._strict = options.strict
        self._lookup = CacheLookup("graph cache", "", "miss")
        compile_.cache_lookups.append(self._lookup)
        disk_cache.take_problems()  # discards errors of other graphs
        with compile_.step("backend", "cache") as self._event:
            self._event.detail = "not there"
            try:
                self._lookup.fields = graph_key(gm, examples, options, languages)
                self._lookup.key = self._key = graph_digest(self._lookup.fields)
                self._found = self._read()
            except NotCacheable as error:
                self._event.detail = f"not kept: {error}"
                self._lookup.outcome, self._lookup.reason = "not cached", str(error)
            except Exception as error:
                self._event.detail, self._error = f"not kept: {error}", error
                self._lookup.outcome, self._lookup.reason = "not cached", str(error)
        self._lengths = {name: len(getattr(compile_, name)) for name in ("events", "failures", *RECORD_FIELDS)}

    def _read(self) -> CacheEntry | None:
        content = disk_cache.read("graphs", self._key) if self._key else None
        if not content:
            return None
        try:
            with immediate_signals():  # a large entry takes a second
                text = zlib.decompress(content)
                entry: CacheEntry = without_gc(lambda: from_plain(json.loads(text), CacheEntry, "entry"))
                return entry
        except (zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecordError):
            return None

    def load(self) -> CompiledCall | None:
        """Returns the compiled graph of the entry, or None; adds to the record what was recorded at its compile."""
        try:
            found = None if self._found is None else self._load_entry(self._found)
        except (CompileWarning, StrictError, MissingTool):
            raise
        except Exception as error:
            self._error = error
            self._event.detail = self._lookup.reason = f"found, but it cannot be loaded: {error}"
            return None
        if found is not None:
            self._report_errors()
        return found

    def _load_entry(self, entry: CacheEntry) -> CompiledCall | None:
        compile_ = self._compile
        if entry.assumed and not replay_assumptions(self._env, entry.assumed, self._captured.graph):
            self._event.detail = self._lookup.reason = "found, but other things are known of its sizes"
            return None
        with compile_.step("build", "cache"):
            graphs, memory = entry.notes.cuda_graphs, GraphMemory()
            lookups = compile_.cache_lookups
            with noted_lookups(lookups, "forward"):
                forward = entry.forward.load(graphs, compile_, memory)
            with noted_lookups(lookups, "backward"):
                backward = None if entry.backward is None else entry.backward.load(graphs, compile_, memory)
        graph = None if backward is None else _lazy_function(entry.notes.find("backward").text, "backward")
        call = bind_source(entry.source, {}, GraphCallables(self._captured, forward, backward, graph), compile_)
        self._lookup.outcome = "hit"
        self._event.detail = "found: the stages below ran when it was made"
        if entry.notes.id != compile_.id:
            _replace_compile_id(entry.notes, entry.notes.id, compile_.id)
        _extend_record(entry.notes, compile_)
        return call

    def save(
        self, source: AutogradSource, constants: Mapping[str, Any], forward: BoxedGraph, backward: BoxedGraph | None
    ) -> None:
        """Writes the entry of a graph that has been compiled."""
        try:
            if self._key is not None:
                entry = self._make_entry(source, constants, forward, backward)
                with immediate_signals():
                    content = zlib.compress(without_gc(lambda: json.dumps(to_plain(entry))).encode(), 1)
                disk_cache.write("graphs", self._key, content)
                self._event.detail = "made now, and kept"
        except NotCacheable as error:
            self._event.detail = f"not kept: {error}"
        except Exception as error:
            self._event.detail, self._error = f"not kept: {error}", error
        self._report_errors()

    def _report_errors(self) -> None:
        """Reports why the graph, or its kernels, could not be cached."""
        errors: list[Exception] = [*disk_cache.take_problems()]
        if self._error is not None:
            errors.append(self._error)
        for error in {str(error): error for error in errors}.values():
            report_failure(self._compile, "backend", error, meaning=NOT_KEPT, strict=self._strict)

    def _make_entry(
        self, source: AutogradSource, constants: Mapping[str, Any], forward: BoxedGraph, backward: BoxedGraph | None
    ) -> CacheEntry:
        if constants:
            raise NotCacheable("its autograd function refers to objects, which cannot be saved")
        if len(self._compile.failures) > self._lengths["failures"]:
            raise NotCacheable("something failed")
        assumptions = collect_assumptions(self._env, self._guards, self._captured.graph) if self._env else None
        cached_forward = CachedFunction.of(forward)
        cached_backward = None if backward is None else CachedFunction.of(backward)
        return CacheEntry(source, cached_forward, cached_backward, assumptions, self._new_notes())

    def _new_notes(self) -> Compile:
        compile_, lengths = self._compile, self._lengths
        new = {name: getattr(compile_, name)[lengths[name] :] for name in ("events", *RECORD_FIELDS)}
        return Compile(compile_.id, compile_.frame, partition=compile_.partition, **new)


def _extend_record(notes: Compile, compile_: Compile) -> None:
    """Adds `notes` to the record; events of the stages take no time now, and mention how long they took."""
    for event in notes.events:
        now = compile_.events[-1].end or 0
        took = f"{((event.end or 0) - event.start) / 1e6:.1f} ms when it was made"
        detail = f"{event.detail}; {took}" if event.detail else took
        compile_.events.append(dataclasses.replace(event, start=now, end=now, detail=f"{detail}; from the cache"))
    for name in RECORD_FIELDS:
        getattr(compile_, name).extend(getattr(notes, name))
    for each in (each for tuning in notes.tunings for each in tuning.tried):
        each.cached = True
    compile_.partition = notes.partition


def _replace_compile_id(noted: Any, was: str, now: str) -> Any:
    """Replaces the compile id `was` by `now` in the ids of all items in `noted`, in place."""
    if isinstance(noted, list):
        return [_replace_compile_id(each, was, now) for each in noted]
    for name, holds_ids in _id_fields(noted.__class__).items():
        value = getattr(noted, name)
        setattr(noted, name, _replace_id(value, was, now) if holds_ids else _replace_compile_id(value, was, now))
    return noted


def _replace_id(ids: Any, was: str, now: str) -> Any:
    if isinstance(ids, list):
        return [_replace_id(each, was, now) for each in ids]
    return f"{now}{ids.removeprefix(was)}" if ids and ids.startswith(f"{was}:") else ids


@functools.cache
def _id_fields(kind: type) -> dict[str, bool]:
    """Returns the fields of a class of the record, and whether they hold ids; of another class, none."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {f.name: "ItemId" in str(f.type) or "ArtifactId" in str(f.type) for f in public_fields(kind)}


def _lazy_function(text: str, name: str) -> Callable[..., Any]:
    """Returns the function whose source is `text`, compiled at its first call."""
    functions: list[Callable[..., Any]] = []

    def call(*args: Any) -> Any:
        if not functions:
            scope: dict[str, Any] = {}
            exec(compile(text, f"<cutaway {name}>", "exec"), scope)
            functions.append(scope[name])
        return functions[0](*args)

    return call
