"""Planted faults in training scripts, samplers, rollouts and models, as users write them."""

from __future__ import annotations

from tests.faults.fault import Broken, Change, Recompiled

RECOMPILES = [
    Recompiled(
        "a function that chooses by the class of its argument",
        """
import functools

@functools.singledispatch
def scaled(x):
    return torch.stack(x)

@scaled.register
def _(x: torch.Tensor):
    return x * 2

def program(x):
    return scaled(x) + 1  # the fault

def run(call):
    x = torch.ones(3)
    call(x)
    call([x])
""",
        "x",
        "class",
        "Tensor",
        "list",
        (Change("one type", {"call([x])": "call(torch.stack([x])[0])"}, engines=("core",)),),
        stock=None,
    ),
    Recompiled(
        "the cache of a function that chooses by the class of its argument",
        """
import functools

@functools.singledispatch
def scaled(x):
    return torch.stack(x)

@scaled.register
def _(x: torch.Tensor):
    return x * 2

def program(x):
    return scaled(x) + 1  # the fault

def run(call):
    x = torch.ones(3)
    for _ in range(3):
        call(x)
""",
        "a free variable of scaled",
        "length",
        "0",
        "",
        (Change("filled cache", {"    x = torch.ones(3)\n": "    x = torch.ones(3)\n    scaled(x)\n"}),),
        is_confirmed=False,
        on_core=False,
        logs={"line": 12},
    ),
    Recompiled(
        "a learning rate of a scheduler in the loss",
        """
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

def program(x):
    return (x * weight).sum() * scheduler.get_last_lr()[0]  # the fault

def run(call):
    for _ in range(3):
        call(torch.ones(3))
        optimizer.step()
        scheduler.step()
""",
        "scheduler._last_lr[0]",
        "value",
        "0.5",
        "0.25",
        remedy="symbolic number",
        stock=None,
    ),
]

BREAKS: list[Broken] = []
