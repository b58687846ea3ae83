"""Checks the messages that the page may send to an explorer in the kernel.

    update           new values of `selection`, `shown` and `compile`, the traits that the user changes
    request_state    asks for the values of all traits
    custom           {"type": "cancel"}: the button Stop;
                     {"type": "removed"}: no output of the notebook shows the explorer any more;
                     {"type": "resend"}: the page has waited for news of a compile, which may be lost;
                     {"type": "time", "forms": ["stock"]}: times the cell, besides its usual forms with these;
                     {"type": "try", "experiment": "guard", "item": "0/0:guards#g1"}: makes an experiment with the cell;
                     {"type": "try", "experiment": "change", "item": "0"}: tries a change of its code;
                     {"type": "try", "experiment": "join", "item": "forward_0,forward_1"}: joins two kernels, and
                     "split" with one kernel splits it;
                     {"type": "run", "run": 1}: shows the record of an earlier experiment, or of the cell, 0

Each message is checked before ipywidgets handles it.  The page shows content of the notebook's author, which is not
trusted, so every other message is refused: a change of the widget's code, for example, would be saved with the
notebook.
"""

from __future__ import annotations

from typing import Any

from compiler_core.records import Record

PANES = (
    "overview source bytecode steps guards frames sizes captured subgraphs pregrad joint partition forward backward "
    "postgrad passes fusion schedule kernel costs training memory roofline accuracy tuning wrapper machine generated "
    "decompiled speed timings other compare engines"
).split()
MAX_PANES = 4
MAX_ITEMS = 10_000
MAX_NAME_LENGTH = 2_000
"""The maximum number of characters in a pane's or an item's name."""
CANCEL = {"type": "cancel"}
REMOVED = {"type": "removed"}
RESEND = {"type": "resend"}
STOCK_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CORE_FORMS: dict[str, dict[str, Any]] = {
    "core": {},
    "core:reduce-overhead": {"mode": "reduce-overhead"},
    "core:capture-backward": {"capture_backward": True},
    "core:no-capture-backward": {"capture_backward": False},
    "core:memory-budget=0.5": {"memory_budget": 0.5},
}
"""The forms of Cutaway's compiler in which a cell can be timed, with their options."""
TIMED_FORMS = (*CORE_FORMS, "pinned", "stock", *(f"stock:{mode}" for mode in STOCK_MODES))
"""The forms in which a cell can be timed, besides plain PyTorch and as it was compiled."""
EXPERIMENTS = (
    "advice",
    *("measure", "check", "machine", "steps", "frames", "memory-curve"),
    *("dynamic", "size", "stock", "core", "memory", "operators", "guard"),
)
"""The experiments that the page may ask for: those of `kernel_magics/run/experiments.py`."""
CHANGE = "change"
"""The experiment that tries a change of the code; its item is the number of the change."""
FUSIONS = {"join": 2, "split": 1}
"""The experiments with fusion groups, with the number of kernels whose names their item has."""
MAX_CHANGES = 1_000
MAX_RUNS = 20
"""How many runs an explorer keeps: the cell's own, and the latest experiments."""
_MAX_QUOTED = 60


class MessageWarning(UserWarning):
    """A message of the page was refused."""


class InvalidMessage(ValueError):
    """A message that is not accepted; its text is the reason."""


def check_message(message: Any, record: Record | None) -> None:
    """Raises InvalidMessage unless `message` is one that the explorer of `record` accepts."""
    content = message.get("content") if isinstance(message, dict) else None
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, dict):
        raise InvalidMessage(f"its data is {_quoted(data)}, not an object")
    if message.get("buffers") or data.get("buffer_paths"):
        raise InvalidMessage("it has binary buffers")
    method = data.get("method")
    if method == "update":
        _check_fields(data, {"method", "state", "buffer_paths"})
        _check_state(data.get("state"), record)
    elif method == "custom":
        _check_fields(data, {"method", "content"})
        if data.get("content") not in (CANCEL, REMOVED, RESEND):
            _check_request(data.get("content"), record)
    elif method == "request_state":
        _check_fields(data, {"method"})
    else:
        raise InvalidMessage(f"its method is {_quoted(method)}, not update, custom or request_state")


def _check_request(content: Any, record: Record | None) -> None:
    """Checks the request to time the cell, to make an experiment, or to show another run."""
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "time":
        _check_fields(content, {"type", "forms"})
        for form in _check_strings("forms", content.get("forms"), len(TIMED_FORMS)):
            if form not in TIMED_FORMS:
                raise InvalidMessage(f"no form is called {_quoted(form)}")
    elif kind == "try":
        _check_fields(content, {"type", "experiment", "item"})
        _check_experiment(content.get("experiment"), content.get("item"), record)
    elif kind == "run":
        _check_fields(content, {"type", "run"})
        run = content.get("run")
        if type(run) is not int or not 0 <= run < MAX_RUNS:
            raise InvalidMessage(f"no run has the number {_quoted(run)}")
    else:
        raise InvalidMessage(f"its content is {_quoted(content)}, neither {CANCEL}, {REMOVED}, {RESEND} nor a request")


def _check_experiment(name: Any, item: Any, record: Record | None) -> None:
    if not isinstance(name, str) or name not in (CHANGE, *FUSIONS, *EXPERIMENTS):
        raise InvalidMessage(f"no experiment is called {_quoted(name)}")
    if name == CHANGE:
        _check_change(item)
    elif name in FUSIONS:
        _check_kernels(name, item, record)
    else:
        _check_items([item], record, "item")


def _check_change(item: Any) -> None:
    known = isinstance(item, str) and len(item) < len(str(MAX_CHANGES)) and item.isascii() and item.isdigit()
    if not known:
        raise InvalidMessage(f"no change has the number {_quoted(item)}")


def _check_kernels(experiment: str, item: Any, record: Record | None) -> None:
    known = {kernel.name for compile_ in (record.compiles if record else ()) for kernel in compile_.kernels}
    names = item.split(",") if isinstance(item, str) and len(item) <= 2 * MAX_NAME_LENGTH else []
    if len(names) != FUSIONS[experiment] or not known.issuperset(names):
        raise InvalidMessage(f"the record has no such kernels to {experiment}: {_quoted(item)}")


def _check_fields(given: dict[Any, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidMessage(f"it has an unknown field {_quoted(name)}")


def _check_state(state: Any, record: Record | None) -> None:
    if not isinstance(state, dict):
        raise InvalidMessage(f"its state is {_quoted(state)}, not an object")
    for name, value in state.items():
        if name == "selection":
            _check_items(value, record)
        elif name == "shown":
            _check_panes(value)
        elif name == "compile":
            known = [c.id for c in record.compiles] if record else []
            if value != "" and value not in known:
                raise InvalidMessage(f"the record has no compile {_quoted(value)}")
        else:
            raise InvalidMessage(f"the page may not change {_quoted(name)}")


def _check_panes(shown: Any) -> None:
    for pane in _check_strings("shown", shown, MAX_PANES):
        if pane.split(":")[0] not in PANES:
            raise InvalidMessage(f"no pane is called {_quoted(pane)}")


def _check_items(items: Any, record: Record | None, name: str = "selection") -> None:
    for item in _check_strings(name, items, MAX_ITEMS):
        is_known = record is not None and record.has_artifact(item.partition("#")[0])
        if not is_known and not (name == "item" and item == ""):
            raise InvalidMessage(f"the record has no item {_quoted(item)}")


def _check_strings(name: str, value: Any, most: int) -> list[str]:
    if not isinstance(value, list):
        raise InvalidMessage(f"{name} is {_quoted(value)}, not a list")
    if len(value) > most:
        raise InvalidMessage(f"{name} has {len(value):,} entries, more than {most:,}")
    for each in value:
        if not isinstance(each, str):
            raise InvalidMessage(f"{name} contains {_quoted(each)}, which is not a string")
        if len(each) > MAX_NAME_LENGTH:
            raise InvalidMessage(f"{name} contains a string of {len(each):,} characters, more than {MAX_NAME_LENGTH:,}")
    return value


def _quoted(value: Any) -> str:
    """Returns a short description of `value`."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]!r}..."
    if isinstance(value, (bool, type(None), float)):
        return repr(value)
    return f"a {type(value).__name__}"
