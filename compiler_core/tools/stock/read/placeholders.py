"""Placeholders in trace events for texts that are printed later (`hooks.deferred_text`)."""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACEHOLDER = re.compile("\x00(\\d+)\x00")


class Placeholders:
    """Makes placeholders for texts, and prints the texts later."""

    def __init__(self) -> None:
        self._printers: list[Callable[[], str]] = []

    def defer(self, print_text: Callable[[], str]) -> str:
        """Returns a placeholder for the text that `print_text` returns."""
        self._printers.append(print_text)
        return f"\x00{len(self._printers) - 1}\x00"

    def resolve(self, text: str) -> str:
        """Returns `text` with each placeholder replaced by its text."""
        return _PLACEHOLDER.sub(self._print, text) if is_deferred(text) else text

    def _print(self, placeholder: re.Match[str]) -> str:
        number = int(placeholder[1])
        return self._printers[number]() if number < len(self._printers) else placeholder[0]


def is_deferred(text: str) -> bool:
    """Whether `text` has placeholders."""
    return "\x00" in text
