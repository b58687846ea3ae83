"""Programs whose graphs are replayed, for tests with and without a GPU."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import compiler_core


class Broken(nn.Module):
    """Has a graph break between each two blocks, and results of each part."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        made = [nn.Sequential(nn.Linear(48, 48), nn.LayerNorm(48), nn.Tanh()) for _ in range(blocks)]
        self.blocks = nn.ModuleList(made)

    def forward(self, x: torch.Tensor, order: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        parts = []
        for number in order:
            x = self.blocks[number](x).sin() + x
            parts.append(x * 2)
            compiler_core.graph_break()
        return x.square().mean(), parts


def use_several_graphs(seed: int, replayed: Callable[[nn.Module], Any], device: str) -> None:
    """Compares what eager and `replayed` compute in a program that keeps results and gradients, leaves blocks out,
    calls a function of several graphs again before the backward or without one, and moves parameters, so that some of
    the graphs are recorded again."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    model = Broken(3).double().to(device)
    plain = copy.deepcopy(model)
    run = replayed(model)
    kept: list[tuple[Any, Any]] = []
    drops = choose.choice(["first", "between", "never", "at random"])
    habits = choose.sample(["keep", "twice", "no backward", "no grad", "late", "order", "move", "part"], 3)

    late: list[torch.Tensor] = []
    for step in range(24):
        chosen = [habit for habit in habits if step > 2 and choose.random() < 0.3]
        x = torch.randn(24, 48, dtype=torch.float64, device=device)
        order = choose.choice([[0, 1, 2], [1, 0], [2], [0, 0, 1]]) if "order" in chosen else [0, 1, 2]
        again, keeps, moves, part = "twice" in chosen, "keep" in chosen, "move" in chosen, "part" in chosen
        backward, grad, waits = "no backward" not in chosen, "no grad" not in chosen, "late" in chosen
        zero = drops if drops != "at random" else choose.choice(["first", "between", "never"])
        states: list[Any] = []
        losses: list[torch.Tensor] = []
        for net, call in ((model, run), (plain, plain)):
            if zero == "first":
                net.zero_grad()
            with torch.set_grad_enabled(grad):
                loss, parts = call(x, order)
                if again:
                    loss = loss + call(x * 2, order)[0]
                if part:
                    loss = loss + parts[0].sum()
            if zero == "between":
                net.zero_grad()
            if waits:
                losses.append(loss)
            elif backward and grad:
                sum([*late[net is plain :: 2], loss]).backward()  # type: ignore[union-attr]
            gradients = [p.grad for p in net.parameters()]
            states.append((loss.detach(), [p.detach() for p in parts], gradients))
            if keeps:
                what = choose.choice([parts[-1:], parts, *[gradients] * (drops in ("first", "between"))])
                kept += [(list(what), [None if t is None else t.detach().clone() for t in what])]
            del loss, parts, gradients
        torch.testing.assert_close(*states)
        del states
        late = losses if waits else [] if backward and grad else late
        for parameter in model.blocks[choose.randrange(3)].parameters() if moves else ():
            parameter.data = parameter.data.clone()
        kept = kept[-6:] if choose.random() < 0.8 else []
        for values, wanted in kept:
            torch.testing.assert_close([None if v is None else v.detach() for v in values], wanted)
