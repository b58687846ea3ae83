"""Where a capture can stop, so that the frame is split there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StopPoint:
    """A step before which a capture can stop.

    A loop cannot be split, so the stop point of an instruction in a loop is the step that entered the loop.
    """

    step: int
    at: int
    """The index of the instruction in its code object."""
    in_loop: bool
