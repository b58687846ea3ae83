"""Compiled graphs on disk: what the stages after capture made, found again by the digest of all that decides it.

    ~/.cache/cutaway/graphs/<digest>       see `graph_key` for the digest, `cache` for the files

An entry holds plain data as packed JSON: what runs, and what the record shows of how it came about.  Capture and
guards always run anew.  A file that is damaged, foreign or of another form is not used.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.fx as fx

from compiler_core import cache
from compiler_core.autograd import Boxed, Call, Glue, bound
from compiler_core.codegen.recipe import Recipe, load
from compiler_core.config import Options
from compiler_core.errors import BuildError
from compiler_core.graph_key import NotKeyed, key_of
from compiler_core.record import Compile, RecordError, from_plain, to_plain

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
_OWN = '"\\u0000:'
"""In an entry: where an item's id begins with that of the compile."""


@dataclass(frozen=True)
class Kept:
    """One compiled graph."""

    glue: Glue
    forward: Recipe
    backward: Recipe | None
    notes: Compile
    """What the stages wrote into the record, and nothing else."""


class Place:
    """Where a graph's entry lies, if it can have one."""

    def __init__(
        self, gm: fx.GraphModule, examples: Sequence[Any], compile_: Compile, options: Options, language: str
    ) -> None:
        self._captured, self._compile = gm, compile_
        self._path: Path | None = None
        with compile_.step("backend", "cache") as self._event:
            self._event.detail = "not there"
            try:
                self._path = cache.folder("graphs") / key_of(gm, examples, options, language)
            except (NotKeyed, BuildError) as error:
                self._event.detail = f"not kept: {error}"
            self._found = self._read()
        self._had = {name: len(getattr(compile_, name)) for name in ("events", "failures", *NOTED)}

    def _read(self) -> Kept | None:
        content = self._path and cache.read(self._path)
        if not content:
            return None
        try:
            text = zlib.decompress(content).decode().replace(_OWN, f'"{self._compile.id}:')
            return from_plain(json.loads(text), Kept, "entry")  # type: ignore[no-any-return]
        except (zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecordError):
            return None

    def found(self) -> Call | None:
        """The compiled graph of the entry, if there is one; the record shows what it showed when that was made."""
        if self._found is None:
            return None
        kept, compile_ = self._found, self._compile
        with compile_.step("build", "cache"):
            forward = load(kept.forward, {})
            backward = None if kept.backward is None else load(kept.backward, {})
        graph = None if backward is None else _function(kept.notes.find("backward").text, "backward")
        call = bound(kept.glue, {}, forward, backward, graph, self._captured, compile_)
        self._event.detail = "found: the stages below ran when it was made"
        _note(kept.notes, compile_)
        return call

    def keep(self, glue: Glue, constants: Mapping[str, Any], forward: Boxed, backward: Boxed | None) -> None:
        """Write the entry of what was compiled now."""
        if self._path is None:
            return
        runs: list[Any] = [run for run in (forward, backward) if run is not None]
        if constants or not all(getattr(run, "recipe", None) for run in runs):
            self._event.detail = "not kept: it holds objects of its own, which no file can"
        elif len(self._compile.failures) > self._had["failures"]:
            self._event.detail = "not kept: something failed"
        else:
            self._write(Kept(glue, runs[0].recipe, runs[1].recipe if backward else None, self._noted()))

    def _write(self, kept: Kept) -> None:
        assert self._path is not None
        text = json.dumps(to_plain(kept)).replace(f'"{self._compile.id}:', _OWN)
        try:
            cache.write(self._path, zlib.compress(text.encode(), 1))
            self._event.detail = "made now, and kept"
        except BuildError as error:
            self._event.detail = f"not kept: {error}"

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
