# mypy: ignore-errors
# ruff: noqa
"""Programs over nn.Module: containers, parameters and buffers, attributes, train and eval, and methods that only return facts.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def on(make, *shape):
    """Fresh arguments: a module of `make` and a tensor."""
    return lambda: (make(), torch.randn(*shape))


# ---------------------------------------------------------------- containers


@one_graph(grad=True, inputs=on(lambda: nn.ModuleList([nn.Linear(4, 4) for _ in range(4)]), 2, 4))
def test_module_list_indexing(layers, x):
    x = layers[0](x) + layers[-1](x)
    for layer in layers[1:3]:
        x = layer(x)
    for i in range(len(layers)):
        x = layers[i](x)
    return x, len(layers[::2]), layers[2] in layers


@one_graph(inputs=on(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Tanh()]), 2, 4))
def test_module_list_enumerate_zip_reversed(layers, x):
    for i, layer in enumerate(layers):
        x = layer(x) + i
    for a, b in zip(layers, list(layers)):
        x = a(b(x))
    for layer in reversed(layers):
        x = layer(x)
    return x


@one_graph(inputs=on(lambda: nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()}), 2, 4))
def test_module_dict(d, x):
    for name in d:
        x = d[name](x)
    for name, layer in d.items():
        x = layer(x) + len(name)
    for layer in d.values():
        x = layer(x)
    return x, list(d.keys()), len(d), "a" in d, "z" in d


@one_graph(inputs=on(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), 2, 4))
def test_sequential_pieces(seq, x):
    y = seq[0](x) + seq[-1](x)
    y = seq[:2](y)
    for layer in seq:
        y = layer(y)
    return y, len(seq)


@one_graph(grad=True, inputs=on(lambda: nn.ParameterList([torch.randn(4), torch.randn(4)]), 2, 4))
def test_parameter_list(params, x):
    for p in params:
        x = x * p
    return x + params[0] + params[-1], len(params), sum(p.numel() for p in params)


# ---------------------------------------------------------------- parameters and buffers


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x):
        self.total += x.sum(0)
        self.scratch.copy_(x[0])
        return x + self.total, self.nothing is None


@one_graph(inputs=on(Counter, 2, 4))
def test_buffers_changed_in_place(net, x):
    return net(x), net(x)


@one_graph(inputs=on(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), 2, 4))
def test_get_parameter_and_submodule(net, x):
    return net.get_submodule("0")(x) + net.get_parameter("0.bias") + net.get_buffer("1.running_mean")


@same_as_eager(graphs=2, breaks=["new parameter"], inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_parameter_replaced_inside(fc, x):
    y = fc(x)
    fc.weight = nn.Parameter(torch.ones(4, 4))
    return y + fc(x)


@same_as_eager(graphs=1, breaks=[], inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_register_inside(fc, x):
    fc.register_buffer("extra", x.clone())
    fc.register_parameter("more", None)
    fc.add_module("sub", None)
    return fc(x) + fc.extra, sorted(fc._buffers), sorted(fc._parameters), sorted(fc._modules)


@same_as_eager(graphs=2, breaks=["requires_grad"], inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_frozen_inside(fc, x):
    y = fc(x)
    fc.requires_grad_(False)
    return y, fc(x), [p.requires_grad for p in fc.parameters()]


@same_as_eager(
    graphs=1,
    breaks=[],
    inputs=on(lambda: nn.Linear(4, 4), 2, 4),
)
def test_functional_module_made_in_the_frame(fc, x):
    return nn.GELU()(fc(x)), nn.CrossEntropyLoss()(x, torch.tensor([0, 1])), nn.MSELoss(reduction="sum")(x, x + 1)


# ---------------------------------------------------------------- attributes of the module


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.calls = 0
        self.seen = []
        self.cache = {}
        self.last = None
        self.settings = {"scale": 2.0}

    def forward(self, x):
        y = self.fc(x) * self.settings["scale"]
        self.seen.append(y.shape[0])
        self.cache["y"] = y
        self.last = y
        return y


class WithProperty(nn.Module):
    scale = 3

    def __init__(self):
        super().__init__()
        self._gain = 2.0
        self.fc = nn.Linear(4, 4)

    @property
    def gain(self):
        return self._gain * self.scale

    @gain.setter
    def gain(self, value):
        self._gain = value

    @staticmethod
    def shift(x):
        return x + 1

    @classmethod
    def twice(cls, x):
        return x * cls.scale

    def forward(self, x):
        self.gain = 0.5
        return self.twice(self.shift(self.fc(x))) * self.gain


@one_graph(inputs=on(WithProperty, 2, 4))
def test_properties_static_and_class_methods(net, x):
    return net(x), net.gain


class Delegating(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) * self.out_features + self.weight.sum()


@one_graph(inputs=on(Delegating, 2, 4))
def test_getattr_of_its_own(net, x):
    return net(x)


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def __setattr__(self, name, value):
        if name == "note":
            value = value * 2
        super().__setattr__(name, value)

    def forward(self, x):
        self.note = 3
        return self.fc(x) + self.note


@one_graph(inputs=on(Noting, 2, 4))
def test_setattr_of_its_own(net, x):
    return net(x), net.note


@one_graph(inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_asked_about_a_module(fc, x):
    facts = isinstance(fc, nn.Module), type(fc).__name__, fc.training, hasattr(fc, "bias"), hasattr(fc, "nothing")
    more = getattr(fc, "nothing", 3), fc.in_features, callable(fc), fc.__class__ is nn.Linear, fc is not None
    return fc(x), facts, more, bool(fc), fc == fc


@one_graph(inputs=on(Stateful, 2, 4))
def test_attributes_set_and_deleted(net, x):
    net.extra = 3
    setattr(net, "other", x + 1)
    y = net.extra + net.other
    del net.extra
    return y, hasattr(net, "extra"), net.other


# ---------------------------------------------------------------- parametrisation, lazy modules, what PyTorch has


def normed_by_hook():
    torch.utils.hooks.RemovableHandle.next_id = 0  # the key of the hook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return nn.utils.weight_norm(nn.Linear(4, 4))


@one_graph(inputs=on(normed_by_hook, 2, 4))
def test_weight_norm_by_hook(fc, x):
    return fc(x)


@same_as_eager(breaks=["skipped function"], inputs=on(lambda: nn.LazyLinear(3), 2, 4))
def test_lazy_linear(fc, x):
    return fc(x), type(fc).__name__


def with_biases():
    heads = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    bias = torch.randn(1, 3, 5, 5)
    bias[:, :, 1] = -torch.inf  # this row sees nothing
    return *heads, bias.requires_grad_()


@one_graph(grad=True, inputs=with_biases, backend="cpp", tolerance=1e-5)
def test_attention_with_biases_that_are_trained(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), torch._safe_softmax(bias, 2)


@one_graph(inputs=on(lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval(), 2, 3, 8))
def test_transformer(net, x):
    return net(x, x)


@one_graph(grad=True, inputs=on(lambda: nn.GRUCell(4, 3), 2, 4))
def test_recurrent_cell_in_a_loop(cell, x):
    h = None
    for _ in range(3):
        h = cell(x, h)
    return h


@same_as_eager(
    graphs=1, breaks=[], grad=True, inputs=lambda: (nn.GaussianNLLLoss(), torch.randn(3, 4), torch.randn(3, 4))
)
def test_gaussian_loss(loss, x, y):
    return loss(x, y, x.exp())


def small_net():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4)


@one_graph(inputs=small_net, grad=True)
def test_state_dict(net, x):
    state, kept = net.state_dict(), net.state_dict(prefix="net.", keep_vars=True)
    names = [name for name, _ in net.named_parameters()] + [name for name, _ in net.named_buffers()]
    versions = state._metadata["1"], hasattr(state, "_nope"), list(kept._metadata), names
    return {k: v * 2 for k, v in state.items()}, kept["net.0.weight"].sum() * x, state, versions, net(x)
