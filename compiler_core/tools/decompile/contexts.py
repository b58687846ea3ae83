"""What surrounds a statement that is being printed: loops, and the parts of ``try`` and ``with`` statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_core.tools.decompile.forms import StackText


@dataclass
class Loop:
    """A loop that is being printed."""

    header: int
    follow: int | None
    """The first instruction after the loop, where ``break`` leads."""
    depth: int
    """The stack depth at the header."""
    broken: list[StackText] | None = None
    """The stack at a ``break``."""


@dataclass
class Exit:
    """A place where a program continues after a statement, with what is on the stack above the statement's depth."""

    at: int
    values: list[StackText]


@dataclass
class Exits:
    """The places where a program continues after a ``try`` or ``with`` statement, at the end of one of its blocks."""

    number: int
    """Names the lines that say which of the places it is."""
    depth: int
    """The stack depth at which the exception is handled; deeper values are those of an exit."""
    found: list[Exit] = field(default_factory=list)
    after_body: Exit | None = None
    """Where the program continues after the block of ``try``."""

    def marker(self, exit_: Exit) -> str:
        """Returns the line that stands for "continues at this exit" until it is known whether there are others."""
        return f"\0{self.number}:{self.found.index(exit_)}"


@dataclass
class Region:
    """A block of a ``try`` or ``with`` statement that is being printed."""

    kind: str
    """"try", "with" or "finally": a block whose exceptions are handled by one of those; "except" or "final": the block
    of a handler."""
    handler: int
    chain: tuple[int, ...]
    """The handlers around the block."""
    exits: Exits
    end: int
    """A negative number, which stands for the end of the block."""
    caught: str = ""
    """The text of the exception that is being handled."""
    name: str | None = None
    """The name in ``except ... as name``."""

    @property
    def kept(self) -> str:
        """The text of the value that is kept on the stack for the end of the block: ``__exit__``, or the exception that
        was being handled before."""
        return f"<kept for {self.handler}>"
