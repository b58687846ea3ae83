# mypy: ignore-errors
"""Ten training steps that people write, each compiled as one function and trained for 20 steps beside eager PyTorch."""

import pytest
import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

import compiler_core
from compiler_core.api.compile import record_of
from tests.sampling import always
from tests.training_steps import PROGRAMS, Training

pytestmark = pytest.mark.slow

STEPS, NOISES = 20, 3
EACH_RUN = {"GRU tagger", "mixed precision"}
"""The others take longer to compile, or have the same operations."""
OTHER_FIRST_STEP = {"mixed precision"}
"""A scaler breaks before there is state."""


def trained(name, wrap=lambda step: step, *, noise=None, dtype=torch.float32):
    """Returns what `STEPS` steps leave, and the function that took them; `noise` changes the last bits of weights."""
    training = Training(name, dtype=dtype)
    if noise is not None:
        torch.manual_seed(noise)
        for p in training.modules[0].parameters():
            p.data.mul_(1 + torch.randint(-1, 2, p.shape) * torch.finfo(p.dtype).eps)
    step, losses = wrap(training.program.step), []
    for number in range(STEPS):
        torch.manual_seed(number)
        losses.append(step(training, *training.batch()))
    return {**training.left(), "losses": torch.stack(losses)}, step


@pytest.mark.parametrize("name", always(PROGRAMS, lambda name: name in EACH_RUN))
def test_one_graph_from_the_second_step_on(name):
    """All that is left equals eager's, within twice the error of eager runs with noise, beside float64."""
    found, step = trained(name, lambda step: compiler_core.compile(step, capture_backward=True, strict=True))
    exact, *eager = [trained(name, noise=n, dtype=t)[0] for n, t in [(None, torch.float64), (None, torch.float32)]]
    eager += [trained(name, noise=noise)[0] for noise in range(NOISES)]
    flat = [tree_flatten_with_path(each) for each in (exact, found, *eager)]
    assert all(spec == flat[0][1] for _, spec in flat)
    for (path, true), (_, ours), *others in zip(*(leaves for leaves, _ in flat), strict=True):
        wanted = others[0][1]
        assert type(ours) is type(wanted)
        if not isinstance(ours, torch.Tensor):
            assert ours == wanted, keystr(path)
            continue
        properties = [(t.dtype, t.shape, t.stride(), t.requires_grad, t.is_leaf) for t in (ours, wanted)]
        assert properties[0] == properties[1], keystr(path)
        if not ours.is_floating_point():
            assert torch.equal(ours, wanted), keystr(path)
            continue
        noise = max((other - true).abs().max() for _, other in others)
        assert (ours - true).abs().max() <= 2 * noise + 1e-6 * true.abs().max(), keystr(path)
    record = record_of(step)
    whole = [each for each in record.compiles if each.frame == 0]
    assert len(whole) == 1 + (name in OTHER_FIRST_STEP)
    assert name == "mixed precision" or not whole[0].breaks
    assert len(whole) == 1 or not whole[1].breaks
    assert [each.reason for each in whole[0].breaks] == ["optimizer"] * (name == "mixed precision")
