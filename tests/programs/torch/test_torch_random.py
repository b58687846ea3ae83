# mypy: ignore-errors
# ruff: noqa
"""Programs that draw random numbers: they draw what eager draws, and leave the stream where eager leaves it.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from compiler_core.tools.testing import same_as_eager
from tests.cases.torch_version import SINCE_2_13

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


@one_graph()
def test_constructors(x):
    results = torch.rand(2, 3), torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(5), torch.randint(5, (2,))
    return (
        x + 1,
        results,
        torch.rand_like(x),
        torch.randn_like(x),
        torch.randint_like(x, 3),
        torch.normal(0.0, 1.0, (2,)),
    )


@one_graph()
def test_distributions_of_tensors(x):
    p = x.sigmoid()
    return torch.bernoulli(p), torch.multinomial(p, 2), torch.normal(x, p), torch.poisson(p), p.multinomial(1)


@one_graph()
def test_in_place_draws(x):
    y = x.clone()
    a = y.normal_(), y.uniform_(-1, 1).clone(), y.bernoulli_(0.5).clone(), y.exponential_().clone()
    return a, y.random_(0, 5), y.log_normal_().clone(), y.cauchy_().clone(), y.geometric_(0.3)


@one_graph(grad=True)
def test_dropouts(x):
    return F.dropout(x, 0.5), F.dropout(x, 0.3, training=False), F.alpha_dropout(x, 0.5, True), F.dropout1d(x, 0.5)


@one_graph(grad=True)
def test_random_functions(x):
    return F.rrelu(x, training=True), F.gumbel_softmax(x), F.gumbel_softmax(x, hard=True)


@same_as_eager(graphs=2, breaks=["skipped function", "skipped function"])
def test_state_read_and_set(x):
    state = torch.get_rng_state()
    a = torch.randn(2)
    torch.set_rng_state(state)
    return a, torch.randn(2), x + 1


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


@same_as_eager()
def test_distribution_objects(x):
    d = torch.distributions.Normal(x, 1.0)
    return d.log_prob(x + 1), d.sample(), d.rsample()


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
