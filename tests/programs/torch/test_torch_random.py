# mypy: ignore-errors
# ruff: noqa
"""Programs that draw random numbers: they draw what eager draws, and leave the stream where eager leaves it.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import torch
import torch.nn as nn
import torch.nn.functional as F

from compiler_core.tools.testing import same_as_eager
from tests.cases.torch_version import SINCE_2_13

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


@one_graph(grad=True)
def test_dropouts(x):
    return F.dropout(x, 0.5), F.dropout(x, 0.3, training=False), F.alpha_dropout(x, 0.5, True), F.dropout1d(x, 0.5)


@same_as_eager(
    graphs=2, breaks=["skipped function", "unsupported iteration", "skipped function", "unsupported iteration"]
)
def test_fork(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        a = torch.randn(2)
    return a + x[0, :2], torch.randn(2)


@same_as_eager(graphs=2, breaks=["skipped function"])
def test_initial_seed(x):
    return torch.initial_seed() * 0, x + torch.randn(4)


@same_as_eager(
    graphs=2,
    breaks=["print"],
    inputs=lambda: (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.RReLU()), torch.randn(2, 4)),
)
def test_random_modules_then_break(net, x):
    y = net(x)
    print("between")
    return y + net(x), torch.randn(2)


@one_graph() if SINCE_2_13 else same_as_eager()
def test_distributions_without_checks(x):
    D = torch.distributions
    normal = D.Independent(D.Normal(x, x.exp(), validate_args=False), 1, validate_args=False)
    other = D.Independent(D.Normal(x * 2, 1.0, validate_args=False), 1, validate_args=False)
    action = D.Categorical(logits=x, validate_args=False)
    squashed = D.TransformedDistribution(normal, [D.TanhTransform(cache_size=1)], validate_args=False)
    a, s = action.sample(), squashed.rsample()
    return normal, D.kl_divergence(normal, other), action.log_prob(a), action.entropy(), squashed.log_prob(s)


@same_as_eager()
def test_a_distribution_that_is_returned_and_one_with_bad_arguments(x):
    kept = torch.distributions.Categorical(logits=x)
    try:
        torch.distributions.Normal(x, -x.exp(), validate_args=True)
    except ValueError as error:
        return kept.probs, vars(kept), str(error)
