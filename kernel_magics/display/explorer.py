"""The explorer as a widget: `Explorer(record)` shown in any Jupyter front end."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import traitlets

from compiler_core.errors import UsageError
from compiler_core.records import Compile, Event, Record, View
from kernel_magics.display import messages, outputs
from kernel_magics.display.assets import asset
from kernel_magics.display.messages import MAX_PANES, PANES
from kernel_magics.display.packing import MAX_OUTPUT, pack, packed_size
from kernel_magics.display.progress import MessageRate, PartialRecord, Progress
from kernel_magics.display.record_view import RecordView
from kernel_magics.display.reruns import Reruns
from kernel_magics.display.storage import shown_records

MIME = "application/vnd.cutaway.record+json"


class Explorer(anywidget.AnyWidget):
    """A widget that shows the stages of a record side by side, linked.

    Without a record it shows the progress of the record that it follows.  The user's choices are synchronised
    traits, which may also be set from Python: `selection` holds the ids of the pinned items, `shown` the names of the
    visible panes, `compile` the id of the compile.
    """

    # Given as text: for a path, anywidget connects each explorer to a file watcher's signal, which keeps it alive.
    _esm = traitlets.Unicode(asset("explorer.js").read_text(encoding="utf-8")).tag(sync=True)
    _css = traitlets.Unicode(asset("explorer.css").read_text(encoding="utf-8")).tag(sync=True)

    record: Record | None = traitlets.Instance(Record, allow_none=True).tag(  # type: ignore[assignment]
        sync=True,
        to_json=lambda record, widget: (widget._packed or shown_records.packed(record)) if record else None,
        from_json=lambda _, widget: widget.record,
    )
    progress = traitlets.Dict().tag(sync=True)
    partial = traitlets.Dict().tag(sync=True)
    """The packed record so far, while a long compile runs."""
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True)
    shown = traitlets.List(traitlets.Unicode()).tag(sync=True)
    compile = traitlets.Unicode().tag(sync=True)
    timing = traitlets.Dict().tag(sync=True)
    """What the page shows of running the cell again; empty if it cannot be, because its inputs are not kept."""
    experiments = traitlets.Dict().tag(sync=True)
    """What can be tried with the cell, the runs that were made, and which of them is shown."""
    _followed: Record | None = None
    """The record that is being written."""
    _packed: dict[str, str] | None = None
    """The packed record, while it is sent to the widget and to its output."""

    def __init__(self, record: Any = None, beside: Record | None = None) -> None:
        """Shows a record, or a graph: a `torch.fx.GraphModule` or an exported program, also `beside` a record."""
        self.reruns = Reruns(self)  # first, since ipywidgets closes also what could not be made
        self._notifying = threading.RLock()
        if record is not None and not isinstance(record, Record):
            from compiler_core.tools.inspection.opened_graph import graph_record

            if not hasattr(getattr(record, "graph_module", record), "graph"):
                raise UsageError(f"an explorer shows a record or an FX graph, not a {type(record).__name__}")
            record = graph_record(record, beside)
        super().__init__(record=record)
        self.display_handle: Any = None
        """The `DisplayHandle` of the output that shows the widget, to update it; None if there is none."""
        self._is_updating = False
        self.on_msg(self.reruns.on_request)
        _reply_on_requesting_subshell(self.comm)
        self.comm.on_close(lambda _: self.close())
        self.on_msg(_close_if_removed)
        self.on_msg(_resend_if_asked)
        outputs.add_open(self)

    def _notify_trait(self, name: str, old_value: Any, new_value: Any) -> None:
        """Sends a change, but not while another thread sets values of the page: traitlets holds changes back
        meanwhile, and one that is made just as it stops to do so would be lost."""
        with self._notifying:
            super()._notify_trait(name, old_value, new_value)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Sets `sync_data`, the values of a message of the page, possibly on another thread."""
        with self._notifying:
            super().set_state(sync_data)

    @traitlets.observe("record")
    def _note_shown(self, change: Any) -> None:
        if change["new"] is not None:
            shown_records.add(change["new"])

    def close(self) -> None:
        """Closes the widget, and the widget of its layout, which ipywidgets would keep."""
        self.reruns.close()
        super().close()
        self.layout.close()

    def show(self, *panes: str, compile: str | None = None) -> None:
        """Shows panes side by side ("kernel", or "kernel:backward.cpp" for one of several artifacts).

        `compile` selects a compile by its id.  Raises ValueError for an unknown pane or compile, or too many panes.
        """
        _check_panes(panes)
        if len(panes) > MAX_PANES:
            raise ValueError(f"at most {MAX_PANES} panes fit side by side, not {len(panes)}")
        if compile is not None:
            self._check_compile(compile)
            self.compile = compile
        if panes:
            self.shown = list(panes)

    def cover(self, *panes: str) -> None:
        """Covers these panes until a prediction is made on the page; without any, uncovers all."""
        _check_panes(panes)
        if self.record is not None:
            self.record.covered = list(panes)
            self.refresh()

    def present(self, *views: tuple[str, Sequence[str], str]) -> None:
        """Shows a list of views to present: for each a title, the panes, and a text of the line to pin (or "").

        The page then has buttons for the next and the previous view (also PageDown and PageUp).  In a report, the
        address ``report.html#2`` opens the second view.  Raises ValueError for an unknown pane or line.

        Example::

            kernel_magics.last().present(
                ("The branch", ["source", "decompiled"], "if b.sum()"),
                ("Its graph", ["source", "captured"], ""),
            )
        """
        record = self.record
        if record is None:
            raise UsageError("this explorer has no record to present")
        for _, panes, _ in views:
            _check_panes(panes)
        record.views = [View(title, list(panes), _pinned_line(record, line)) for title, panes, line in views]
        self.refresh()

    def measure(self) -> None:
        """Times the record's kernels on this machine's device and shows the times (`compiler_core.tools.measure`)."""
        from compiler_core.tools.measure import measure

        if self.record is not None:
            measure(self.record)
            self.refresh()

    def check_accuracy(self) -> None:
        """Compares the kernels' results with eager PyTorch in float64 and shows the errors
        (`compiler_core.tools.accuracy`)."""
        from compiler_core.tools.accuracy import check_accuracy

        if self.record is not None:
            check_accuracy(self.record)
            self.refresh()

    def time(self, *forms: str) -> None:
        """Times the cell as plain PyTorch and as it was compiled, and shows the verdict.

        Its effects on variables are undone.  `forms` are compared with these two: ``core``, ``pinned`` (no guards),
        ``stock``, and ``stock:MODE``.  Raises UsageError if the cell cannot be timed, as for a record that was loaded.
        """
        self.reruns.time(forms)

    def experiment(self, name: str, item: str = "") -> None:
        """Runs the cell again with one thing changed, and shows that run; the first run stays, one click away.

        Its effects on variables are undone.  `name` is one of `kernel_magics.run.experiments.EXPERIMENTS`, and
        `item` the id of the guard that the experiment ``guard`` leaves out; or ``"split", "forward_0"`` and ``"join",
        "forward_0,forward_1"``, by the names of kernels.

        Raises UsageError if the experiment cannot be made.
        """
        self.reruns.experiment(name, item)

    def try_change(self, number: int) -> None:
        """Runs the cell with a change of its code, and shows that run; `number` is that of one of `changes`, from 0.

        Raises UsageError if the change gives other values, or does not help; it is then not offered.
        """
        self.reruns.change(number)

    def changes(self) -> list[str]:
        """Returns the changes of the code that may remove a problem, each as lines with - and +."""
        return [
            "\n".join([f"{edit['file']}:{edit['first']}: {edit['title']}",
                       *(f"- {line}" for line in edit["removed"]), *(f"+ {line}" for line in edit["added"])])
            for edit in (each["edit"] for each in self.experiments.get("changes", ()))
        ]  # fmt: skip

    def show_timing_progress(self, text: str, share: float) -> None:
        """Shows that the cell is being timed, before there is a record.

        `text` says what is running, and `share`, from 0 to 1, how much is done.
        """
        running = {"compile": "", "frame": "", "stage": "timing", "name": text, "share": share}
        self.progress = {**self.progress, **running}

    def show_record(self, record: Record, handle: Any) -> None:
        """Shows a complete record in the output that `handle` updates.

        The update makes the saved notebook have the record's other MIME types beside the widget.
        """
        compiles = shown_records.ended_compiles(record)
        self._packed = packed = pack(record)
        try:
            self.record, self.partial, self._followed = record, {}, None
            self.display_handle = handle
            handle.update(self)
        finally:
            self._packed = None
        shown_records.free(record, compiles, packed)

    def end(self) -> None:
        """Says that there is no record, if there is none although the cell has run."""
        if self.record is None:
            self.progress, self.partial = {"ended": "The cell has run, but its record cannot be shown."}, {}

    def resend(self) -> None:
        """Sends the state again: Jupyter's server drops messages of a kernel that sends very many."""
        if self.record is None:
            self.send_state("progress")
        else:
            self._packed = shown_records.packed(self.record)
            self.update_output(send=True)

    def refresh(self) -> None:
        """Sends the record again, after something was added to it, and updates the output that shows it."""
        self._packed = pack(self.record) if self.record else None
        self.update_output(send=True)

    def set_packed(self, record: Record) -> None:
        """Packs a record and sets it, so that `update_output` need not pack it again."""
        self._packed = pack(record)
        self.record = record

    def update_output(self, *, send: bool) -> None:
        """Updates the output that shows the packed record; with `send`, first the widget."""
        self._is_updating = True  # the output may be that of an earlier cell, not of the running one
        try:
            if send:
                self.send_state("record")
            if self.display_handle is not None:
                self.display_handle.update(self)
        finally:
            self._is_updating = False
            self._packed = None

    def _check_compile(self, compile: str) -> None:
        known = [c.id for c in self.record.compiles] if self.record else []
        if compile not in known:
            raise ValueError(f"the record has no compile {compile!r}; it has {', '.join(known) or 'none'}")

    def follow(self, record: Record) -> Callable[[], None]:
        """Shows each step of `record` as it happens; returns a function that stops this."""
        progress, partial, rate = Progress(record), PartialRecord(record), MessageRate(record)
        self._followed = record

        def on_event(compile_: Compile, event: Event) -> None:
            shown = progress.after(compile_, event)
            if rate.allows_one():
                self.progress = shown
            # when a step starts, what was before it is complete
            if event.end is None and (packed := partial.if_due(compile_)) is not None:
                self.partial = packed

        return record.listen(on_event)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the button Stop is pressed, possibly on another thread."""

        def received(_: Explorer, content: dict[str, Any], __: list[Any]) -> None:
            if content == messages.CANCEL:
                callback()

        self.on_msg(received)

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        """Handles a message of the page, if `messages` accepts it."""
        try:
            messages.check_message(msg, self.record or self._followed)
        except messages.InvalidMessage as refusal:
            warnings.warn(
                f"a message of the page to a Cutaway explorer was ignored: {refusal}",
                messages.MessageWarning,
                stacklevel=1,
            )
            return
        super()._handle_msg(msg)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if not self._is_updating:
            outputs.mark_displayed(self)
        bundle: tuple[dict[str, Any], dict[str, Any]] | None = super()._repr_mimebundle_(**kwargs)
        if bundle is None or self.record is None:
            return bundle
        data, metadata = bundle
        return data | record_bundle(self.record, self._packed), metadata


def _check_panes(panes: Sequence[str]) -> None:
    unknown = [pane for pane in panes if pane.split(":")[0] not in PANES]
    if unknown:
        raise ValueError(f"no pane is called {unknown[0]!r}; the panes are {', '.join(PANES)}")


def _pinned_line(record: Record, text: str) -> list[str]:
    """Returns the item of the first source line that contains `text`; nothing for an empty text."""
    for source in record.sources if text else ():
        for span in source.spans:
            if text in source.lines(span):
                return [source.item(span.key)]
    if text:
        raise ValueError(f"no line of the sources contains {text!r}")
    return []


def _close_if_removed(explorer: Explorer, content: dict[str, Any], _: list[Any]) -> None:
    if content == messages.REMOVED:
        outputs.mark_removed(explorer)
        outputs.close_undisplayed(RecordView.latest.explorer if RecordView.latest else None)


def _resend_if_asked(explorer: Explorer, content: dict[str, Any], _: list[Any]) -> None:
    if content == messages.RESEND:
        explorer.resend()


def record_bundle(record: Record, packed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the record as MIME types for every viewer: for ours (`packed`, if it is packed already), as HTML without
    scripts, as text.

    A record that would make the notebook too large is left out, and the others say so.
    """
    from kernel_magics.display import summary
    from kernel_magics.display.static_html import html

    packed = packed or pack(record)
    size = packed_size(packed)
    if size <= MAX_OUTPUT:
        return {MIME: packed, "text/html": html(record), "text/plain": summary.text(record)}
    note = (
        f"The record has {size / 1e6:,.0f} MB, too many for an output, and is not saved with the notebook: "
        "%%compile --save FILE.html writes a report, kernel_magics.last_record().save(FILE) the record."
    )
    return {"text/html": f"<p>{note}</p>{html(record)}", "text/plain": f"{note}\n{summary.text(record)}"}


def _reply_on_requesting_subshell(comm: Any) -> None:
    """Makes ipykernel deliver the page's messages on the subshell thread that the page asks for.

    The page requests a subshell where the kernel has them, so that messages arrive while the main thread runs a cell.
    ipykernel 7.4 and later deliver them instead to the thread that sent the last message.  Here that is the thread
    that compiles, on which Stop would wait for the compile that it should stop.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, asked_for: asked_for
