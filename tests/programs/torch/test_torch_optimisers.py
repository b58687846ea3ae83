# mypy: ignore-errors
# ruff: noqa
"""Programs that train: optimisers, schedulers, scalers and clipping inside the compiled function.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._dynamo.eval_frame import TorchPatcher

from compiler_core.tools.testing import same_as_eager

TorchPatcher.patch()  # the first use of torch.compile in a process marks LBFGS.step as one to leave alone


def training(optimiser, *args, **kwargs):
    """A model, its optimiser and a batch."""

    def make():
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        return net, optimiser(net.parameters(), *args, **kwargs), torch.randn(8, 4), torch.randn(8, 1)

    return make


def step(net, optimiser, x, y):
    optimiser.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    optimiser.step()
    return loss.detach()


@same_as_eager(graphs=0, breaks=["asked for"], inputs=training(torch.optim.LBFGS, lr=0.1, max_iter=2))
def test_lbfgs_with_a_closure(net, optimiser, x, y):
    def closure():
        optimiser.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    return optimiser.step(closure)


@same_as_eager(
    graphs=4,
    breaks=["new optimizer", *["optimizer", "backward", "optimizer"], *["optimizer"] * 2, "backward", "optimizer"],
    inputs=training(torch.optim.SGD, lr=0.1),
)
def test_scheduler(net, optimiser, x, y):
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, step_size=1, gamma=0.5)
    step(net, optimiser, x, y)
    scheduler.step()
    step(net, optimiser, x, y)
    return optimiser.param_groups[0]["lr"]


@same_as_eager(
    graphs=2,
    breaks=["backward"] * 2 + ["optimizer"] * 2,
    inputs=training(torch.optim.SGD, lr=0.1),
)
def test_gradients_accumulated(net, optimiser, x, y):
    for part, want in zip(x.chunk(2), y.chunk(2)):
        F.mse_loss(net(part), want).backward()
    optimiser.step()
    optimiser.zero_grad()
    return [p.grad is None for p in net.parameters()]


@same_as_eager(
    graphs=2,
    breaks=["skipped function"] * 2 + ["unsupported instruction"] * 2,
    inputs=lambda: (nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(2, 4)),
)
def test_weights_loaded_inside(a, b, x):
    a.load_state_dict(b.state_dict())
    return a(x) - b(x)


@same_as_eager(
    graphs=4,
    breaks=["optimizer"] * 4 + ["backward", "optimizer"],
    inputs=training(torch.optim.SGD, lr=0.1),
)
def test_training_loop(net, optimiser, x, y):
    losses = []
    for epoch in range(2):
        net.train()
        for i in range(2):
            out = net(x[i * 4 : i * 4 + 4])
            loss = F.mse_loss(out, y[i * 4 : i * 4 + 4])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            losses.append(F.mse_loss(net(x), y).item())
    return losses
