# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Numbers read from tensors, such as ``loss.item()``: kept, returned and computed with, they do not break the graph.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import itertools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import Expected, check, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


@one_graph(grad=True)
def test_arithmetic_of_numbers(x):
    total = x.sum().item()
    most = x.max().item() * 3 + total - 1
    right = (x > 0).sum().item()
    numbers = total, most, most / 4, -most, abs(most), round(most, 2), most // 3, most % 7, right / len(x), 2 * right
    return numbers, [type(each) for each in (total, right, right / 2)], isinstance(total, float), x * 2


@one_graph()
def test_numbers_of_infinities(x):
    inf, nan = (x.abs() / 0).sum().item(), (x * 0 / 0).sum().item()
    return inf, inf * 0, inf // 2, inf % 2, -inf, str(type(nan)), [nan + 1, round(nan, 3), round(inf, 1), abs(nan)]


@one_graph(
    inputs=lambda: (torch.tensor(3), torch.tensor(True), torch.tensor([2.5]), torch.tensor(7, dtype=torch.uint8))
)
def test_conversions(n, flag, one, byte):
    converted = int(n), float(n), int(flag), flag.item() + 1, float(one), one.item(), int(byte) * 1000
    return converted, [type(each) for each in converted], float(n) / 2, float(n.item()), n + 1


@same_as_eager(graphs=0, breaks=[])
def test_numbers_alone(x):
    """No graph copies numbers that Python reads from its arguments, where nothing is computed."""
    return x[0, 0].item() if x.dim() > 3 else x.tolist()[:1], float(x.numel()), x.dim()


@one_graph(grad=True)
def test_numbers_that_act_on_tensors(x):
    most, count = x.detach().abs().max().item(), (x > 0).sum().item()
    y = x / most
    y = y * count
    z = y.clone()
    z += most
    z *= count
    return y + 1, x > most, x - most, most * x, 1 + count * x, z, x.sum() + count


@pytest.mark.parametrize("shape", [(), (3,)])
def test_dtypes(shape):
    """A number read from a tensor acts on another one as in eager PyTorch, in each pair of dtypes, or breaks the graph."""
    dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32]

    def program(x, n):
        number = n.item()
        return x + number, number - x, x * number, number * x, x < number, number == x

    torch.manual_seed(0)
    compiled = {dtype: compiler_core.compile(program, backend="eager", strict=True) for dtype in dtypes}
    whole = []
    for of_tensor, of_number in itertools.product(dtypes, dtypes):
        x, n = (torch.rand(shape) * 9 + 1).to(of_tensor), (torch.rand(()) * 9 + 1).to(of_number)
        torch.testing.assert_close(compiled[of_tensor](x, n), program(x, n), rtol=0, atol=0)
        last = [each for each in record_of(compiled[of_tensor]).compiles if each.frame == 0][-1]
        whole += [] if last.breaks else [(of_tensor, of_number)]
    assert len(whole) == len(dtypes) ** 2


class Meter:
    def __init__(self):
        self.value = self.total = self.count = self.average = 0

    def update(self, value, n=1):
        self.value = value
        self.total += value * n
        self.count += n
        self.average = self.total / self.count


METER, LOSSES, TOTAL = Meter(), [], 0.0
BEST, LINES = [0.0, float("inf")], []


@one_graph(changes=["LINES"])
def test_texts_with_numbers(x):
    x = x.round()  # whose sums are the same in each order
    loss, right = x.square().mean(), (x > 0).sum().item()
    line = f"loss {loss.item():.3f} of {right} {right:>4d} {loss.item()!r:>9} {loss:.2e} {x.sum()}"
    LINES.append(line + ", the end")
    others = (
        "%.2f %d %s" % (loss.item(), right, right),
        "{} {:.1e}".format(right, loss.item()),
        str(right),
        "%s" % right,
    )
    return loss, line, others, f"{x.shape[0]} {loss.item() * 2:.2f}", f"{(x / 0).sum().item():.1f}", repr(loss.item())


@same_as_eager(breaks=["tensor value read"])
def test_a_text_with_a_tensor_of_several_numbers(x):
    return f"{x}", x + 1


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    right = (logits.argmax(1) == y).sum().item()
    return {"loss": loss.item(), "norm": norm.item(), "accuracy": 100.0 * right / y.size(0)}


def test_a_training_step_that_returns_numbers():
    def trained(step):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        found = [step(model, optimizer, torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(5)]
        return found, list(model.parameters())

    run = compiler_core.compile(step, capture_backward=True, fullgraph=True, strict=True)
    torch.testing.assert_close(trained(run), trained(step), rtol=1e-5, atol=1e-5)
    assert len(record_of(run).compiles) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum().item() is None,
        lambda x: int(x.sum().item()),
        lambda x: round(x.sum().item()),
        lambda x: 1 / x.sum().item(),
        lambda x: x.round().sum().item() ** 0.5,
        lambda x: "%d" % x.sum().item(),
        lambda x: [10, 20, 30][(x > 9).sum().item()],
        lambda x: torch.zeros((x > -9).sum().item()),
        lambda x: {x.round().sum().item(): 1},
        lambda x: max(x.sum().item(), 2),
        lambda x: (x > 0).any().item() is True,
        lambda x: x.item() if x.numel() == 1 else x.max().item(),
        lambda x: sorted([x.max().item(), x.min().item()]),
    ],
    ids=range(13),
)
def test_uses_of_a_number_that_need_it_now(program):
    check(program, None, Expected())


def test_errors_are_those_of_eager():
    for program in (lambda x: x.item(), lambda x: x.sum().item() + "a", lambda x: 1 // (x * 0).sum().item()):
        check(program, None, Expected())


@one_graph(grad=True)
def test_tensors_made_of_numbers_that_are_read(x):
    first, most, count = x[0, 0].item(), x.argmax().item(), (x > 0).sum().item()
    return (
        torch.tensor([first, 2.0]),
        torch.tensor([[first * 2 + 1], [-first / 3]], dtype=torch.float64),
        torch.tensor([most, 2]),
        torch.tensor([most, 0.5]),
        torch.tensor([count + 1, count]),
        torch.tensor(first),
        torch.FloatTensor([first, 1]),
    )


@one_graph(inputs=lambda: (torch.randn(3), torch.eye(3) * 2), tolerance=1e-6)
def test_a_constraint_on_a_matrix_is_taken_for_granted(x, covariance):
    normal = torch.distributions.MultivariateNormal(x, covariance)
    return normal.log_prob(x + 1), torch.distributions.MultivariateNormal(x, precision_matrix=covariance).mean
