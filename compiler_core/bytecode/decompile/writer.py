"""Runs instructions on texts instead of values, and so turns them into statements."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import CodeType

from compiler_core.bytecode import Instruction, constant_text, disassembled, operand, opset
from compiler_core.bytecode.decompile.forms import FORMS, Value, listed

_NULL = "<NULL>"
_SILENT = {"NOP", "PRECALL", "TO_BOOL"}
_PROLOGUE = {"RESUME", "MAKE_CELL", "COPY_FREE_VARS"}
_LOADS = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL"}
_STORES = {"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"}
_GOES_ON_IF = {"TRUE": "not {}", "FALSE": "{}", "NOT_NONE": "{} is None", "NONE": "{} is not None"}
"""The condition under which POP_JUMP_IF_... does not jump."""


class Writer:
    """Runs the instructions on texts, one path after the other."""

    def __init__(self, code: CodeType) -> None:
        self.lines = [f"def {code.co_name}({', '.join(_parameters(code))}):"]
        self.line_of: dict[int, int] = {}
        self._instructions, self._where = disassembled(code)
        self._stack: list[Value] = []
        self._settled = 0
        """So many values from the bottom of the stack are known to be fixed."""
        self._loaded: set[str | None] = set()
        """Names that may stand on the stack."""
        self._indent = 1
        self._temporaries = 0
        self._dropped: list[str] = []
        self._keywords: tuple[str, ...] = ()
        self._pending: list[tuple[int, list[Value]]] = [(0, [])]
        self._seen: set[int] = set()

    def write(self) -> None:
        while self._pending:
            at, self._stack = self._pending.pop(0)
            self._settled = 0
            if at not in self._seen:
                if at:
                    self._say(f"# instruction {at}:")
                self._run(at, None)
        if len(self.lines) == 1:
            self._say("pass")

    def _run(self, at: int, stop: int | None) -> bool:
        """Go from `at` to the end of the path, to what was printed before, or (true) to `stop`."""
        while at != stop:
            if at in self._seen:
                carried = f" with {listed(self._stack)} on the stack" if self._stack else ""
                self._say(f"# goes on at instruction {at}{carried}")
                return False
            self._seen.add(at)
            x = self._instructions[at]
            self._note_handler(x)
            following = self._step(x, at)
            if following is None:
                return False
            at = following
        return True

    def _note_handler(self, x: Instruction) -> None:
        """Its code is printed later, after the paths without exceptions."""
        if x.handler is None or self._where[x.handler.target] in self._seen:
            return
        kept = [replace(value, made=(), fixed=True) for value in self._stack[: x.handler.depth]]
        pushed = [Value("<offset>", fixed=True)] * x.handler.lasti + [Value("<exception>", fixed=True)]
        self._pending.append((self._where[x.handler.target], kept + pushed))

    def _step(self, x: Instruction, at: int) -> int | None:
        """Print or push what `x` does; the next instruction of this path."""
        condition = _GOES_ON_IF.get(x.opname.rpartition("IF_")[2]) if x.opname.startswith("POP_JUMP") else None
        if condition is not None:
            return self._branch(x, at, condition)
        if x.opname in ("JUMP_FORWARD", "JUMP_BACKWARD") and x.target is not None:
            self.line_of[at] = len(self.lines)
            return self._where[x.target]
        if x.opname == "UNPACK_SEQUENCE":
            return self._unpack(x, at)
        if x.opname in _SILENT or x.opname in _PROLOGUE:
            self.line_of[at] = len(self.lines) + (x.opname in _SILENT)
        elif not (self._load(x, at) or self._store(x, at) or self._call(x, at) or self._form(x, at)):
            self._comment(x, at)
        return None if x.opname in opset.TERMINATORS else at + 1

    def _load(self, x: Instruction, at: int) -> bool:
        has_flag = bool(opset.flag_bits(x.opname) and (x.arg or 0) & 1)
        if x.opname in _LOADS:
            self._loaded.add(str(x.argval))
            self._push_callable(Value(str(x.argval), (at,), fixed=True), has_flag)
        elif x.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            of = self._pop()
            value = Value(f"{of.inner}.{x.argval}", (*of.made, at))
            self._push_callable(value, has_flag or x.opname == "LOAD_METHOD")
        elif x.opname == "LOAD_FAST_LOAD_FAST" and isinstance(x.argval, tuple):
            self._loaded.update(x.argval)
            self._stack += [Value(name, (at,), fixed=True) for name in x.argval]
        elif x.opname == "LOAD_CONST":
            text = _constant(x.argval)
            self._stack.append(Value(text, (at,), not text.startswith("-"), True, x.argval))
        elif x.opname in ("LOAD_CLOSURE", "PUSH_NULL"):
            text = _NULL if x.opname == "PUSH_NULL" else f"<cell {x.argval}>"
            self._stack.append(Value(text, (at,), fixed=True))
        else:
            return False
        return True

    def _push_callable(self, value: Value, with_null: bool) -> None:
        null = [Value(_NULL, fixed=True)] if with_null else []
        self._stack += [*null, value] if opset.VERSION < (3, 13) else [value, *null]

    def _store(self, x: Instruction, at: int) -> bool:
        if x.opname in _STORES:
            self._assign(str(x.argval), at)
        elif x.opname in opset.PAIRS and isinstance(x.argval, tuple):
            self._assign(x.argval[0], at)
            if x.opname == "STORE_FAST_STORE_FAST":
                self._assign(x.argval[1], at)
            else:
                self._loaded.add(x.argval[1])
                self._stack.append(Value(x.argval[1], (at,), fixed=True))
        elif x.opname == "POP_TOP":
            self._drop(at)
        elif x.opname == "DELETE_FAST" and self._stack:  # of what the statement to come uses for the last time
            self._dropped.append(str(x.argval))
            self.line_of[at] = len(self.lines) + 1
        elif x.opname == "COPY":
            self._stack.append(self._named_once(x.arg or 1))
        elif x.opname == "SWAP":
            self._named_once(x.arg or 1), self._named_once(1)
            self._stack[-1], self._stack[-(x.arg or 1)] = self._stack[-(x.arg or 1)], self._stack[-1]
            self._settled = min(self._settled, max(len(self._stack) - (x.arg or 1), 0))
        else:
            return False
        return True

    def _drop(self, at: int) -> None:
        value = self._pop()
        if value.fixed:
            self.line_of[at] = len(self.lines)
        else:
            self._settle(None)
            self._say(value.text, (*value.made, at))

    def _assign(self, name: str, at: int) -> None:
        value = self._pop()
        self._settle(name)
        self._say(f"{name} = {value.text}", (*value.made, at))

    def _call(self, x: Instruction, at: int) -> bool:
        if x.opname == "KW_NAMES" and isinstance(x.argval, tuple):
            self._keywords = x.argval
            self.line_of[at] = len(self.lines) + 1
        elif x.opname in ("CALL", "CALL_KW"):
            names = self._pop() if x.opname == "CALL_KW" else Value("", constant=self._keywords)
            keywords = names.constant if isinstance(names.constant, tuple) else ()
            self._keywords = ()
            args = self._take(x.arg or 0)
            called, made = self._callable(args)
            plain = len(args) - len(keywords)
            texts = [v.text for v in args[:plain]]
            texts += [f"{name}={v.text}" for name, v in zip(keywords, args[plain:], strict=False)]
            self._push_call(called, texts, [*made, names, *args], at)
        elif x.opname == "CALL_FUNCTION_EX":
            args = self._take(1 + ((x.arg or 0) & 1))
            called, made = self._callable([])
            texts = [stars + v.inner for stars, v in zip(("*", "**"), args, strict=False)]
            self._push_call(called, texts, [*made, *args], at)
        else:
            return False
        return True

    def _callable(self, args: list[Value]) -> tuple[Value, list[Value]]:
        """What is called, and the two values that it was found in: it and NULL, or a function and its self."""
        pair = self._take(2)
        found = [v for v in pair if v.text != _NULL]
        if len(found) == 2:
            args.insert(0, found[1])
        return (found[0] if found else Value("<nothing>")), pair

    def _push_call(self, called: Value, texts: list[str], parts: list[Value], at: int) -> None:
        self._stack.append(Value(f"{called.inner}({', '.join(texts)})", (*_made(parts), at)))

    def _form(self, x: Instruction, at: int) -> bool:
        form = FORMS.get(str(x.argval) if x.opname in opset.INTRINSICS else x.opname)
        if form is None:
            return self._extend(x, at)
        if x.opname == "BINARY_OP" and str(x.argval).endswith("="):
            return self._in_place(x, at)
        values = self._take(form.pops(x.arg or 0))
        made = (*_made(values), at)
        if form.statement:
            self._settle(None)
            self._say(form.text(x, values), made)
        else:
            self._stack.append(Value(form.text(x, values), made, form.atom))
        return True

    def _extend(self, x: Instruction, at: int) -> bool:
        """``[a, *b]`` and ``{**a, **b}``, as long as the list or dict is still being written down."""
        stars = {"LIST_EXTEND": "*", "DICT_MERGE": "**", "DICT_UPDATE": "**"}.get(x.opname)
        if stars is None or x.arg != 1 or len(self._stack) < 2 or self._stack[-2].text[0] not in "[{":
            return False
        display, more = self._take(2)
        separator = ", " if len(display.text) > 2 else ""
        text = f"{display.text[:-1]}{separator}{stars}{more.inner}{display.text[-1]}"
        self._stack.append(Value(text, (*display.made, *more.made, at)))
        return True

    def _in_place(self, x: Instruction, at: int) -> bool:
        left, right = self._take(2)
        self._settle(None)
        name = self._temporary()
        self._say(f"{name} = {left.text}", left.made)
        self._say(f"{name} {x.argval} {right.text}", (*right.made, at))
        self._stack.append(Value(name, fixed=True))
        return True

    def _branch(self, x: Instruction, at: int, condition: str) -> int | None:
        """An indented path to the target (or its own end); then the target."""
        assert x.target is not None
        value, target = self._pop(), self._where[x.target]
        self._settle(None)
        self._say(f"if {condition.format(value.inner if ' ' in condition else value.text)}:", (*value.made, at))
        before = list(self._stack)
        self._indent += 1
        if self._run(at + 1, target) and _texts(self._stack) != _texts(before):
            self._say(f"# on the stack: {listed(self._stack)}")
        self._indent -= 1
        self._stack, self._settled = before, 0
        return target

    def _unpack(self, x: Instruction, at: int) -> int:
        """``a, b = value``, with the stores that follow; with temporaries where something else follows."""
        value, count = self._pop(), x.arg or 0
        names, following = self._stored_after(at, count)
        if names is None:
            names, following = [self._temporary() for _ in range(count)], at + 1
            after = [Value(name, fixed=True) for name in reversed(names)]
        else:
            after = []
            self._seen.update(range(at + 1, following))
        self._settle(*names)
        left = f"{', '.join(names)}{',' if count == 1 else ''}" if names else "()"
        self._say(f"{left} = {value.text}", (*value.made, *range(at, following)))
        self._stack += after
        return following

    def _stored_after(self, at: int, count: int) -> tuple[list[str] | None, int]:
        """The names that the next instructions store `count` values to, if they do just that."""
        names: list[str] = []
        following = at + 1
        while len(names) < count and following < len(self._instructions):
            x = self._instructions[following]
            if x.opname in _STORES:
                names.append(str(x.argval))
            elif x.opname == "STORE_FAST_STORE_FAST" and isinstance(x.argval, tuple):
                names += x.argval
            elif x.opname == "POP_TOP":
                names.append("_")
            else:
                break
            following += 1
        return (names, following) if len(names) == count else (None, at + 1)

    def _comment(self, x: Instruction, at: int) -> None:
        """An instruction that has no Python: its operands, and names for what it leaves."""
        pops = opset.least_depth(x.opname, x.arg)
        values = self._take(pops)
        self._settle(None)
        effect = opset.stack_effect(x.opname, x.arg, jump=False)
        pushes = 0 if x.opname in opset.TERMINATORS else max(0, effect + pops)
        names = [self._temporary() for _ in range(pushes)]
        left = f"{', '.join(names)} = " if names else ""
        text = f"# {left}{x.opname} {operand(x, self._where)} ({listed(values)})"
        self._say(text, (*_made(values), at))
        self._stack += [Value(name, fixed=True) for name in names]
        if x.target is not None:
            self._pending.append((self._where[x.target], list(self._stack)))

    def _pop(self) -> Value:
        if not self._stack:
            return Value("<unknown>", fixed=True)
        self._settled = min(self._settled, len(self._stack) - 1)
        return self._stack.pop()

    def _take(self, count: int) -> list[Value]:
        return [self._pop() for _ in range(count)][::-1]

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries - 1}"

    def _named_once(self, depth: int) -> Value:
        """The value at `depth`, given a name if printing it twice would compute it twice."""
        if depth > len(self._stack):
            return Value("<unknown>", fixed=True)
        if not self._stack[-depth].fixed:
            self._name(len(self._stack) - depth)
        return self._stack[-depth]

    def _settle(self, *written: str | None) -> None:
        """Before a statement: name what was computed earlier and is used later, or is about to be overwritten."""
        first = 0 if self._loaded.intersection(written) else self._settled
        for i, value in enumerate(self._stack[first:], first):
            if not value.fixed or value.text in written:
                self._name(i)
        self._settled = len(self._stack)

    def _name(self, at: int) -> None:
        value, name = self._stack[at], self._temporary()
        self._say(f"{name} = {value.text}", value.made)
        self._stack[at] = Value(name, fixed=True)

    def _say(self, text: str, made: Iterable[int] = ()) -> None:
        dropped = f"  # drops {', '.join(self._dropped)}" if self._dropped else ""
        self._dropped.clear()
        self.lines.append("    " * self._indent + text + dropped)
        for i in made:
            self.line_of[i] = len(self.lines)


def _made(values: Iterable[Value]) -> Iterator[int]:
    return (i for value in values for i in value.made)


def _texts(values: Iterable[Value]) -> list[str]:
    return [value.text for value in values]


def _constant(value: object) -> str:
    """A function that the compiler put among the constants goes by its name."""
    name = value.__name__ if inspect.isroutine(value) else ""
    return name if name.isidentifier() else constant_text(value)


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
