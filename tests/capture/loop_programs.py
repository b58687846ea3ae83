"""Random programs of loops with graph breaks inside: all ways to leave a loop, and all that may be around one."""

from __future__ import annotations

import contextlib
import linecache
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

CONDITIONS = [
    "n % 2 == 0",
    "n % 3 == 1",
    "a.sum().item() > 1",
    "(a > 0.5).any()",
    "n > 4",
    "b.sum() > 0",
    "len(log) % 4 == 3",
]
STATEMENTS = [
    "a = a.sin() + n", "b = a * 2 - b", "n += 1", "n = n + 2", "log.append(n)", "print(n)", "print(a.sum().item() > 0)",
    "c = a + n", "total = total * 0.5 + a.sum().item()", "a = a.clone().add_(1)", "print(len(log)); b = b.cos()",
    "a, b = b, a", "log.append(read())", "store(n)", "print(c.sum().item())", "del c", "d = (n, a)", "log.append(d[0])",
    "log.append([i * n for i in range(2)])", "a = torch.where(a > 0, a, b)", "e = float(a.max()); a = a * e",
]  # fmt: skip
HEADS = [
    "for i in range(3):", "for i in [1.0, 2.0]:", "for i, c in enumerate(a.unbind()):", "for i in made(3, log):",
    "for i, (j, k) in zip(range(4), made_pairs(2)):", "for box.x in (1, 2):", "for c in a:", "for _ in iter(range(2)):",
    "for i in range(0):", "for k, v in {'a': 1, 'b': 2}.items():", "for i in made(n % 3, log):",
]  # fmt: skip
CONTEXTS = ["torch.no_grad()", "noted('w', log)", "noted('v', log) as c", "contextlib.suppress(ValueError)"]
START = """
def program(x, count):
    a, b, n, log, total = x.cos(), x + 1, count, [], 0.0
    cell = 0
    def read():
        return cell
    def store(value):
        nonlocal cell
        cell = cell + value
"""
END = """
    try:
        log.append(c)
    except UnboundLocalError as error:
        log.append(str(error))
    return a, b, n, log, total, cell
"""


def made(n: int, log: list[Any]) -> Iterator[int]:
    """Yields numbers; notes when it is closed."""
    try:
        yield from range(n)
    finally:
        log.append("closed")
        print("closed")


def made_pairs(n: int) -> Iterator[tuple[int, int]]:
    for i in range(n):
        yield i, i * i


@contextlib.contextmanager
def noted(name: str, log: list[Any]) -> Iterator[str]:
    """A context that notes when it is entered and left."""
    log.append(name)
    try:
        yield name
    finally:
        log.append(f"left {name}")
        print("left", name)


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counters = 0

    def block(self, depth: int, in_loop: bool, size: int = 3) -> list[str]:
        found = [line for _ in range(self.random.randint(1, size)) for line in self.statement(depth, in_loop)]
        return [f"    {line}" for line in found]

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        pick, choice = self.random.random(), self.random.choice
        if pick < 0.45 or depth > 3:
            return choice(STATEMENTS).split("; ")
        if pick < 0.6:
            leaves = ["return a, n", "return n", "raise ValueError(n)"]
            leaves += ["break", "break", "continue", "continue"] if in_loop else []
            return [f"if {choice(CONDITIONS)}:", f"    {choice(leaves)}"]
        if pick < 0.68:
            more = ["else:", *self.block(depth + 1, in_loop)] if self.random.random() < 0.5 else []
            return [f"if {choice(CONDITIONS)}:", *self.block(depth + 1, in_loop), *more]
        if pick < 0.85:
            return self.loop(depth)
        if pick < 0.93:
            return [f"with {choice(CONTEXTS)}:", *self.block(depth + 1, in_loop)]
        return self.attempt(depth, in_loop)

    def loop(self, depth: int) -> list[str]:
        more = ["else:", *self.block(depth + 1, False, 1)] if self.random.random() < 0.3 else []
        if self.random.random() < 0.65:
            return [self.random.choice(HEADS), *self.block(depth + 1, True, 4), *more]
        self.counters += 1
        w = f"w{self.counters}"
        until = self.random.choice(CONDITIONS)
        heads = [f"while {w} < 3:", f"while {w} < 4 and not {until}:", "while True:", "while len(log) < 7:"]
        head = self.random.choice(heads)
        last = [f"    if {w} > 3:", "        break"] if head in heads[2:] else []
        return [f"{w} = 0", head, f"    {w} += 1", *last, *self.block(depth + 1, True, 4), *more]

    def attempt(self, depth: int, in_loop: bool) -> list[str]:
        found = ["try:", *self.block(depth + 1, in_loop)]
        if self.random.random() < 0.75:
            name = self.random.choice(["", " as error"])
            kind = self.random.choice(["ValueError", "(ValueError, UnboundLocalError)"])
            found += [f"except {kind}{name}:", "    log.append('caught')", *self.block(depth + 1, in_loop)]
            found += ["else:", *self.block(depth + 1, in_loop, 1)] if self.random.random() < 0.2 else []
            if self.random.random() < 0.7:
                return found
        return [*found, "finally:", "    print('finally')", *self.block(depth + 1, in_loop, 1)]


def program_text(seed: int) -> str:
    """Returns the source of the random program with this seed."""
    writer = _Writer(seed)
    loop = [f"    {line}" for line in writer.loop(0)]
    return START + "\n".join(loop + writer.block(0, False)) + END


def program_of(source: str, name: str) -> Callable[..., Any]:
    """Returns the function `program` that a source defines, whose lines tracebacks can show."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"torch": torch, "contextlib": contextlib, "made": made, "made_pairs": made_pairs}
    namespace |= {"noted": noted, "box": types.SimpleNamespace(x=0)}
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # return in a finally block, since 3.14
        exec(compile(source, name, "exec"), namespace)
    program: Callable[..., Any] = namespace["program"]
    return program
