"""Drops what a cell prints and displays, when it runs again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.utils.capture import CapturedIO, capture_output


@contextmanager
def silenced_output(shell: Any) -> Iterator[CapturedIO]:
    """Context manager in which text and displayed objects are dropped; yields what has the text.

    A kernel keeps its display publisher: messages that arrive meanwhile on another thread, such as Stop, need it.
    """
    publisher = shell.display_pub
    register = getattr(publisher, "register_hook", None)
    with capture_output(display=register is None) as captured:
        if register is not None:
            register(_drop)
        try:
            yield captured
        finally:
            if register is not None:
                publisher.unregister_hook(_drop)


def _drop(message: Any) -> None:
    """Returns nothing in place of a message, which is then not sent."""
