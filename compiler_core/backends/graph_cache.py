"""Compiled graphs on disk: what the stages after capture made, found again by the digest of all that decides it.

    ~/.cache/cutaway/graphs/<digest>       see `graph_key` for the digest, `cache` for the files

An entry holds plain data as packed JSON: what runs, and what the record shows of how it came about.  Capture and
guards always run anew.  A file that is damaged, foreign or of another form is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from compiler_core.autograd.autograd_function import Boxed, Call, Glue, Graphs, bound
from compiler_core.backends import constants_io
from compiler_core.backends.constants_io import Constant
from compiler_core.backends.cuda_graphs import Places, Replayed
from compiler_core.backends.graph_key import key_of
from compiler_core.codegen.build import disk_cache
from compiler_core.codegen.wrapper.executable import Recipe, load
from compiler_core.config import Options
from compiler_core.errors import CompileWarning, MissingTool, NotKeyed, StrictError
from compiler_core.hook.failures import NOT_KEPT, heard
from compiler_core.loops import ir
from compiler_core.records import Compile, CudaGraph, RecordError, from_plain, public_fields, to_plain
from compiler_core.support.shape_assumptions import Assumed, assume, assumed, environment

NOTED = (
    "artifacts",
    "expansions",
    "fusions",
    "refusals",
    "kernels",
    "resources",
    "tunings",
    "memory",
    "cuda_graphs",
    "edges",
)
"""What the stages after capture add to a compile, besides the partition."""


@dataclass(frozen=True)
class Half:
    """A forward or a backward."""

    recipe: Recipe
    constants: dict[str, Constant]
    replayed: Places | None
    """Where its launches are replayed; they are recorded anew in each process."""

    @staticmethod
    def of(run: Any) -> Half:
        """NotKeyed where no file can hold it."""
        inner: Any = run.run if isinstance(run, Replayed) else run
        places = run.of if isinstance(run, Replayed) else None
        return Half(inner.recipe, constants_io.written(inner.constants), places)

    def load(self, graphs: Sequence[CudaGraph], compile_: Compile) -> Boxed:
        """The function; that of `graphs` which is of it says what becomes of replaying it."""
        run = load(self.recipe, constants_io.read(self.constants))
        if self.replayed is None:
            return run
        note = next(graph for graph in graphs if graph.graph == self.recipe.program)
        return Replayed(run, self.replayed, note, compile_)


@dataclass(frozen=True)
class Kept:
    """One compiled graph."""

    glue: Glue
    forward: Half
    backward: Half | None
    assumed: Assumed | None
    """Of sizes, where there are symbolic ones."""
    notes: Compile
    """What the stages wrote into the record, and nothing else."""


class Place:
    """Where a graph's entry lies, if it can have one."""

    def __init__(
        self, gm: fx.GraphModule, examples: Sequence[Any], compile_: Compile, options: Options, languages: ir.Languages
    ) -> None:
        self._captured, self._compile, self._env = gm, compile_, environment(examples)
        self._guards = len(self._env.guards) if self._env else 0
        self._key: str | None = None
        self._found: Kept | None = None
        self._error: Exception | None = None
        """Why it has no place, where that is a failure: heard of when the graph is compiled all the same."""
        self._strict = options.strict
        disk_cache.noted()  # of other graphs
        with compile_.step("backend", "cache") as self._event:
            self._event.detail = "not there"
            try:
                self._key = key_of(gm, examples, options, languages)
                self._found = self._read()
            except NotKeyed as error:
                self._event.detail = f"not kept: {error}"
            except Exception as error:
                self._event.detail, self._error = f"not kept: {error}", error
        self._had = {name: len(getattr(compile_, name)) for name in ("events", "failures", *NOTED)}

    def _read(self) -> Kept | None:
        content = self._key and disk_cache.read("graphs", self._key)
        if not content:
            return None
        try:
            return from_plain(json.loads(zlib.decompress(content)), Kept, "entry")  # type: ignore[no-any-return]
        except (zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecordError):
            return None

    def found(self) -> Call | None:
        """The compiled graph of the entry, if there is one; the record shows what it showed when that was made."""
        try:
            found = None if self._found is None else self._loaded(self._found)
        except (CompileWarning, StrictError, MissingTool):
            raise
        except Exception as error:
            self._error = error
            self._event.detail = f"found, but it cannot be loaded: {error}"
            return None
        if found is not None:
            self._hear()
        return found

    def _loaded(self, kept: Kept) -> Call | None:
        compile_ = self._compile
        if kept.assumed and not assume(self._env, kept.assumed, self._captured.graph):
            self._event.detail = "found, but other things are known of its sizes"
            return None
        with compile_.step("build", "cache"):
            graphs = kept.notes.cuda_graphs
            forward = kept.forward.load(graphs, compile_)
            backward = None if kept.backward is None else kept.backward.load(graphs, compile_)
        graph = None if backward is None else _function(kept.notes.find("backward").text, "backward")
        call = bound(kept.glue, {}, Graphs(self._captured, forward, backward, graph), compile_)
        self._event.detail = "found: the stages below ran when it was made"
        if kept.notes.id != compile_.id:
            _renumber(kept.notes, kept.notes.id, compile_.id)
        _note(kept.notes, compile_)
        return call

    def keep(self, glue: Glue, constants: Mapping[str, Any], forward: Boxed, backward: Boxed | None) -> None:
        """Write the entry of what was compiled now."""
        try:
            if self._key is not None:
                kept = self._kept(glue, constants, forward, backward)
                disk_cache.write("graphs", self._key, zlib.compress(json.dumps(to_plain(kept)).encode(), 1))
                self._event.detail = "made now, and kept"
        except NotKeyed as error:
            self._event.detail = f"not kept: {error}"
        except Exception as error:
            self._event.detail, self._error = f"not kept: {error}", error
        self._hear()

    def _hear(self) -> None:
        """Tell why the graph, or its kernels, are not on disk."""
        errors = {str(error): error for error in (*disk_cache.noted(), *([self._error] if self._error else ()))}
        for error in errors.values():
            heard(self._compile, "backend", error, meaning=NOT_KEPT, strict=self._strict)

    def _kept(self, glue: Glue, constants: Mapping[str, Any], forward: Boxed, backward: Boxed | None) -> Kept:
        if constants:
            raise NotKeyed("the code around it holds objects of its own, which no file can")
        if len(self._compile.failures) > self._had["failures"]:
            raise NotKeyed("something failed")
        known = self._env and assumed(self._env, self._guards, self._captured.graph)
        return Kept(glue, Half.of(forward), backward and Half.of(backward), known, self._noted())

    def _noted(self) -> Compile:
        compile_, had = self._compile, self._had
        new = {name: getattr(compile_, name)[had[name] :] for name in ("events", *NOTED)}
        return Compile(compile_.id, compile_.frame, partition=compile_.partition, **new)


def _note(notes: Compile, compile_: Compile) -> None:
    """Write into the record what it showed when the graph was compiled; the stages took no time now."""
    for event in notes.events:
        now = compile_.events[-1].end or 0
        took = f"{((event.end or 0) - event.start) / 1e6:.1f} ms when it was made"
        detail = f"{event.detail}; {took}" if event.detail else took
        compile_.events.append(dataclasses.replace(event, start=now, end=now, detail=f"{detail}; from the cache"))
    for name in NOTED:
        getattr(compile_, name).extend(getattr(notes, name))
    for each in (each for tuning in notes.tunings for each in tuning.tried):
        each.cached = True
    compile_.partition = notes.partition


def _renumber(noted: Any, was: str, now: str) -> Any:
    """What was noted of compile `was`, with its items' ids as those of compile `now`, in place."""
    if isinstance(noted, list):
        return [_renumber(each, was, now) for each in noted]
    for name, holds_ids in _fields(noted.__class__).items():
        value = getattr(noted, name)
        setattr(noted, name, _renamed(value, was, now) if holds_ids else _renumber(value, was, now))
    return noted


def _renamed(ids: Any, was: str, now: str) -> Any:
    if isinstance(ids, list):
        return [_renamed(each, was, now) for each in ids]
    return f"{now}{ids.removeprefix(was)}" if ids and ids.startswith(f"{was}:") else ids


@functools.cache
def _fields(kind: type) -> dict[str, bool]:
    """The fields of a class of the record, and whether they hold ids; none of any other class."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {f.name: "ItemId" in str(f.type) or "ArtifactId" in str(f.type) for f in public_fields(kind)}


def _function(text: str, name: str) -> Callable[..., Any]:
    """A graph of the record as the function that its text is, made when it is first called."""
    made: list[Callable[..., Any]] = []

    def call(*args: Any) -> Any:
        if not made:
            scope: dict[str, Any] = {}
            exec(compile(text, f"<cutaway {name}>", "exec"), scope)
            made.append(scope[name])
        return made[0](*args)

    return call
