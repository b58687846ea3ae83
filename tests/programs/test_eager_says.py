# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Programs of which eager PyTorch warns, or which it refuses: compiled, they say the same in each call."""

import os
import textwrap
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.api.compiled import record_of
from compiler_core.support.eager_warnings import warn_always
from compiler_core.tools.testing import check, difference
from tests import warm_python
from tests.sampling import pairs

BACKENDS = ("eager", "aot_eager", "cpp")


def square():
    return (torch.arange(9.0).reshape(3, 3),)


def written(write):
    """A program that writes to a copy of its argument."""

    def program(x):
        y = x * 1
        write(y)
        return y

    return program


WARN = {
    "std of one": lambda x: x[0, :1].std() + 1,
    "var of one": lambda x: x[:, :1].var(1).sum(),
    "var_mean of one": lambda x: torch.var_mean(x[:, :1], 1),
    "std of few": lambda x: torch.std_mean(x, 1, correction=3),
    "std of none": lambda x: x[:, :0].std(1) + 1,
    "std of none of none": lambda x: x[:0].std(1) + 1,
    "variances of complex": lambda x: torch.complex(x, x)[:, :1].var(1),
    "sizes of a loss": lambda x: F.mse_loss(x, x[:1]) + F.l1_loss(x, x[:1]),
    "twice": lambda x: F.softmax(x) + F.softmax(x * 2),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1])[0] * 2,
    "T": lambda x: x[None].T * 2,
    "upsample": lambda x: F.upsample(x[None, None], scale_factor=2),
    "cross": lambda x: torch.cross(x, x + 1),
    "range": lambda x: torch.range(0, 3) + x[0, 0],
    "qr": lambda x: torch.qr(x + 3 * torch.eye(3))[1],
    "grid_sample": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
    "kl_div": lambda x: F.kl_div(x, x.softmax(-1)),
    "dropout2d": lambda x: F.dropout2d(x, 0.5) * 2,
    "complex to real": lambda x: torch.complex(x, x).to(torch.float32) + 1,
    "no complex number to real": lambda x: (
        torch.complex(x, x)[:0].float() + 1,
        torch.zeros(0).copy_(torch.complex(x, x)[:0, 0]),
    ),
    "complex into real": lambda x: torch.zeros(3, 3).copy_(torch.complex(x, x + 1)),
    "conjugate to real": lambda x: torch.complex(x, x).conj().double() * 2,
    "searchsorted": lambda x: torch.searchsorted(x[0].sort()[0], x.t()),
    "ldexp of fewer": lambda x: torch.ldexp(x[0, 0], torch.arange(4)) + x[0, 0],
    "masked_fill_ of expanded": lambda x: (x[0] * 1).expand(3, 3).masked_fill_(x > 0, 1.0),
    "index_fill_ of expanded": lambda x: (x[0] * 1).expand(3, 3).index_fill_(0, torch.tensor([0]), 1.0),
    "deprecated kernel": lambda x: torch.cholesky(torch.eye(3) + x * 0),
    "kernel in beta": lambda x: x.index_reduce(0, torch.tensor([0, 0]), x[:2], "prod"),
}


@pytest.mark.parametrize(("name", "backend"), pairs(WARN, BACKENDS, 3))
def test_each_call_warns(name, backend):
    for grad in {"eager": (False,), "aot_eager": (False, True), "cpp": (True,)}[backend]:
        check(WARN[name], [square, square], grad=grad, backend=backend, tolerance=1e-5)


def variance(x):
    return x[0, :1].var()


def ignores(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = variance(x)
    return y + 1


def changes_nothing(x):
    with warnings.catch_warnings(record=True) as caught:
        with warnings.catch_warnings():
            y = x.sin()
    with warnings.catch_warnings(action="default"):
        return y.cos() + len(caught)


def records(x):
    with warnings.catch_warnings(record=True) as caught:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            y = x.sin()
            warnings.warn("recorded")
            y = y.cos()
        warnings.simplefilter("ignore")
        warnings.warn("not recorded")
        y = variance(y)
    return y + len(caught)


def warns_around(x):
    y = variance(x)
    with warnings.catch_warnings():
        y = y + x
    return y + variance(x)


def warns_inside(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "std.*", category=UserWarning)
        y = variance(x)
        warnings.warn("inside")
        y = y + variance(x)
    warnings.warn("after")
    return y + variance(x)


def breaks_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter(action="ignore")
        for step in range(2):
            x = x + variance(x)
            print(step)
            warnings.warn("not shown")
    return x + variance(x)


def leaves_by_an_exception(x):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x + variance(x)
            raise KeyError
    except KeyError:
        return y + variance(x)


def one_in_another(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            y = variance(x)
        y = y + variance(x)
    return y + variance(x)


def makes_errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return variance(x)
        except UserWarning:
            return x


def has_wrong_filter(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", lineno=-1)
        return x + 1


CATCH = {ignores: 1, changes_nothing: 1, records: 4, leaves_by_an_exception: 2, warns_around: 2, breaks_inside: 2}
"""Programs that change the filters, and how many graphs they have at most, where they have few."""
CATCH |= dict.fromkeys((warns_inside, one_in_another, makes_errors, has_wrong_filter), 9)


def shown(f, x):
    """The result of three calls, and the warnings that Python shows in each if it shows each once at a line."""
    found, before = [], warnings.filters[:]
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("default")
        for _ in range(3):
            try:
                found.append(f(x).tolist())
            except AssertionError as error:
                found.append(str(error))
            found.append([(str(m.message), m.lineno) for m in messages])
            messages.clear()
    assert warnings.filters == before
    return repr(found)  # nan is nan


@pytest.mark.parametrize("program", CATCH)
@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_filters_hold_in_their_block(program, backend):
    compiled = compiler_core.compile(program, backend=backend)
    assert shown(compiled, *square()) == shown(program, *square())
    assert sum(len(c.captured_graphs) for f in record_of(compiled).frames for c in f.compiles) <= CATCH[program]


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_a_kernel_of_pytorch_repeats_no_warning(backend, capfd):
    with warn_always():
        for grad in (False, True):
            check(WARN["kernel in beta"], [square, square], grad=grad, backend=backend)
    assert not capfd.readouterr().err


ONCE = """
    import warnings
    import torch
    import compiler_core

    def f(x):
        return torch.meshgrid(x, x)[0] * 2  # here

    x = torch.arange(3.0)
    for backend in (None, "aot_eager"):
        compiled = compiler_core.compile(f, backend=backend)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                compiled(x)
        print([(w.filename, open(w.filename).readlines()[w.lineno - 1].strip()) for w in said])
"""


WITH_THIS_CODE = os.environ | {"PYTHONPATH": str(Path(compiler_core.__file__).parents[1])}


def test_warnings_that_pytorch_issues_once_are_issued_once(tmp_path):
    file = tmp_path / "once.py"
    file.write_text(textwrap.dedent(ONCE))
    ran = warm_python.run([str(file)], env=WITH_THIS_CODE)
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.count("meshgrid") <= 1 and len(eval(first)) == 1  # from PyTorch's own Python
    assert eval(second) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_users_filters_apply(backend):
    def f(x):
        return x[:1].std()

    compiled = compiler_core.compile(f, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.ones(3))
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("default")
        for _ in range(3):
            compiled(torch.ones(3))
    assert [(w.filename, w.lineno) for w in messages] == [(__file__, f.__code__.co_firstlineno + 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            compiled(torch.ones(3))


# ---------------------------------------------------------------- writes that overlap


OVERLAP = {
    "expanded": lambda x: x[0].expand(3, 4).add_(1),
    "expanded within": lambda x: (x[0] * 1).expand(3, 3).mul_(2),
    "expanded is filled": lambda x: x[0].expand(3, 3).fill_(2.0),
    "expanded is zeroed": lambda x: (x[0] * 1).expand(3, 3).zero_(),
    "expanded is drawn into": lambda x: x[0].expand(3, 3).normal_(),
    "shifted copy": written(lambda y: y[1:].copy_(y[:-1])),
    "shifted sum": written(lambda y: y[1:].add_(y[:-1])),
    "shifted item": written(lambda y: y.__setitem__(slice(1, None), y[:-1])),
    "shifted out": written(lambda y: torch.add(y[:-1], 1, out=y[1:])),
    "transposed": written(lambda y: y.copy_(y.t())),
    "of an argument": lambda x: (x.mul_(2), x[1:].add_(x[:-1])),
    "scatter of itself": lambda x: x.scatter_(0, torch.zeros(3, 3, dtype=torch.int64), x),
    "cumsum of itself": lambda x: torch.cumsum(x, 0, out=x),
    "itself": lambda x: x.add_(x),
    "itself as a view": written(lambda y: y[0].add_(y[0])),
    "part by part": written(lambda y: y[0].copy_(y[1]).mul_(y[2])),
}


@pytest.mark.parametrize("name", OVERLAP)
def test_overlapping_writes(name):
    check(OVERLAP[name], [square, square], backend="aot_eager")


def of_one_memory(first, second):
    def make():
        memory = torch.arange(12.0)
        return memory[first], memory[second]

    return make


def writes_both(x, y):
    x.mul_(2)
    y.add_(x)
    return x + y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore::compiler_core.RefusalWarning")
def test_arguments_that_overlap(backend):
    apart = lambda: (torch.arange(6.0), torch.arange(6.0))
    overlapping = of_one_memory(slice(0, 6), slice(3, 9))
    check(writes_both, [apart, overlapping, apart, of_one_memory(slice(0, 6), slice(0, 6))], backend=backend)
    check(writes_both, [overlapping, apart, overlapping, of_one_memory(slice(0, 6), slice(6, 12))], backend=backend)


# ---------------------------------------------------------------- out= that changes sizes


def adds_into(a, b, out):
    torch.add(a, b, out=out)
    return out * 2


def adds_into_row(a, b, out):
    torch.add(a[0], 1, out=out[0])
    return out


def adds_into_its_own(a, b, out):
    tensor = torch.zeros(2)
    torch.add(a, b, out=tensor)
    return tensor


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [adds_into, adds_into_row, adds_into_its_own])
def test_out_of_another_size(program, backend):
    def of(*size):
        return lambda: (torch.ones(3, 4), torch.ones(4, 3).t(), torch.zeros(*size))

    check(program, [of(2), of(3, 4), of(20), of(0)], backend=backend)
    check(program, [of(0), of(2), of(3, 4)], backend=backend)


def test_out_of_another_size_that_has_a_view():
    def program(a, out):
        looked = out.view(-1)
        torch.add(a, 1, out=out)
        return looked + 1, out * 2

    compiled = compiler_core.compile(program, backend="aot_eager")
    with pytest.warns(compiler_core.RefusalWarning, match="has views"):
        got = compiled(torch.ones(3), torch.zeros(0))
    assert not difference(program(torch.ones(3), torch.zeros(0)), got)


# ---------------------------------------------------------------- anomalies


def root(x):
    y = x.sqrt()
    return (y * 0).sum()


def root_after_a_break(x):
    if x.sum() > -1:
        x = x * 1
    return root(x)


def result_and_warnings(f, value, forward, backward):
    """What a pass leaves and says, with anomaly detection on in its forward and backward or not."""
    x = torch.full((3,), value, requires_grad=True)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        try:
            with torch.autograd.set_detect_anomaly(forward):
                y = f(x)
            with torch.autograd.set_detect_anomaly(backward):
                y.backward()
        except RuntimeError as error:
            return str(error), [_place(str(m.message)) for m in messages][:1]
    return x.grad.tolist() if value else x.grad.isnan().all(), [_place(str(m.message)) for m in messages]


def _place(text):
    """What a warning says and the last line that it names: the forward's."""
    return text.splitlines()[0], [line for line in text.splitlines() if "File" in line][-1:]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [root, root_after_a_break])
def test_anomalies_are_eagers(program, backend):
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, backend=backend)
        for forward, backward in [(True, True), (False, False), (False, True), (True, False), (True, True)]:
            for value in (0.0, 1.0):
                want = result_and_warnings(program, value, forward, backward)
                assert result_and_warnings(compiled, value, forward, backward) == want
    assert {c.outcome for c in record.compiles} == {"compiled"}
    assert not any(c.failures for c in record.compiles)
