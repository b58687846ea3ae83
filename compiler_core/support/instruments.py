"""What the tools do while code is compiled and runs: they set these functions, and the stages call those that are set.

No stage imports the tools, so the compiler is whole without them; a record then lacks what they add.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from compiler_core.records import Artifact, Compile, Span


class FrameWatch(Protocol):
    """Watches the frames of a thread."""

    def decide(self, region: Any, info: Any) -> Any:
        """Returns the decision of `region` for a frame, and notes it."""


decompile: Callable[[CodeType], tuple[str, list[Span]]] | None = None
"""Returns bytecode as Python text, and the line of each instruction."""
record_machine_code: Callable[[Compile, Artifact, str], object] | None = None
"""Compiles the kernels of an artifact for a target, and adds their machine code to the compile."""
record_rank: Callable[[], None] | None = None
"""Records this process as a rank of a job, if ``CUTAWAY_RANKS`` is set and it is not recorded yet."""
frame_watch: FrameWatch | None = None
"""The watch that is active, of all threads."""
