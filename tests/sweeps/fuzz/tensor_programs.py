"""Random straight-line programs on tensors; each operation is run as it is drawn, so that programs do not raise."""

from __future__ import annotations

import contextlib
import math
import random
import re
import warnings
from typing import TYPE_CHECKING, Any

import torch

from tests.sweeps.fuzz import tensor_parts
from tests.sweeps.fuzz.tensor_grammar import FORMS, WEIGHTS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

HOLE = re.compile(r"<([a-z]+)>")
SIZES = (
    1,
    1,
    2,
    2,
    3,
    3,
    4,
    5,
    6,
    7,
    8,
    8,
    9,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    100,
    127,
    128,
    130,
    200,
    257,
)
LARGE = (1000, 1024, 2049, 5000, 12000, 40000)
MOST_ELEMENTS = 60_000
MOST_TRIES = 60
FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
COMPLEX = ("complex64", "complex64", "complex128")
WINDOWS = ("ABC", "ABC", "1ABC", "1ABC", "CABA", "1BCAB")
"""The shapes of images."""
CHANGES = frozenset({"changes", "writes", "sized writes"})
"""The groups whose forms change a variable, and give none."""
WHOLE = ("int64", "int64", "int32", "uint8", "int8", "int16")
LAYOUTS = ("plain",) * 8 + (
    "turned",
    "expanded",
    "overlapping",
    "later",
    "stepped",
    "padded",
    "channels_last",
    "negative bit",
    "conjugated",
)
LITERALS = {
    "d": ("0", "1", "-1", "-1", "-2"),
    "n": ("0", "1", "2", "-1", "3"),
    "p": ("1", "2", "3", "7"),
    "c": ("0.5", "2.0", "-1.5", "0.1", "3", "0.0"),
    "flag": ("True", "False"),
    "reduction": ("'none'", "'mean'", "'sum'"),
}
OF_SIZES = {
    "s": (
        *("{0}.shape[0]", "{0}.shape[-1]", "{0}.shape[-1] // 2", "{0}.shape[0] // 2", "({0}.shape[0] - 1)"),
        *("{0}.shape[-1] % 3", "({0}.shape[0] % 4 + 1)", "min({0}.shape[-1], 3)", "max({0}.shape[0] - 5, 1)"),
        *("{0}.numel() % 7", "len({0})", "{0}.size(-1)", "({0}.shape[0] > 4) + 1", "{0}.stride(0) % 5", "{0}.dim()"),
    ),
    "f": (
        *("{0}.shape[-1] ** -0.5", "1 / {0}.shape[0]", "{0}.shape[0] / 7", "math.sqrt({0}.shape[-1])"),
        *("0.5 * {0}.shape[0]", "float({0}.shape[-1])", "(1 - 1 / {0}.shape[-1])", "{0}.numel() / {0}.shape[0]"),
    ),
    "q": ("{0}.shape[0] > 3", "{0}.shape[-1] % 2 == 0", "{0}.shape[0] == {0}.shape[-1]", "{0}.numel() > 100"),
}
"""Numbers that are computed from sizes of a tensor."""
VIEWS = ("a0", "a0.mT", "a0[1:]", "a0[..., 0]", "a0.flatten()", "a0.detach()", "a0[:, ::2]")
"""Arguments that share memory with the first one."""
Names = dict[str, Any]


class Writer:
    """Writes one program; `calls` are the values of its variables in each call."""

    def __init__(self, draw: random.Random, group: str = "") -> None:
        """Most forms are those of `group`, if it is given."""
        self._draw, self._group = draw, group
        self._weights = {name: weight + 100 * (name == group) for name, weight in WEIGHTS.items()}
        self.lines: list[str] = []
        self.calls: list[Names] = []
        self.arguments: list[list[str]] = []
        """Returns the text of each argument for each call."""
        self._given: list[Names] = []
        """The arguments of each call."""
        self.grad = draw.random() < 0.5
        self._special = draw.choice((0, 0, 0, 0, 3, 20))
        self._type = "float32" if draw.random() < 0.4 else ""
        """The common type of all float arguments, if any."""

    def write(self) -> str:
        self._inputs()
        for number in range(self._draw.choice((2, 3, 4, 5, 6, 8, 10, 12, 16))):
            self._statement(f"v{number}")
        parameters = ", ".join(f"a{n}" for n in range(len(self.arguments[0])))
        body = "".join(f"    {line}\n" for line in self.lines)
        calls = "".join(
            f"def call_{n}():\n{''.join(f'    a{k} = {text}{chr(10)}' for k, text in enumerate(result))}"
            f"    return {parameters},\n\n\n"
            for n, result in enumerate(self.arguments)
        )
        names = ", ".join(f"call_{n}" for n in range(len(self.arguments)))
        return (
            "from tests.sweeps.fuzz.tensor_parts import *\n\n\n"
            f"def program({parameters}):\n{body}    return {self._result()}\n\n\n"
            f"{calls}CALLS = [{names}]\nCHANGES = []\nGRAD = {self.grad}\n"
        )

    # ------------------------------------------------------------ arguments

    def _inputs(self) -> None:
        shapes = self._shapes()
        others = self._draw.random() < 0.3  # the calls differ in layouts, then in sizes or not
        sizes = [self._sizes(shapes[0][0]) for _ in range(self._draw.choice((2, 3, 4) if others else (1, 1, 2, 3)))]
        for result in [sizes[0]] * len(sizes) if others and self._draw.random() < 0.5 else sizes:
            layouts = [self._draw.choice(LAYOUTS) if others else layout for _, _, layout in shapes]
            drawn = zip(shapes, layouts, strict=True)
            self.arguments.append([self._argument(s, t, layout, result) for (s, t, _), layout in drawn])
        self._let_arguments_share_memory()
        for arguments in self.arguments:
            scope: Names = {}
            for number, text in enumerate(arguments):
                scope[f"a{number}"] = eval(text, vars(tensor_parts), scope)
            for value in scope.values():
                value.requires_grad_(self.grad and value.is_floating_point())
            self.calls.append(scope)
        self._given = [dict(scope) for scope in self.calls]

    def _let_arguments_share_memory(self) -> None:
        """Makes the last argument a view of the first one, sometimes."""
        if len(self.arguments[0]) < 2 or self._draw.random() > 0.15:
            return
        view = self._draw.choice(VIEWS)
        for first, *_ in self.arguments:
            if "'overlapping'" in first or not _is_valid(view, {"a0": eval(first, vars(tensor_parts))}):
                return
        for arguments in self.arguments:
            arguments[-1] = view

    def _sizes(self, base: str) -> dict[str, int]:
        """Draws the sizes of the dimensions; most arguments have the shape `base`."""
        sizes = {name: self._draw.choice(SIZES) for name in "ABC"}
        if self._draw.random() < 0.08:
            sizes[self._draw.choice("ABC")] = 0
        elif self._draw.random() < 0.15:
            sizes |= dict.fromkeys("ABC", 2) | {self._draw.choice("ABC"): self._draw.choice(LARGE)}
        while math.prod(sizes.get(d, 1) for d in base) > MOST_ELEMENTS:
            longest = max(sizes, key=sizes.__getitem__)
            sizes[longest] = self._draw.choice(SIZES[:12])
        return sizes

    def _shapes(self) -> list[tuple[str, str, str]]:
        """Draws dimensions, type and layout of each argument; shapes are similar, so that operations apply."""
        bases = ("A", "AB", "AB", "AB", "AB", "ABC", "ABC", "ABC", "1ABC", "CABA", "AA", "ABB")
        of_images = self._group == "windows" or (self._group == "sizes" and self._draw.random() < 0.4)
        base = self._draw.choice(WINDOWS if of_images else bases)
        if self._draw.random() < 0.3:
            base = base[::-1]
        shapes = [base]
        for _ in range(self._draw.randint(0, 4)):
            ones = "".join(self._draw.choice((d, d, "1")) for d in base)
            shapes.append(self._draw.choice((base, base, base[1:], base[-1:], ones, base[::-1], base[:-1], "")))
        types = [self._type or self._draw.choice(FLOATS)]
        for _ in shapes[1:]:
            pairs = 6 if self._group in ("complexes", "spectra") else 1
            kind = self._draw.choice(("float",) * 9 + ("whole",) * 3 + ("bool",) * 3 + ("complex",) * pairs)
            floats = self._type or self._draw.choice(FLOATS)
            other, pair = self._draw.choice(WHOLE), self._draw.choice(COMPLEX)
            types.append({"float": floats, "whole": other, "bool": "bool", "complex": pair}[kind])
        return [(s, t, self._draw.choice(LAYOUTS)) for s, t in zip(shapes, types, strict=True)]

    def _argument(self, shape: str, dtype: str, layout: str, sizes: dict[str, int]) -> str:
        numbers = "".join(f"{sizes.get(d, 1)}, " for d in shape)
        special = f", {self._special}" if self._special else ""
        return f"tensor(({numbers}), torch.{dtype}, '{layout}'{special})"

    # ------------------------------------------------------------ statements

    def _statement(self, name: str) -> None:
        """Adds a line that raises in none of the calls."""
        for _ in range(MOST_TRIES):
            group = self._draw.choices(list(self._weights), list(self._weights.values()))[0]
            form = self._draw.choice(FORMS[group])
            with contextlib.suppress(LookupError):
                text = self._filled(form)
                line = text if group in CHANGES else f"{name} = {text}"
                if self._fits(line, name, group in CHANGES):
                    self.lines.append(line)
                    return

    def _filled(self, form: str) -> str:
        """Fills the holes of a form.

        ``<same>`` is its first tensor of floats or of any type, or else its first one, and ``<samed>`` its dimension:
        an index must fit the tensor whatever the values are, since a GPU ends the process otherwise.
        """
        texts: dict[str, str] = {}

        def fill(hole: re.Match[str]) -> str:
            kind = hole[1]
            if kind in ("same", "samed"):
                return texts["d"] if kind == "samed" else next(texts[k] for k in ("x", "t", "i", "z") if k in texts)
            text = self._fill(kind)
            texts.setdefault(kind, text)
            return text

        return HOLE.sub(fill, form)

    def _fill(self, kind: str) -> str:
        if kind == "type":
            return f"torch.{self._draw.choice((*FLOATS, *WHOLE, 'bool')[1:])}"
        if kind in LITERALS:
            return self._draw.choice(LITERALS[kind])
        if kind in OF_SIZES:
            return self._draw.choice(OF_SIZES[kind]).format(self._fill("t"))
        known = [n for n, v in self.calls[0].items() if _is(kind, v)]
        late = known[-3:] if self._draw.random() < 0.6 else known
        return self._draw.choice(late)

    def _fits(self, line: str, name: str, changes: bool) -> bool:
        """Runs a line; returns whether it succeeded with a usable result."""
        scopes = [dict(scope) for scope in self.calls]
        if any(_ends_process(line, scope) for scope in scopes):
            return False
        versions = self._overlapping_versions()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for scope in scopes:
                    exec(line, vars(tensor_parts) | {"__builtins__": __builtins__}, scope)
        except Exception:
            return False
        if self._overlapping_versions() != versions:
            return False  # what is in an element that several threads write to is not defined
        if not changes and not all(self._is_of_use(scope[name]) for scope in scopes):
            return False
        self.calls = scopes
        return True

    def _overlapping_versions(self) -> list[int]:
        """Returns how often the arguments were written to whose elements share memory."""
        calls = zip(self.arguments, self._given, strict=True)
        return [given[f"a{n}"]._version for texts, given in calls for n, t in enumerate(texts) if "'overlapping'" in t]

    def _is_of_use(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or value.numel() > 4 * MOST_ELEMENTS or value.dim() > 5:
            return False
        return bool(self._special) or bool(value.isfinite().all())

    def _result(self) -> str:
        """Returns the values that no line uses, so that all lines count, and some others, which are then stored."""
        result = [n for n in self.calls[0] if n.startswith("v")] or list(self.calls[0])
        text = "\n".join(self.lines)
        names = [n for n in result if len(re.findall(rf"\b{n}\b", text)) == 1 or self._draw.random() < 0.1]
        return f"[{', '.join(names or result[-1:])}]"


def _is_valid(text: str, scope: Names) -> bool:
    try:
        eval(text, scope)
    except (IndexError, RuntimeError):
        return False
    return True


def _ends_process(line: str, scope: dict[str, Any]) -> bool:
    """Returns whether a line ends the process on a GPU: attention over no heads, with PyTorch 2.11."""
    used = [scope.get(name) for name in re.findall(r"\w+", line)] if "scaled_dot_product" in line else []
    return any(isinstance(value, torch.Tensor) and not value.numel() for value in used)


def _is(kind: str, value: torch.Tensor) -> bool:
    floats, bools, pairs = value.is_floating_point(), value.dtype is torch.bool, value.is_complex()
    return {"x": floats, "b": bools, "z": pairs, "i": not (floats or bools or pairs), "t": True}[kind]


def tensor_programs() -> SearchStrategy[str]:
    """Returns the source of a module like those of `programs`; its values are compared `within_noise`."""
    from hypothesis import strategies as st

    return st.randoms(use_true_random=True).map(written)


def written(draw: random.Random, group: str | None = None) -> str:
    """Draws one program; it is run on the CPU, since an error on a GPU may end the process.

    Most forms are those of `group`.  By default half of the programs have a group, which is drawn.
    """
    if group is None:
        group = draw.choice(["", draw.choice(list(WEIGHTS))])
    with tensor_parts.on("cpu"):
        return Writer(draw, group).write()
