# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Sizes and numbers that data decide, such as those of ``x[mask]``: one graph, which runs in parts, and for new sizes no
other compile.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import itertools
import threading
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import rnn

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.pipeline import parts
from compiler_core.tools.testing import Expected, check
from tests.sampling import sample

BACKENDS = ["eager", "aot_eager", "cpp"]
PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def masks():
    """Five, three, all, no and one of eight rows."""
    rows = torch.arange(8)
    return [rows % 3 != 1, rows > 4, rows >= 0, rows < 0, rows == 2]


# ---------------------------------------------------------------- what people write


@program
def rows_of_a_mask(x, m):
    return (x * 2)[m].sin() + 1


@program
def sizes_that_are_returned(x, m):
    y = x[m]
    return y.relu() * 3, y.shape[0], y.shape[0] * 2 + 1, y.shape, y.numel(), len(y)


@program
def text_of_a_size(x, m):
    y = x[m]
    return f"{y.shape[0]} rows", "%d" % y.shape[0], str(y.shape[0] + 1), y * 2


@program
def places_of_a_mask(x, m):
    i = m.nonzero().squeeze(-1)
    return x[i] + x[i].mean(0), i


@program
def places_as_a_tuple(x, m):
    (rows,) = torch.nonzero(m, as_tuple=True)
    columns = torch.where(x > 0)[1]
    return torch.zeros(8, 3).index_add(0, rows, x[rows] * 2), columns + 1


@program
def a_number_among_several_indices(x, m):
    n = int((x[0].argmax() + m.sum()) % 3)
    y = x * 2
    y[:, n] = x[:, n - 3].sum()
    return y.sin(), x[..., n] + 1, x[None, :, n], x[2, n], y[:, n].sum()


@program
def a_number_whose_item_is_changed(x, m):
    n = int((x[0].argmax() + m.sum()) % 3)
    y = x * 2
    y[n] += x[n] * 3
    y[:, n] -= 1
    y[n, :2] *= x[n].sum()
    return y.sin(), y[n]


@program
def as_many_as_a_number_says(x, m):
    n = int(m.sum())
    return x[:n] * 2, torch.zeros(n) + 1, torch.arange(n), x.narrow(0, 0, n), x.new_ones(n, 2)


@program
def checked_numbers(x, m):
    n = m.sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n].sum(0), torch.split(x, [n, 8 - n])[1] + 1


@program
def lists_of_numbers(x, m):
    first, second = torch.stack([m.sum(), 8 - m.sum()]).tolist()
    return torch.split(x, [first, second])[0] * 2, first + second


@program
def two_masks_of_one_size(x, m):
    a, b = x[m], (x * 2)[m]
    return (a + b).sum(1), torch.cat([a, b]), a * b


@program
def both_halves(x, m):
    a, b = x[m], x[~m]
    return a @ b.t(), torch.cat([a, b]).flip(0)


@program
def distinct_values(x, m):
    values, inverse, counts = torch.unique(m.int(), return_inverse=True, return_counts=True)
    return values + 1, inverse * 2, counts, torch.unique_consecutive(m.int()) * 2


@program
def repeated_rows(x, m):
    return torch.repeat_interleave(x, m.int() + 1, dim=0).tanh(), x.repeat_interleave(2, 0)


@program
def counts_of_values(x, m):
    return torch.bincount(m.int(), minlength=2) * 2, torch.histc(x, 4)


@program
def written_before_and_after(x, m):
    x[m] = 0
    y = x[~m]
    y.mul_(2)
    return y, x * 1


@program
def rows_that_are_written(x, m):
    y = x.clone()
    y[m] = x[m] * 2
    y[~m] += 1
    return y.softmax(-1)


@program
def means_and_norms(x, m):
    y = torch.masked_select(x, x > 0.1)
    return y.mean(), y.sum() / y.numel(), (x[m].sum() + 1) / (m.sum() + 1)


@program
def reshaped(x, m):
    y = x[m]
    z = y.view(-1, 3, 1).expand(-1, 3, 4).contiguous().sum((1, 2))
    return z, y.reshape(-1), y.unsqueeze(0).transpose(0, 1), F.pad(y, (0, 1))


@program
def sorted_rows(x, m):
    values, order = x[m].sort(0)
    return values.cumsum(0), order, x[m].argsort(1)


@program
def in_a_loop(x, m):
    out = x.new_zeros(8, 3)
    for i in range(3):
        rows = torch.where(m.long() * i == i)[0]
        out = out.index_add(0, rows, torch.tanh(x[rows] * (i + 1)))
    return out


@program
def without_gradients(x, m):
    with torch.no_grad():
        keep = (x.norm(dim=1) > 1).nonzero().squeeze(1)
        y = (x + 1)[m] * 2
    return x[keep] * 2, y


@program
def under_autocast(x, m):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x[m] @ x.t()
    return y.float() + 1


@program
def solved(x, m):
    a = x.t() @ x + 4 * torch.eye(3)
    return torch.linalg.solve(a, x[m].t()), torch.linalg.inv(a) @ x.t(), torch.linalg.cholesky(a)


@program
def dropped_out(x, m):
    y = F.dropout(x, 0.5)[m]
    return y * F.dropout(x, 0.3).sum()


@program
def an_aliased_input(x, m):
    flat = x.view(-1)
    y = flat[flat > 0] * 2
    x.add_(1)
    return y, x * 3


@program
def a_scale_that_is_read(x, m):
    scale = x.abs().max().item()
    return torch.clamp(x, -scale / 2, scale / 2), torch.full((2,), scale), x * m.sum().item()


def results(call, x, m, grad):
    """Returns what a program returns, its argument after it, gradients and the random state."""
    leaf = x.detach().clone().requires_grad_(grad)
    torch.manual_seed(3)
    argument = leaf * 1 if grad else leaf
    out = call(argument, m)
    out = list(out) if isinstance(out, tuple) else [out]
    wanted = [t for t in out if isinstance(t, torch.Tensor) and t.requires_grad]
    if wanted:
        sum(t.sum() for t in wanted).backward()
    return [*out, argument.detach(), leaf.grad, torch.get_rng_state()]


def assert_equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert type(a) is type(b), (a, b)
        if isinstance(a, torch.Tensor):
            assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad)
            assert a.numel() < 2 or a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        else:
            assert a == b


@pytest.mark.parametrize(("name", "backend", "grad"), sample(itertools.product(PROGRAMS, BACKENDS, [True, False]), 5))
def test_programs(name, backend, grad):
    compiled = compiler_core.compile(PROGRAMS[name], backend=backend, fullgraph=True, strict=True)
    torch.manual_seed(1)
    x = torch.randn(8, 3)
    for m in masks():
        assert_equal(results(compiled, x, m, grad), results(PROGRAMS[name], x, m, grad))
    record = record_of(compiled)
    assert len(record.compiles) == 1 and not record.compiles[0].failures


# ---------------------------------------------------------------- what is compiled, and when


def test_a_part_is_compiled_for_many_sizes_once():
    def f(x, m):
        return x[m].sin() + 1

    compiled = compiler_core.compile(f, fullgraph=True, strict=True)
    x = torch.randn(40, 3)
    for count in (7, 9, 30, 2, 13):
        torch.testing.assert_close(compiled(x, torch.arange(40) < count), x[:count].sin() + 1)
    (compile_,) = record_of(compiled).compiles
    assert [a.name for a in compile_.artifacts if a.name.startswith("part") and a.name.endswith("forward")] == [
        "part_1.forward"
    ]
    assert [kernel.name for kernel in compile_.generated_kernels] == ["part_1.forward_0"]
    assert [a.name for a in compile_.artifacts if a.pane == "kernel"] == ["part_1.forward.cpp"]
    (symbol,) = compile_.symbols
    assert (symbol.name, symbol.value, symbol.why, symbol.low) == ("getitem.size(0)", 7, "data decide it", 2)
    compiled(x, torch.arange(40) < 0)
    assert "part_1_2.forward" in [a.name for a in compile_.artifacts]  # of no rows


def test_a_part_is_compiled_a_few_times_at_most():
    """Numbers without a symbol, which are constants of a part, differ by their signs, too."""

    def f(x, a, b):
        return 1 / torch.clamp(x, a.item(), b.item())

    compiled = compiler_core.compile(f, fullgraph=True, strict=True)
    numbers = [torch.tensor(each) for each in (0.0, -0.0, float("inf"), float("nan"), 2.0)]
    x = torch.tensor([-1.0, 0.0, -0.0, 1.0])
    with pytest.warns(compiler_core.RefusalWarning, match="compiled for 8 kinds of sizes that data decide") as warned:
        for a, b in itertools.product(numbers, numbers):
            assert_equal([compiled(x, a, b.clone())], [f(x, a, b)])
    assert len(warned) == 1
    (compile_,) = record_of(compiled).compiles
    names = [each.name for each in compile_.artifacts if each.name.endswith(".forward")]
    assert len([name for name in names if name.startswith("part_4")]) == parts.MAX_VARIANTS


def test_threads_compile_a_part_once():
    def f(x, m):
        return x[m].sin() * 2

    compiled = compiler_core.compile(f, fullgraph=True, strict=True)
    x, m = torch.randn(40, 3), torch.arange(40) % 3 == 0
    compiled(x, torch.zeros(40, dtype=torch.bool))
    found = []
    threads = [threading.Thread(target=lambda: found.append(compiled(x, m))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for each in found:
        torch.testing.assert_close(each, f(x, m))
    (compile_,) = record_of(compiled).compiles
    assert len([a for a in compile_.artifacts if a.name.endswith(".forward")]) == 2


def test_a_part_warns_when_it_runs():
    program = lambda x, m: (x[m], x[[[0], [1]]])
    inputs = [lambda m=m: (torch.randn(8, 3), m) for m in masks()]
    check(program, inputs, Expected(graphs=1, breaks=[]), backend="cpp", tolerance=1e-6)


def test_symbolic_sizes_of_inputs_reach_the_parts():
    def f(x):
        y = x * 2
        return y[y[:, 0] > 0].sum(0) + y.mean(0)

    compiled = compiler_core.compile(f, fullgraph=True, strict=True, dynamic=True)
    for rows in (8, 12, 5, 30):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(record_of(compiled).compiles) == 1


# ---------------------------------------------------------------- what does not hold, and what raises


def test_sizes_that_differ_where_the_graph_took_them_for_equal():
    """Eager PyTorch broadcasts one row; the graph has checked that both have as many."""

    def f(x, m, k):
        LOG.append(1)
        return x[m] + x[k], x.mul_(2)

    compiled = compiler_core.compile(f, strict=True)
    rows = torch.arange(8)
    for m, k in [(rows < 3, rows > 4), (rows < 3, rows == 4), (rows == 1, rows > 4), (rows < 3, rows < 3)]:
        x, y = torch.ones(8, 3), torch.ones(8, 3)
        LOG.clear()
        want, got = f(x, m, k), compiled(y, m, k)
        assert len(LOG) == 2
        assert_equal([*got, y], [*want, x])
    with pytest.raises(RuntimeError, match="must match the size"):
        compiled(torch.ones(8, 3), rows < 3, rows < 2)


LOG = []


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_are_the_programs(backend):
    def f(x, n):
        x.add_(1)
        try:
            return x[: int(n)].view(2, -1) * 2
        except RuntimeError as error:
            return str(error), x.sum()

    compiled = compiler_core.compile(f, backend=backend, strict=True)
    for n in (4, 3, 2, 5):
        x, y = torch.ones(8, 3), torch.ones(8, 3)
        want, got = f(x, torch.tensor(n)), compiled(y, torch.tensor(n))
        assert_equal(list(got) if isinstance(got, tuple) else [got], list(want) if isinstance(want, tuple) else [want])
        torch.testing.assert_close(x, y)


def test_a_singular_matrix_raises():
    def f(x):
        y = x * 2
        return torch.linalg.inv(y) + 1

    compiled = compiler_core.compile(f, strict=True, fullgraph=True)
    torch.testing.assert_close(compiled(torch.eye(3)), f(torch.eye(3)))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(3, 3))


@pytest.mark.parametrize("rows", [0, 2])
def test_one_element_is_wanted(rows):
    def f(x, m):
        return (x * 2)[m].item() + 1

    compiled = compiler_core.compile(f, strict=True)
    x = torch.arange(8.0)
    assert compiled(x, x == 3) == f(x, x == 3)
    with pytest.raises(RuntimeError):
        compiled(x, x < rows)


def test_branches_on_a_size_break():
    def f(x, m):
        y = x[m]
        if y.shape[0] > 3:
            y = y * 2
        return y + 1

    compiled = compiler_core.compile(f, strict=True)
    x = torch.randn(8, 3)
    for m in masks():
        torch.testing.assert_close(compiled(x, m), f(x, m))
    breaks = [each.kind for compile_ in record_of(compiled).compiles for each in compile_.breaks]
    assert set(breaks) == {"data-dependent branch"}


def test_a_checkpoint_breaks():
    def f(x, m):
        return torch.utils.checkpoint.checkpoint(lambda x: x[m].sin(), x, use_reentrant=False) * 2

    compiled = compiler_core.compile(f, strict=True)
    for m in masks():
        x, y = (torch.ones(8, 3, requires_grad=True) for _ in range(2))
        want, got = f(x, m), compiled(y, m)
        want.sum().backward(), got.sum().backward()
        assert_equal([got, y.grad], [want, x.grad])
    assert {each.kind for each in record_of(compiled).compiles[0].breaks} == {"tensor value read"}


def test_a_backward_in_the_graph_breaks():
    weight = nn.Parameter(torch.ones(3))

    def f(x, m):
        loss = (x[m] * weight).sum()
        loss.backward()
        return loss

    compiled = compiler_core.compile(f, strict=True, capture_backward=True)
    x = torch.randn(8, 3)
    for m in masks()[:3]:
        weight.grad = None
        f(x, m)
        want, weight.grad = weight.grad, None
        compiled(x, m)
        torch.testing.assert_close(weight.grad, want)


def of_bytes(x, m):
    return x[m.to(torch.uint8)] * 2  # PyTorch warns of masks of bytes


def normalised(x, m):
    y = x[m]  # of one row or none PyTorch warns
    return (y - y.mean(0)) / (y.std(0) + 1e-5), torch.var_mean(y, 1)


@pytest.mark.parametrize("f", [of_bytes, normalised])
def test_warnings_come_once(f):
    compiled = compiler_core.compile(f, fullgraph=f is normalised, strict=True)
    x = torch.randn(8, 3)
    for m in masks():
        with warnings.catch_warnings(record=True) as want:
            warnings.simplefilter("always")
            f(x, m)
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            found = compiled(x, m)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            torch.testing.assert_close(found, f(x, m), equal_nan=True)
        assert {str(w.message) for w in got} == {str(w.message) for w in want}


def set_to(x, key):
    y = x * 2
    y[key] = 1.5
    return y


@pytest.mark.parametrize("backend", ["eager", "cpp"])
@pytest.mark.parametrize("key", [lambda m: m, lambda m: (m, 0), lambda m: (0, m), lambda m: (m, None)])
def test_a_mask_without_dimensions(key, backend):
    """Its value decides the size of what it picks, which is 0 or 1: the graph breaks there."""

    def f(x, m):
        m = m.any()
        y = x[key(m)] * 2
        return y, y.shape, y * y.shape[0], set_to(x, key(m))

    compiled = compiler_core.compile(f, backend=backend, strict=True)
    for m in [*masks(), *masks()[::-1]]:
        x = torch.randn(8, 3)
        assert_equal(torch.utils._pytree.tree_leaves(compiled(x, m)), torch.utils._pytree.tree_leaves(f(x, m)))
    assert {each.reason for compile_ in record_of(compiled).compiles for each in compile_.breaks} == {
        "tensor value read"
    }


# ---------------------------------------------------------------- functions, one by one

FUNCTIONS = {
    "masked_select": lambda x, m, n, v: torch.masked_select(x, m[:, None]),
    "nonzero": lambda x, m, n, v: x.gt(0).nonzero(),
    "nonzero_tuple": lambda x, m, n, v: x.gt(0).nonzero(as_tuple=True),
    "argwhere": lambda x, m, n, v: torch.argwhere(x > 0),
    "where1": lambda x, m, n, v: torch.where(x > 0),
    "unique_dim": lambda x, m, n, v: torch.unique(m[:, None].int().expand(-1, 2), dim=0),
    "unique_method": lambda x, m, n, v: m.int().unique(return_counts=True),
    "unique_consecutive": lambda x, m, n, v: torch.unique_consecutive(m.int(), return_inverse=True, return_counts=True),
    "repeat_interleave": lambda x, m, n, v: x.repeat_interleave(m.int(), 0),
    "repeat_interleave1": lambda x, m, n, v: torch.repeat_interleave(m.int() + 1),
    "bincount_w": lambda x, m, n, v: torch.bincount(m.int(), weights=x[:, 0]),
    "mask_col": lambda x, m, n, v: x[m, 1],
    "mask_2": lambda x, m, n, v: x[:, x[0] > 0],
    "mask_two": lambda x, m, n, v: x[m][:, x[0] > 0],
    "mask_nd": lambda x, m, n, v: x[x > 0],
    "index_put": lambda x, m, n, v: x.index_put((m,), torch.tensor(1.0)),
    "index_put_acc": lambda x, m, n, v: x.index_put((m.nonzero()[:, 0],), torch.ones(3), accumulate=True),
    "setitem": lambda x, m, n, v: (x.__setitem__(m, 5.0), x)[1],
    "iadd": lambda x, m, n, v: (x.__setitem__(m, x[m] + 1), x)[1],
    "masked_scatter": lambda x, m, n, v: x.masked_scatter(m[:, None], torch.arange(24.0)),
    "arange": lambda x, m, n, v: torch.arange(int(n)),
    "arange2": lambda x, m, n, v: torch.arange(1, n + 1),
    "arange3": lambda x, m, n, v: torch.arange(n),
    "zeros": lambda x, m, n, v: torch.zeros(int(n), 2),
    "ones": lambda x, m, n, v: torch.ones((n.item(), 2)),
    "full": lambda x, m, n, v: torch.full((int(n),), 3.0),
    "empty": lambda x, m, n, v: torch.empty(int(n), 2).fill_(1),
    "rand": lambda x, m, n, v: torch.rand(int(n)),
    "randn": lambda x, m, n, v: torch.randn(2, int(n)),
    "randint": lambda x, m, n, v: torch.randint(0, 9, (int(n),)),
    "eye": lambda x, m, n, v: torch.eye(int(n)),
    "new_zeros": lambda x, m, n, v: x.new_zeros(int(n)),
    "randperm": lambda x, m, n, v: torch.randperm(int(n)),
    "slice": lambda x, m, n, v: x[: int(n)],
    "slice_t": lambda x, m, n, v: x[:n],
    "slice_from": lambda x, m, n, v: x[n:],
    "slice_last": lambda x, m, n, v: x[-int(n) :],
    "slice_ab": lambda x, m, n, v: x[1 : int(n)],
    "slice_ab2": lambda x, m, n, v: x[int(n) - 1 : int(n) + 2],
    "narrow": lambda x, m, n, v: x.narrow(0, 0, int(n)),
    "select": lambda x, m, n, v: x[int(n) - 1],
    "select_t": lambda x, m, n, v: x[n - 1],
    "expand": lambda x, m, n, v: x[None].expand(int(n), -1, -1),
    "repeat": lambda x, m, n, v: x.repeat(int(n), 1),
    "tile": lambda x, m, n, v: x.tile(int(n), 1),
    "view": lambda x, m, n, v: x[:6].view(-1, int(m[:1].sum()) + 1),
    "split": lambda x, m, n, v: torch.split(x, [int(n), 8 - int(n)]),
    "pad": lambda x, m, n, v: F.pad(x, (0, int(n))),
    "topk": lambda x, m, n, v: x.flatten().topk(int(n)),
    "kthvalue": lambda x, m, n, v: x.flatten().kthvalue(int(n)),
    "multinomial": lambda x, m, n, v: torch.multinomial(x.abs().flatten() + 1, int(n)),
    "roll": lambda x, m, n, v: x.roll(int(n), 0),
    "as_strided": lambda x, m, n, v: x.as_strided((int(n), 2), (3, 1)),
    "cat": lambda x, m, n, v: torch.cat([x[m], x[~m], x[:n]]),
    "stack": lambda x, m, n, v: torch.stack([x[m], x[m] + 1]),
    "embedding_bag": lambda x, m, n, v: F.embedding_bag(m.nonzero().flatten(), x, torch.tensor([0]), mode="sum"),
    "embedding": lambda x, m, n, v: F.embedding(m.nonzero().flatten(), x),
    "softmax": lambda x, m, n, v: x[m].softmax(0),
    "log_softmax": lambda x, m, n, v: x[m].log_softmax(-1),
    "cross_entropy": lambda x, m, n, v: F.cross_entropy(x[m], m.long()[m]),
    "nll": lambda x, m, n, v: F.nll_loss(x, m.long().masked_fill(~m, -100)),
    "mse": lambda x, m, n, v: F.mse_loss(x[m], x[m] * 2),
    "smooth": lambda x, m, n, v: F.smooth_l1_loss(x[m], x[m] * 2, reduction="sum"),
    "bce": lambda x, m, n, v: F.binary_cross_entropy_with_logits(x[m], x[m].sigmoid()),
    "kl": lambda x, m, n, v: F.kl_div(x[m].log_softmax(-1), x[m].softmax(-1), reduction="batchmean"),
    "cosine": lambda x, m, n, v: F.cosine_similarity(x[m], x[m] + 1),
    "linear": lambda x, m, n, v: F.linear(x[m], torch.ones(4, 3)),
    "bmm": lambda x, m, n, v: torch.bmm(x[m][:, None], x[m][..., None]),
    "einsum": lambda x, m, n, v: torch.einsum("ij,kj->ik", x[m], x),
    "sdpa": lambda x, m, n, v: F.scaled_dot_product_attention(x[m][None], x[None], x[None]),
    "layer_norm": lambda x, m, n, v: F.layer_norm(x[m], (3,)),
    "batch_norm": lambda x, m, n, v: F.batch_norm(torch.cat([x, x[m]]), None, None, training=True),
    "conv1d": lambda x, m, n, v: F.conv1d(torch.cat([x, x[m]])[:, None], torch.ones(2, 1, 2)),
    "max": lambda x, m, n, v: torch.cat([x, x[m]]).max(0),
    "sort": lambda x, m, n, v: x[m].sort(0, descending=True),
    "cumsum": lambda x, m, n, v: x[m].cumsum(0),
    "diff": lambda x, m, n, v: torch.cat([x, x[m]]).diff(dim=0),
    "mean": lambda x, m, n, v: x[m].mean(0),
    "median": lambda x, m, n, v: torch.cat([x, x[m]]).median(0),
    "norm": lambda x, m, n, v: x[m].norm(dim=0),
    "cdist": lambda x, m, n, v: torch.cdist(x[m], x),
    "outer": lambda x, m, n, v: torch.outer(x[m][:, 0], x[:, 1]),
    "meshgrid": lambda x, m, n, v: torch.meshgrid(torch.arange(int(n)), torch.arange(3), indexing="ij"),
    "cartesian": lambda x, m, n, v: torch.cartesian_prod(m.nonzero().flatten(), torch.arange(2)),
    "scatter": lambda x, m, n, v: torch.zeros(8).scatter_add(0, m.nonzero().flatten(), x[m][:, 0]),
    "index_add": lambda x, m, n, v: torch.zeros(8, 3).index_add(0, m.nonzero().flatten(), x[m]),
    "index_copy": lambda x, m, n, v: x.index_copy(0, m.nonzero().flatten(), x[m] * 2),
    "index_select": lambda x, m, n, v: x.index_select(0, m.nonzero().flatten()),
    "gather": lambda x, m, n, v: x.gather(0, m.nonzero().expand(-1, 3)),
    "take": lambda x, m, n, v: x.take(m.nonzero()),
    "searchsorted": lambda x, m, n, v: torch.searchsorted(torch.arange(8), m.nonzero()),
    "isin": lambda x, m, n, v: torch.isin(torch.arange(8), m.nonzero()),
    "dropout": lambda x, m, n, v: F.dropout(x[m], 0.5),
    "gelu": lambda x, m, n, v: F.gelu(x[m]),
    "where": lambda x, m, n, v: torch.where(x[m] > 0, x[m], 0.0),
    "full_like": lambda x, m, n, v: torch.full_like(x, v.item()),
    "clamp": lambda x, m, n, v: x.clamp(-v.item(), v.item()),
    "alpha": lambda x, m, n, v: x.add(x, alpha=v.item()),
    "lerp": lambda x, m, n, v: torch.lerp(x, x + 1, v.item()),
    "leaky": lambda x, m, n, v: F.leaky_relu(x, v.item()),
    "fill": lambda x, m, n, v: x.masked_fill(m[:, None], v.item()),
    "fill_": lambda x, m, n, v: x.fill_(v.item()),
    "mul": lambda x, m, n, v: x * v.item() / n.item(),
    "rdiv": lambda x, m, n, v: 1 / (x + v.item()),
    "zip": lambda x, m, n, v: [a * b for a, b in zip(x, n[None].tolist())],
    "size_text": lambda x, m, n, v: f"{x[m].shape}",
    "numel": lambda x, m, n, v: x[m].numel() * 2 - 1,
    "len": lambda x, m, n, v: len(x[m]),
    "min": lambda x, m, n, v: x[: min(int(n), 4)],
    "max_int": lambda x, m, n, v: torch.zeros(max(x[m].shape[0], 2)),
    "floordiv": lambda x, m, n, v: x[: int(n) // 2],
    "mod": lambda x, m, n, v: x[: int(n) % 3],
    "unbind": lambda x, m, n, v: x[m].t().unbind(0),
    "flatten": lambda x, m, n, v: x[m].flatten(),
    "permute": lambda x, m, n, v: x[m].permute(1, 0).contiguous(),
    "squeeze": lambda x, m, n, v: x[m].unsqueeze(1).squeeze(1),
    "squeeze_all": lambda x, m, n, v: m.nonzero().squeeze(),
    "flip": lambda x, m, n, v: x[m].flip(0),
    "triu": lambda x, m, n, v: torch.triu(x[m] @ x[m].t()),
    "any": lambda x, m, n, v: x[m].any(),
    "all": lambda x, m, n, v: (x[m] > 0).all(0),
    "amax": lambda x, m, n, v: torch.cat([x, x[m]]).amax(0),
    "logsumexp": lambda x, m, n, v: torch.cat([x, x[m]]).logsumexp(0),
    "zeros_like": lambda x, m, n, v: torch.zeros_like(x[m]),
    "randn_like": lambda x, m, n, v: torch.randn_like(x[m]),
    "new_tensor": lambda x, m, n, v: x[m].new_ones(x[m].shape),
    "clone_": lambda x, m, n, v: x[m].clone().add_(1).mul_(2),
    "to": lambda x, m, n, v: x[m].double().to(torch.bfloat16),
    "view_as": lambda x, m, n, v: x[m].view_as(x[m] + 1),
    "reshape_as": lambda x, m, n, v: x[m].reshape(-1, 3, 1),
    "linalg_inv": lambda x, m, n, v: torch.linalg.inv(x[:3] + 5 * torch.eye(3)),
    "solve": lambda x, m, n, v: torch.linalg.solve(x[:3] + 5 * torch.eye(3), x.t()),
    "cholesky": lambda x, m, n, v: torch.linalg.cholesky(x.t() @ x + torch.eye(3)),
    "cholesky_mask": lambda x, m, n, v: torch.linalg.cholesky(x[m].t() @ x[m] + torch.eye(3)),
    "det": lambda x, m, n, v: torch.linalg.det(x[:3]),
    "svd": lambda x, m, n, v: torch.linalg.svdvals(x),
    "eigh": lambda x, m, n, v: torch.linalg.eigvalsh(x.t() @ x),
    "normal": lambda x, m, n, v: torch.normal(x[m], 1.0),
    "bernoulli": lambda x, m, n, v: torch.bernoulli(x[m].sigmoid()),
    "histc": lambda x, m, n, v: torch.histc(x, 4),
    "bucketize": lambda x, m, n, v: torch.bucketize(x[m], torch.arange(3.0)),
    "index_row": lambda x, m, n, v: x[n - 8, :2] * 2,
    "index_column": lambda x, m, n, v: x[..., n % 3],
    "index_element": lambda x, m, n, v: x[n - 8, n.int() % 3],
    "index_new_dim": lambda x, m, n, v: x[n - 8, None, 1:],
    "index_argmax": lambda x, m, n, v: x[x.sum(1).argmax(), 1:],
    "index_write": lambda x, m, n, v: set_to(x, (n - 8, slice(1, None))),
    "check": lambda x, m, n, v: (torch._check(n.item() <= 8), x[: n.item()])[1],
}
"""By name: a function of a tensor of 8 rows, a mask of rows, their number, and a float in a tensor."""


@pytest.mark.parametrize("name", sample(FUNCTIONS, 6))
def test_functions(name):
    """In one graph, which is captured once, its values, errors and random numbers are eager's."""
    function = FUNCTIONS[name]
    compiled = compiler_core.compile(function, backend="eager", fullgraph=True, strict=True)
    for seed, m in enumerate(masks()):
        torch.manual_seed(seed)
        x, v = torch.randn(8, 3), torch.tensor(0.25 * (seed + 1))
        found = []
        for call in (function, compiled):
            torch.manual_seed(7)
            y = x.clone()
            try:
                out = call(y, m, m.sum(), v)
            except (RuntimeError, IndexError) as error:
                found.append([type(error), y])
            else:
                found.append([*torch.utils._pytree.tree_leaves(out), y, torch.get_rng_state()])
        assert_equal(*reversed(found))
    assert len(record_of(compiled).compiles) == 1
