"""Prints the ways that leave ``try`` and ``with``: as ``return``, ``break``, ``continue`` or the end of a block."""

from __future__ import annotations

from compiler_core.tools.decompile.contexts import Exit, Loop, Region
from compiler_core.tools.decompile.forms import StackText
from compiler_core.tools.decompile.loops import Loops

_MOST_STEPS = 200


class WaysOut(Loops):
    """Prints how a path leaves the parts of ``try`` and ``with`` statements."""

    def _leave(self, at: int, stop: int | None) -> bool:
        """Prints how a path leaves the innermost region at `at`; returns whether it comes to the end of the region,
        `stop`."""
        if self._jumps_out(at):
            return False
        region = self._contexts[-1]
        if isinstance(region, Loop):
            raise ValueError("a jump leaves a loop and the try statement around it")
        if region.end != stop:
            raise ValueError("a path leaves a try statement in its middle")
        if region.kind == "final":
            if self._stack[-1].text != region.caught:
                raise ValueError("another exception than the caught one is raised again")
            return True
        at = self._structure.skip_nops(at)
        if region.kind == "with" and self._instructions[at].opname == "SWAP":
            self._step(self._instructions[at], at)
            at += 1
        after = at if region.kind == "try" else self._ended(at, self._stack, region)
        if after is None:
            raise ValueError(f"the end of a {region.kind} statement has another form than CPython's")
        self._mark_exit(region, self._structure.place(after))
        return True

    def _mark_exit(self, region: Region, at: int) -> None:
        """Notes that the path continues at `at`, after the statement, with the values that the region left."""
        exits = region.exits
        self._store_pending(None)
        values = self._stack[exits.depth :]
        known = (each for each in exits.found if len(each.values) == len(values))
        found = next((each for each in known if self._structure.same_tail(each.at, at)), None)
        if found is None:
            kept = [each if _is_placeholder(each) else self._named() for each in values]
            found = Exit(at, kept)
            exits.found.append(found)
        for name, value in zip(found.values, values, strict=True):
            if name.text != value.text:
                self._emit(f"{name.text} = {value.text}")
        self._emit(exits.marker(found))
        del self._stack[exits.depth :]
        self._settled = 0

    def _named(self) -> StackText:
        return StackText(self._new_temporary(), is_stable=True)

    # ---------------------------------------------------------------- jumps

    def _jumps_out(self, at: int) -> bool:
        """Prints ``return``, ``break`` or ``continue`` if a path does nothing else than to leave what is around it."""
        regions = [each for each in self._contexts if isinstance(each, Region)]
        stack, saved = list(self._stack), self._stack
        loop = next((each for each in reversed(self._contexts) if isinstance(each, Loop)), None)
        inside = self._contexts[self._contexts.index(loop) :] if loop else []
        for _ in range(_MOST_STEPS):
            at = self._structure.place(at)
            chain = self._structure.chain(at)
            while regions and regions[-1].kind == "try" and regions[-1].handler not in chain:
                regions.pop()
            if loop and at in (loop.header, loop.follow) and not any(each in regions for each in inside):
                self._stack, self._settled = stack, 0
                self._leave_loop(loop, at)
                self._stack = saved
                return True
            if (text := self._returned(at, stack)) is not None:
                if any(each.kind != "try" for each in regions):
                    return False
                self._emit(f"return {text}")
                return True
            following = self._passed(at, stack, regions)
            if following is None:
                return False
            at = following
        return False

    def _returned(self, at: int, stack: list[StackText]) -> str | None:
        """Returns the text of the value that an instruction returns, if nothing else is left to be computed."""
        instruction = self._instructions[at]
        if instruction.opname == "RETURN_CONST":
            value, others = self._constant(instruction.argval), stack
        elif instruction.opname == "RETURN_VALUE" and stack:
            value, others = stack[-1].text, stack[:-1]
        else:
            return None
        return value if all(each.is_stable for each in others) else None

    def _passed(self, at: int, stack: list[StackText], regions: list[Region]) -> int | None:
        """Executes an instruction that only ends regions or moves values; returns what follows, or None."""
        instruction, region = self._instructions[at], regions[-1] if regions else None
        if region is not None and region.kind in ("with", "except", "finally"):
            after = self._ended(at, stack, region)
            if after is not None:
                regions.pop()
                return after
        if instruction.opname == "SWAP" and len(stack) >= (depth := instruction.arg or 0):
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
        elif instruction.opname == "POP_TOP" and stack and stack[-1].is_stable:
            stack.pop()
        elif instruction.opname == "LOAD_CONST":
            stack.append(StackText(self._constant(instruction.argval), is_stable=True))
        elif instruction.opname != "NOP":
            return None
        return at + 1

    def _ended(self, at: int, stack: list[StackText], region: Region) -> int | None:
        """Executes the instructions that end a region, such as the call of ``__exit__``; returns what follows, or None
        if there are others."""
        if region.kind == "finally":
            is_outside = region.handler not in self._structure.chain(at)
            return self._structure.after_finally(region.handler, at) if is_outside else None
        if not stack or stack[-1].text != region.kept:
            return None
        if region.kind == "with":
            after = self._structure.after_exit_call(at)
        else:
            after = self._structure.after_except(at) if self._instructions[at].opname == "POP_EXCEPT" else None
            if after is not None and self._structure.deleted_name(at + 1) != region.name:
                after = at + 1 if region.name is None else None
        if after is not None:
            stack.pop()
        return after


def _is_placeholder(value: StackText) -> bool:
    return value.text.startswith("<")
