"""The explorer as a widget: `Explorer(record)` shown in any Jupyter front end."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from compiler_core.records import Compile, Event, Frame, Record, to_plain
from kernel_magics.display import messages, outputs
from kernel_magics.display.assets import asset
from kernel_magics.display.messages import MOST_PANES, PANES

MIME = "application/vnd.cutaway.record+json"

_STEPS_SHOWN = 14


class Explorer(anywidget.AnyWidget):
    """All the stages of a record side by side, linked.

    Without a record it shows the progress of the one that it follows.  What the reader points
    out comes back: `selection` holds the ids of the pinned items, `shown` the panes, `compile`
    the id of the compile that is looked at; each may be set from Python too.
    """

    # as text: of a file, anywidget would tell each explorer's changes by a signal, which keeps all explorers alive
    _esm = traitlets.Unicode(asset("explorer.js").read_text(encoding="utf-8")).tag(sync=True)
    _css = traitlets.Unicode(asset("explorer.css").read_text(encoding="utf-8")).tag(sync=True)

    record: Record | None = traitlets.Instance(Record, allow_none=True).tag(  # type: ignore[assignment]
        sync=True,
        to_json=lambda record, _: record.to_json() if record else "",
        from_json=lambda _, widget: widget.record,
    )
    progress = traitlets.Dict().tag(sync=True)
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True)
    shown = traitlets.List(traitlets.Unicode()).tag(sync=True)
    compile = traitlets.Unicode().tag(sync=True)

    def __init__(self, record: Record | None = None) -> None:
        super().__init__(record=record)
        self.shown_as: Any = None
        """The handle of the output that shows it, where there is one to keep up to date."""
        self._is_updating = False
        _hear_while_busy(self.comm)
        self.comm.on_close(lambda _: self.close())
        outputs.opened(self)

    def show(self, *panes: str, compile: str | None = None) -> None:
        """Show these panes side by side ("kernel", or "kernel:backward.cpp" for one of several)."""
        unknown = [p for p in panes if p.split(":")[0] not in PANES]
        if unknown:
            raise ValueError(f"no pane is called {unknown[0]!r}; the panes are {', '.join(PANES)}")
        if len(panes) > MOST_PANES:
            raise ValueError(f"at most {MOST_PANES} panes fit side by side, not {len(panes)}")
        if compile is not None:
            self._check_compile(compile)
            self.compile = compile
        if panes:
            self.shown = list(panes)

    def measure(self) -> None:
        """Time the kernels of the record on the device that is here, and show that (`compiler_core.api.measure`)."""
        from compiler_core.api.measure import measure

        if self.record is not None:
            measure(self.record)
            self.grown()

    def check_accuracy(self) -> None:
        """Compare what kernels compute with eager PyTorch in float64, and show that (`compiler_core.api.accuracy`)."""
        from compiler_core.api.accuracy import check_accuracy

        if self.record is not None:
            check_accuracy(self.record)
            self.grown()

    def grown(self) -> None:
        """The record that was shown has more in it now."""
        self.send_state("record")
        if self.shown_as is not None:
            self._is_updating = True  # an output of an earlier cell, perhaps
            try:
                self.shown_as.update(self)
            finally:
                self._is_updating = False

    def _check_compile(self, compile: str) -> None:
        known = [c.id for c in self.record.compiles] if self.record else []
        if compile not in known:
            raise ValueError(f"the record has no compile {compile!r}; it has {', '.join(known) or 'none'}")

    def follow(self, record: Record) -> Callable[[], None]:
        """Show each step of `record` as it happens, until what comes back is called."""
        done: deque[dict[str, Any]] = deque(maxlen=_STEPS_SHOWN)
        frames: dict[int, Frame] = {}

        def heard(compile_: Compile, event: Event) -> None:
            if event.end is not None:
                done.append(_step(event))
            frames.update((frame.id, frame) for frame in record.frames[len(frames) :])
            frame = frames.get(compile_.frame)
            self.progress = _progress(record.clock(), compile_, frame.name if frame else "", event, list(done))

        return record.listen(heard)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the Cancel button is pressed, perhaps on another thread."""

        def received(_: Explorer, content: dict[str, Any], __: list[Any]) -> None:
            if content == messages.CANCEL:
                callback()

        self.on_msg(received)

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        """A message of the page: see `messages` for those that are taken."""
        try:
            messages.check(msg, self.record)
        except messages.Refused as refusal:
            warnings.warn(
                f"a message of the page to a Cutaway explorer was refused: {refusal}",
                messages.MessageWarning,
                stacklevel=1,
            )
            return
        super()._handle_msg(msg)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if not self._is_updating:
            outputs.displayed(self)
        bundle: tuple[dict[str, Any], dict[str, Any]] | None = super()._repr_mimebundle_(**kwargs)
        if bundle is None or self.record is None:
            return bundle
        from kernel_magics.display import summary

        data, metadata = bundle
        data |= {
            MIME: to_plain(self.record),
            "text/html": summary.html(self.record),
            "text/plain": summary.text(self.record),
        }
        return data, metadata


def _hear_while_busy(comm: Any) -> None:
    """Let messages from the page arrive, on a thread of their own, while the main thread runs a cell.

    The page asks for that where it can ("subshells").  From 7.4 on ipykernel sends them to the
    thread that spoke last all the same: here the one that compiles, where Cancel would wait for
    what it should stop.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, asked_for: asked_for


def _step(event: Event) -> dict[str, Any]:
    ms = ((event.end or event.start) - event.start) / 1e6
    return {"stage": event.stage, "name": event.name, "ms": round(ms, 2), "outcome": event.outcome}


def _progress(clock: int, compile_: Compile, frame: str, event: Event, done: list[dict[str, Any]]) -> dict[str, Any]:
    running = event.end is None
    return {
        "compile": compile_.id,
        "frame": frame,
        "stage": event.stage if running else "",
        "name": event.name if running else "",
        "elapsed": clock / 1e9,
        "done": done,
    }
