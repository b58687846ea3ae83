"""Executes instructions on texts instead of values, and so turns them into statements."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import CodeType
from typing import Any

from compiler_core.bytecode import Instruction, disassemble_cached, operand, opset
from compiler_core.tools.decompile.forms import FORMS, MERGED, StackText, joined_texts
from compiler_core.tools.decompile.stack_instructions import STORES, StackInstructions, instructions_of

_NO_TEXT = {"NOP", "PRECALL", "TO_BOOL"}
_PROLOGUE = {"RESUME", "MAKE_CELL", "COPY_FREE_VARS"}
_CONDITION_TO_CONTINUE = {"TRUE": "not {}", "FALSE": "{}", "NOT_NONE": "{} is None", "NONE": "{} is not None"}
"""The condition under which POP_JUMP_IF_... does not jump."""


class Decompiler(StackInstructions):
    """Executes the instructions of `code` on texts, one control-flow path after the other."""

    def __init__(self, code: CodeType, names: dict[str, Any] | None = None) -> None:
        name = code.co_name if code.co_name.isidentifier() else "function"
        super().__init__(f"def {name}({', '.join(_parameters(code))}):", names)
        self.unprinted: list[str] = []
        """The instructions that became comments."""
        self._instructions, self._where = disassemble_cached(code)
        self._pending: list[tuple[int, list[StackText]]] = [(0, [])]
        self._visited: set[int] = set()

    def run(self) -> None:
        while self._pending:
            at, self._stack = self._pending.pop(0)
            self._settled = 0
            if at not in self._visited:
                if at:
                    self._emit(f"# instruction {at}:")
                self._run(at, None)
        if len(self.lines) == 1:
            self._emit("pass")

    def _run(self, at: int, stop: int | None) -> bool:
        """Follows a path from `at`.  Returns True at `stop`, and False at the end of the path or at code that is
        printed already."""
        while at != stop:
            if at in self._visited:
                carried = f" with {joined_texts(self._stack)} on the stack" if self._stack else ""
                self._emit(f"# continues at instruction {at}{carried}")
                return False
            self._visited.add(at)
            instruction = self._instructions[at]
            self._note_handler(instruction)
            following = self._step(instruction, at)
            if following is None:
                return False
            at = following
        return True

    def _note_handler(self, instruction: Instruction) -> None:
        """Schedules the handler's code, which is printed after the paths without exceptions."""
        handler = instruction.handler
        if handler is not None:
            self.unprinted.append("an exception handler")
        if handler is None or self._where[handler.target] in self._visited:
            return
        stack = [replace(value, instructions=(), is_stable=True) for value in self._stack[: handler.depth]]
        if handler.lasti:
            stack.append(StackText("<offset>", is_stable=True))
        stack.append(StackText("<exception>", is_stable=True))
        self._pending.append((self._where[handler.target], stack))

    def _step(self, instruction: Instruction, at: int) -> int | None:
        """Prints or pushes what the instruction does; returns the next instruction of the path, or None at its end."""
        if instruction.opname.startswith("POP_JUMP"):
            condition = _CONDITION_TO_CONTINUE.get(instruction.opname.rpartition("IF_")[2])
            if condition is not None:
                return self._branch(instruction, at, condition)
        if instruction.opname in ("JUMP_FORWARD", "JUMP_BACKWARD") and instruction.target is not None:
            self.line_of[at] = len(self.lines)
            return self._where[instruction.target]
        if instruction.opname in ("UNPACK_SEQUENCE", "UNPACK_EX"):
            return self._unpack(instruction, at)
        if instruction.opname in _PROLOGUE:
            self.line_of[at] = len(self.lines)
        elif instruction.opname in _NO_TEXT:  # part of the next statement
            self.line_of[at] = len(self.lines) + 1
        else:
            for handle in (self._load, self._store, self._call, self._apply_form):
                if handle(instruction, at):
                    break
            else:
                self._comment(instruction, at)
        return None if instruction.opname in opset.TERMINATORS else at + 1

    def _apply_form(self, instruction: Instruction, at: int) -> bool:
        form = FORMS.get(str(instruction.argval) if instruction.opname in opset.INTRINSICS else instruction.opname)
        if form is None:
            return self._extend_display(instruction, at)
        if instruction.opname == "BINARY_OP" and str(instruction.argval).endswith("="):
            return self._in_place(instruction, at)
        values = self._pop_many(form.pops(instruction.arg or 0))
        instructions = (*instructions_of(values), at)
        if form.is_statement:
            self._store_pending(None)
            self._emit(form.text(instruction, values), instructions)
        else:
            self._stack.append(StackText(form.text(instruction, values), instructions, form.is_atom))
        return True

    def _extend_display(self, instruction: Instruction, at: int) -> bool:
        """``[a, *b]`` and ``{**a, **b}``, while the text of the list or dict can still be extended."""
        stars = {"LIST_EXTEND": "*", "SET_UPDATE": "*", "DICT_MERGE": "**", "DICT_UPDATE": "**"}.get(instruction.opname)
        if stars is None or len(self._stack) < 1 + (instruction.arg or 0):
            return False
        if instruction.arg != 1 or not self._stack[-2].text.startswith(("[", "{", MERGED)):
            return self._extend_object(instruction, at)
        display, more = self._pop_many(2)
        if instruction.opname == "DICT_MERGE":
            self._stack.append(_merged_keywords(display, more, at))
            return True
        separator = ", " if len(display.text) > 2 else ""
        text = f"{display.text[:-1]}{separator}{stars}{more.inner}{display.text[-1]}"
        self._stack.append(StackText(text, (*display.instructions, *more.instructions, at)))
        return True

    def _extend_object(self, instruction: Instruction, at: int) -> bool:
        more = self._pop()
        extended = self._stable_copy(instruction.arg or 1)
        self._store_pending(None)
        method = "extend" if instruction.opname == "LIST_EXTEND" else "update"
        if instruction.opname == "DICT_MERGE":
            self._emit(f"dict(**{extended.text}, **{more.inner})  # fails if a keyword is in both")
        self._emit(f"{extended.text}.{method}({more.text})", (*more.instructions, at))
        return True

    def _in_place(self, instruction: Instruction, at: int) -> bool:
        left, right = self._pop_many(2)
        self._store_pending(None)
        name = self._new_temporary()
        self._emit(f"{name} = {left.text}", left.instructions)
        self._emit(f"{name} {instruction.argval} {right.text}", (*right.instructions, at))
        self._stack.append(StackText(name, is_stable=True))
        return True

    def _branch(self, instruction: Instruction, at: int, condition: str) -> int | None:
        """Prints the path to the target (or to its end) as an indented block; continues at the target."""
        assert instruction.target is not None
        value, target = self._pop(), self._where[instruction.target]
        self._store_pending(None)
        self._emit(
            f"if {condition.format(value.inner if ' ' in condition else value.text)}:", (*value.instructions, at)
        )
        before = list(self._stack)
        self._indent += 1
        if self._run(at + 1, target) and _texts(self._stack) != _texts(before):
            self._emit(f"# on the stack: {joined_texts(self._stack)}")
        self._indent -= 1
        self._stack, self._settled = before, 0
        return target

    def _unpack(self, instruction: Instruction, at: int) -> int:
        """``a, b = value`` with the stores that follow, or with temporaries if other instructions follow."""
        value, count = self._pop(), instruction.arg or 0
        star = count & 255 if instruction.opname == "UNPACK_EX" else None
        count = count if star is None else star + 1 + (count >> 8)
        names, following = self._stored_after(at, count)
        if names is None:
            names, following = [self._new_temporary() for _ in range(count)], at + 1
            after = [StackText(name, is_stable=True) for name in reversed(names)]
        else:
            after = []
            self._visited.update(range(at + 1, following))
        self._store_pending(*names)
        shown = [f"*{name}" if i == star else name for i, name in enumerate(names)]
        left = f"{', '.join(shown)}{',' if count == 1 else ''}" if names else "()"
        self._emit(f"{left} = {value.text}", (*value.instructions, *range(at, following)))
        self._stack += after
        return following

    def _stored_after(self, at: int, count: int) -> tuple[list[str] | None, int]:
        """Returns the names that the next instructions store exactly `count` values to, and the instruction after
        them."""
        names: list[str] = []
        following = at + 1
        while len(names) < count and following < len(self._instructions):
            instruction = self._instructions[following]
            if instruction.opname in STORES:
                names.append(str(instruction.argval))
            elif instruction.opname == "STORE_FAST_STORE_FAST" and isinstance(instruction.argval, tuple):
                names += instruction.argval
            elif instruction.opname == "POP_TOP":
                names.append("_")
            else:
                break
            following += 1
        return (names, following) if len(names) == count else (None, at + 1)

    def _comment(self, instruction: Instruction, at: int) -> None:
        """Prints an instruction that has no Python text, with its operands and names for its results."""
        pops = opset.least_depth(instruction.opname, instruction.arg)
        values = self._pop_many(pops)
        self._store_pending(None)
        effect = opset.stack_effect(instruction.opname, instruction.arg, jump=False)
        pushes = 0 if instruction.opname in opset.TERMINATORS else max(0, effect + pops)
        names = [self._new_temporary() for _ in range(pushes)]
        left = f"{', '.join(names)} = " if names else ""
        text = f"# {left}{instruction.opname} {operand(instruction, self._where)} ({joined_texts(values)})"
        self._emit(text, (*instructions_of(values), at))
        self.unprinted.append(instruction.opname)
        self._stack += [StackText(name, is_stable=True) for name in names]
        if instruction.target is not None:
            self._pending.append((self._where[instruction.target], list(self._stack)))


def _merged_keywords(display: StackText, more: StackText, at: int) -> StackText:
    """The keyword arguments of a call: ``dict(**{"a": 1}, **more)``, which fails if a keyword is in both."""
    text = display.text.removesuffix(")") if display.text.startswith(MERGED) else f"{MERGED}{display.text}"
    text = f"{{**{more.inner}}}" if display.text == "{}" else f"{text}, **{more.inner})"
    return StackText(text, (*display.instructions, *more.instructions, at))


def _texts(values: Iterable[StackText]) -> list[str]:
    return [value.text for value in values]


def _parameters(code: CodeType) -> Iterator[str]:
    positional, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames)
    rest = names[total:]
    for i, name in enumerate(names[:positional]):
        yield name
        if i + 1 == code.co_posonlyargcount:
            yield "/"
    if code.co_flags & inspect.CO_VARARGS:
        yield f"*{rest.pop(0)}"
    elif code.co_kwonlyargcount:
        yield "*"
    yield from names[positional:total]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        yield f"**{rest.pop(0)}"
