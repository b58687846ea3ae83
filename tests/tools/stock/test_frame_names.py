"""Frames of stock `torch.compile` have the names of what the user calls, also where Dynamo calls it by a function."""

from __future__ import annotations

import torch

import compiler_core as cc


@torch.no_grad()
def evaluate(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def policy(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    torch._dynamo.graph_break()
    return y * 2


def test_a_frame_has_the_names_of_what_it_is_around_and_no_other_frame_has() -> None:
    torch._dynamo.reset()
    linear = torch.nn.Linear(3, 3)
    with cc.record(engine="torch") as record:
        for called in (evaluate, linear, policy):
            torch.compile(called, backend="eager")(torch.ones(2, 3))
    around, *others = (frame.name for frame in record.frames)
    assert around == "evaluate or Linear"
    assert others == ["policy", "policy"]
