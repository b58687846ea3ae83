# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Calls of a compiled function that run its code without the hook: of all kinds that its parameters allow."""

from __future__ import annotations

import re

import pytest
import torch

import compiler_core
from compiler_core.hook.frame_hook import FrameHook

X, Y = torch.arange(3.0), torch.ones(3)


def plain(x, y):
    return x * 2 + y


def with_defaults(x, y=Y, scale=3, shift=None):
    return x * scale + (y if shift is None else y - shift)


def only_by_position(x, y=Y, /, scale=2):
    return x * scale + y


class Module(torch.nn.Module):
    def forward(self, x, y=None, training=False):
        return x * 2 if y is None else x + y * (2 if training else 1)


FUNCTIONS = {"plain": plain, "defaults": with_defaults, "by position": only_by_position, "module": Module()}
CALLS = [
    ((X,), {}),
    ((X, Y), {}),
    ((X,), {"y": X}),
    ((), {"y": X, "x": Y}),
    ((X,), {"scale": 5}),
    ((X, X), {"shift": 2.0}),
    ((X, Y, 4), {}),
    ((X, Y, 4, 1.0), {}),
    ((X, Y, 4, 1.0, 5), {}),
    ((X,), {"x": X}),
    ((X,), {"z": X}),
    ((), {}),
    ((X,), {"training": True}),
]


@pytest.fixture
def hooked(monkeypatch):
    """The calls that ran with the hook."""
    calls, wrap = [], FrameHook.wrap

    def counting(self, fn, *before):
        wrapped = wrap(self, fn, *before)

        def call(*args, **kwargs):
            calls.append(args)
            return wrapped(*args, **kwargs)

        return call

    monkeypatch.setattr(FrameHook, "wrap", counting)
    return calls


def outcome(fn, args, kwargs):
    try:
        return fn(*args, **kwargs)
    except TypeError as error:
        return re.sub(r"[\w.<>]+\(\)", "f()", str(error))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kind_of_call(name, hooked) -> None:
    function = FUNCTIONS[name]
    for args, kwargs in CALLS:
        compiler_core.reset()
        fast, expected = compiler_core.compile(function, backend="eager"), outcome(function, args, kwargs)
        for number in range(3):
            hooked.clear()
            got = outcome(fast, args, kwargs)
            if isinstance(expected, str):
                assert got == expected
            else:
                assert torch.equal(got, expected)
                assert bool(hooked) == (number == 0)
