"""What the page may say to the kernel.

    update           of `selection`, `shown` and `compile`, the traits that the reader changes
    request_state    the page wants all traits
    custom           {"type": "cancel"}: the Cancel button

Each is checked before ipywidgets sees it.  The page shows what a notebook's author wrote, so any other message is
refused: the widget's code, say, would be saved with the notebook.
"""

from __future__ import annotations

from typing import Any

from compiler_core.records import Record

PANES = (
    "overview source bytecode steps guards sizes captured pregrad joint partition forward backward postgrad passes "
    "fusion kernel costs roofline accuracy tuning wrapper machine generated decompiled timings other compare engines"
).split()
MOST_PANES = 4
MOST_ITEMS = 10_000
LONGEST = 2_000
"""Characters of a pane's or an item's name."""
CANCEL = {"type": "cancel"}
_ECHOED = 60


class MessageWarning(UserWarning):
    """A message of the page was refused."""


class Refused(ValueError):
    """Why a message is refused."""


def check(message: Any, record: Record | None) -> None:
    """Refused, unless `message` is one that the explorer of `record` takes."""
    content = message.get("content") if isinstance(message, dict) else None
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, dict):
        raise Refused(f"it has no data but {_shown(data)}")
    if message.get("buffers") or data.get("buffer_paths"):
        raise Refused("it has binary parts")
    method = data.get("method")
    if method == "update":
        _fields(data, {"method", "state", "buffer_paths"})
        _check_state(data.get("state"), record)
    elif method == "custom":
        _fields(data, {"method", "content"})
        if data.get("content") != CANCEL:
            raise Refused(f"its content is {_shown(data.get('content'))}, not {CANCEL}")
    elif method == "request_state":
        _fields(data, {"method"})
    else:
        raise Refused(f"its method is {_shown(method)}, not update, custom or request_state")


def _fields(given: dict[Any, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise Refused(f"it has a field {_shown(name)}")


def _check_state(state: Any, record: Record | None) -> None:
    if not isinstance(state, dict):
        raise Refused(f"its state is {_shown(state)}, not an object")
    for name, value in state.items():
        if name == "selection":
            _check_items(value, record)
        elif name == "shown":
            _check_panes(value)
        elif name == "compile":
            known = [c.id for c in record.compiles] if record else []
            if value != "" and value not in known:
                raise Refused(f"the record has no compile {_shown(value)}")
        else:
            raise Refused(f"the page may not change {_shown(name)}")


def _check_panes(shown: Any) -> None:
    for pane in _texts("shown", shown, MOST_PANES):
        if pane.split(":")[0] not in PANES:
            raise Refused(f"no pane is called {_shown(pane)}")


def _check_items(selection: Any, record: Record | None) -> None:
    artifacts = {a.id for a in record.artifacts} if record else set()
    for item in _texts("selection", selection, MOST_ITEMS):
        if item.partition("#")[0] not in artifacts:
            raise Refused(f"the record has no item {_shown(item)}")


def _texts(name: str, value: Any, most: int) -> list[str]:
    if not isinstance(value, list):
        raise Refused(f"{name} is {_shown(value)}, not a list")
    if len(value) > most:
        raise Refused(f"{name} has {len(value):,} entries, more than {most:,}")
    for each in value:
        if not isinstance(each, str):
            raise Refused(f"{name} has {_shown(each)}, which is no text")
        if len(each) > LONGEST:
            raise Refused(f"{name} has a text of {len(each):,} characters, more than {LONGEST:,}")
    return value


def _shown(value: Any) -> str:
    """`value` in few characters."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _ECHOED else f"{value[:_ECHOED]!r}..."
    if isinstance(value, (bool, type(None), float)):
        return repr(value)
    return f"a {type(value).__name__}"
