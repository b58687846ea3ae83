# mypy: ignore-errors
# ruff: noqa
"""Programs with ``__torch_function__``: classes derived from Tensor, objects, torch function modes, devices as contexts."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from compiler_core.tools.testing import Expected, break_kinds, check, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


class Labelled(torch.Tensor):
    """A label goes from arguments to results."""

    def __new__(cls, data, label="none"):
        tensor = torch.as_tensor(data).as_subclass(cls)
        tensor.label = label
        return tensor

    def __init__(self, data, label="none"):
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, Labelled):
            result.label = next((a.label for a in args if isinstance(a, Labelled) and hasattr(a, "label")), "none")
        return result

    @property
    def title(self):
        return self.label.upper()

    def doubled(self):
        return self * 2


class Unwrapping(torch.Tensor):
    """As torchvision's: results are plain, but for some functions; properties are read as of plain tensors."""

    KEPT = {torch.Tensor.clone, torch.Tensor.to}

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if not all(issubclass(cls, each) for each in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs or {})
        if func in cls.KEPT:
            return result.as_subclass(cls)
        return result.as_subclass(torch.Tensor) if isinstance(result, cls) else result

    @property
    def shape(self):
        with torch._C.DisableTorchFunctionSubclass():
            return super().shape


class Replacing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.mean, torch.Tensor.mean, F.gelu, torch.Tensor.ndim.__get__):
            return args[0].as_subclass(torch.Tensor).sum() * 100
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Scaled:
    """A number for functions of PyTorch, with its own addition."""

    HANDLED = {}

    def __init__(self, number):
        self.number = number

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.HANDLED and all(issubclass(each, cls) for each in types):
            return cls.HANDLED[func](*args)
        return func(*[a.number if isinstance(a, Scaled) else a for a in args], **(kwargs or {}))


Scaled.HANDLED[torch.add] = lambda a, b: Scaled(a.number + b.number)


class SinToCos(TorchFunctionMode):
    def __init__(self):
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {})) if func is not torch.sin else torch.cos(*args)


def labelled(*plain):
    return lambda: (Labelled(torch.randn(3, 4), "a"), *(torch.randn(shape) for shape in plain))


@one_graph(inputs=labelled((3, 4)))
def test_labels_go_through_operations(x, y):
    a = (1 - x) * 2 + y
    b = torch.cat([a, y]).sum(0)
    c = F.relu(x.doubled())[0, 1:] ** 2
    return a, b, c, c.label, x.title, type(b), len(x), x.shape[1] * x.size(0), x.T, isinstance(x, Labelled), [*x]


@one_graph(inputs=lambda: (Labelled(torch.randn(3, 4), "a").requires_grad_(), torch.randn(3, 4)), grad=True)
def test_gradients(x, y):
    return (x * x.sin() + y).sum()


@one_graph(inputs=labelled())
def test_writes_to_a_labelled_tensor(x):
    alias = x
    x.add_(1)
    x[0] = 5
    x.label = "b"
    made = Labelled(torch.zeros(2), "made")
    made.label += "!"
    return x + 1, alias is x, made, made.as_subclass(torch.Tensor)


@one_graph(
    inputs=lambda: (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
        torch.randn(2, 1, 5, 5).as_subclass(Replacing),
    )
)
def test_modules_and_replaced_functions(net, x):
    return net(x), torch.mean(x) + x.mean(), x.exp(), F.gelu(x) + x.ndim, x.dtype


@one_graph(inputs=lambda: (torch.randn(3, 4).as_subclass(Unwrapping),))
def test_results_are_plain_but_for_some_functions(x):
    return x.flip(0), x.clone(), x.to(torch.float64), x.shape, torch.stack([x[0], x[1] * 2])


class OwnOperators(torch.Tensor):
    def __add__(self, other):
        return super().__add__(other) * 2 if isinstance(other, int) else NotImplemented

    def __radd__(self, other):
        return torch.Tensor.__mul__(self, other)

    def __getitem__(self, key):
        return super().__getitem__(key + 1)

    def sin(self):
        return "sin"


@one_graph(inputs=lambda: (torch.randn(3).as_subclass(OwnOperators),))
def test_operators_and_methods_of_a_class(x):
    y = x * 2
    return y + 3, 3 + y.cos(), y.sin(), torch.sin(y), torch.Tensor.__add__(y, 3), y[1], x.as_subclass(torch.Tensor) + y


@one_graph(inputs=lambda: (torch.randn(3), Scaled(2.0)))
def test_an_object_with_torch_function(x, scaled):
    return torch.mul(x, scaled) + 1, x * scaled, torch.add(scaled, Scaled(1.0)).number


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (torch.randn(3),))
def test_a_break_within_a_mode(x):
    y = torch.sin(x)
    with SinToCos():
        y = torch.sin(y)
        print("within")
        z = torch.sin(y)
    return torch.sin(z)


@one_graph(inputs=lambda: (torch.randn(3),))
def test_a_device_as_a_context(x):
    with torch.device("meta"):
        y = torch.ones(2)
        with torch.device("cpu"):
            z = torch.arange(3) + torch.zeros(3, device="cpu")
        device = torch.get_default_device()
    return x + z, y, torch.ones(2), device, torch.get_default_device()


class WithDefault(torch.Tensor):
    label = "default"


def test_an_attribute_of_the_tensor_comes_before_that_of_its_class():
    def inputs(label):
        x = torch.randn(3).as_subclass(WithDefault)
        if label:
            x.label = label
        return (x,)

    inputs = [functools.partial(inputs, label) for label in ("", "own", "", "other")]
    check(lambda x: (x + 1, x.label), inputs, Expected(breaks=[], compiles=2))


def test_sizes_of_subclasses_change():
    """Reading a size in a guard does not call ``__torch_function__``."""
    called = []

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            called.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    def program(x):
        return (x * 2).sin()

    def inputs(rows):
        with torch._C.DisableTorchFunctionSubclass():
            x = torch.randn(rows, 4).as_subclass(Counting)
        called.clear()
        return (x,)

    for backend in ("eager", "cpp"):
        sizes = [functools.partial(inputs, rows) for rows in (3, 5, 6, 7)]
        check(program, sizes, Expected(breaks=[], compiles=2), backend=backend, tolerance=1e-6)


@one_graph(inputs=lambda: (torch.randn(3, 4).requires_grad_(), torch.randn(4) > 0), grad=True)
def test_masked_reductions(x, mask):
    functions = torch.masked
    return functions.sum(x, 1, mask=mask) * functions.mean(x, 1, mask=mask) + functions.logsumexp(x, 1, mask=mask)


class OwnOffset(torch.Tensor):
    """Counts the calls of its method, and answers as it likes."""

    CALLS = []

    def storage_offset(self):
        self.CALLS.append("storage_offset")
        return 7


def last_of(size, cls=torch.Tensor):
    return lambda: [torch.randn(6)[-size:].as_subclass(cls)]


def with_own_offset():
    x = torch.randn(6)[2:]
    x.storage_offset = lambda: 7
    return [x]


@pytest.mark.parametrize("make", [last_of(4, OwnOffset), with_own_offset], ids=["class", "tensor"])
def test_own_storage_offset_is_not_the_compilers_to_call(make):
    def program(x):
        return torch.as_strided(x, (2,), (1,), 1) * 2, x.storage_offset()

    record = check(program, [make, make], changes=["OwnOffset"])
    assert set(break_kinds(record)) == {"unsupported attribute"}


@pytest.mark.parametrize("cls", [torch.Tensor, Labelled], ids=["plain", "class"])
def test_guard_on_storage_offset(cls):
    def program(x):
        return torch.as_strided(x, (2,), (1,), 1) * 2, x.storage_offset()

    inputs = [last_of(4, cls), last_of(4, cls), last_of(3, cls)]
    record = check(program, inputs, Expected(breaks=[], compiles=2))
    cause = record.compiles[1].cause
    offsets = [each for each in (cause, *cause.besides) if each.aspect == "storage offset"]
    assert [(each.subject, each.expected, each.got) for each in offsets] == [("the storage offset of x", "2", "3")]
