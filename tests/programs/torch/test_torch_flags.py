# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Branches on flags and counts that a module keeps in a buffer: each way is one graph, chosen by a guard.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import compiler_core
from compiler_core.api.compile import record_of
from tests.sampling import pairs


class Codebook(nn.Module):
    """As the codebooks of vector quantisation: the first batch makes the codes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("initted", torch.Tensor([False]))
        self.register_buffer("codes", torch.zeros(4))

    def init(self, x):
        if self.initted:
            return
        self.codes.data.copy_(x.mean(0))
        self.initted.data.copy_(torch.Tensor([True]))

    def forward(self, x):
        self.init(x)
        return x - self.codes


class ActNorm(nn.Module):
    """As the normalisation of flows: the first batch sets the parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))
        self.loc = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        if self.training and self.initialized.item() == 0:
            with torch.no_grad():
                self.loc.data.copy_(-x.mean(0))
            self.initialized.fill_(1)
        return x + self.loc


class Average(nn.Module):
    """As a moving average that begins after some steps and is updated at each second one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("initted", torch.tensor(False))
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        step = self.step.item()
        self.step += 1
        if (step % 2) != 0:
            return x * 1
        if step <= 3:
            self.mean.copy_(x.mean(0))
            return x + self.mean
        if not self.initted.item():
            self.mean.copy_(x.mean(0))
            self.initted.data.copy_(torch.tensor(True))
        self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("on", torch.tensor(True))

    def forward(self, x):
        is_on = bool(self.on)
        self.on.logical_not_()
        return x * 2 if is_on else x, is_on


class Counted(nn.Module):
    """Writes the count before it branches on it, so that the graph breaks."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.count += 1
        if self.count > 2:
            return x * 2
        return x + 1


class Aliased(Counted):
    """Writes the count by another name, which is in the same memory."""

    def __init__(self):
        super().__init__()
        self.register_buffer("other", self.count.view(1))

    def forward(self, x):
        self.other += 1
        if self.count > 2:
            return x * 2
        return x + 1


CASES = [(Codebook, 2, 0), (ActNorm, 2, 0), (Average, 4, 0), (Switch, 2, 0), (Counted, None, 1), (Aliased, None, 1)]


@pytest.mark.parametrize("backend", ["eager", "cpp"])
@pytest.mark.parametrize(("make", "compiles", "breaks"), CASES, ids=[case[0].__name__ for case in CASES])
def test_modules(make, compiles, breaks, backend):
    backend = "eager" if make is Aliased else backend  # kernels refuse it

    def run(wrap):
        torch.manual_seed(0)
        module = make()
        called = wrap(module)
        found = [called(torch.randn(3, 4)) for _ in range(10)]
        return found, list(module.state_dict().values())

    compiled = []

    def wrap(module):
        compiled.append(compiler_core.compile(module, backend=backend, strict=True))
        return compiled[0]

    torch.testing.assert_close(run(wrap), run(lambda module: module))
    found = record_of(compiled[0]).compiles
    assert compiles in (None, len(found))
    assert [b.reason for b in found[0].breaks] == ["data-dependent branch"] * breaks


def test_a_condition_that_raises():
    class Raising(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.tensor(4))

        def forward(self, x):
            if self.step % 0 == 0:
                return x * 2
            return x

    run = compiler_core.compile(Raising(), backend="eager", strict=True)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(torch.ones(2))


def test_a_flag_that_the_program_sets_between_calls():
    module = Codebook()
    run = compiler_core.compile(module, backend="eager", fullgraph=True)
    x = torch.randn(3, 4)
    for value in (False, True, True, False):
        module.initted.fill_(value)
        module.codes.fill_(7)
        torch.testing.assert_close(run(x), copy.deepcopy(module)(x) if value else x - x.mean(0))
    guards = [guard.code for compile_ in record_of(run).compiles for guard in compile_.guards]
    assert "bool(L['self'].initted) is False" in guards
    assert "bool(L['self'].initted) is True" in guards
    assert len(record_of(run).compiles) == 2


@pytest.mark.parametrize(
    ("average", "use_buffers"), pairs([None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)], [False, True], 2)
)
def test_an_averaged_model_within_the_step(average, use_buffers):
    def step(model, optimizer, averaged, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
        return loss.item()

    def trained(step):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average, use_buffers=use_buffers)
        data = [(torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(5)]
        losses = [step(model, optimizer, averaged, *each) for each in data]
        return losses, model.state_dict(), averaged.state_dict(), optimizer.state_dict()["state"]

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    torch.testing.assert_close(trained(run), trained(step))
    if not use_buffers:  # they are of several dtypes, which PyTorch groups by a hash
        assert sum(len(each.breaks) for each in record_of(run).compiles) == 0
        assert len(record_of(run).compiles) == 2
