# mypy: ignore-errors
# ruff: noqa
"""Programs over nn.Module: containers, parameters and buffers, attributes, train and eval, and methods that only return facts.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import copy
import functools
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize

from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def on(make, *shape):
    """Fresh arguments: a module of `make` and a tensor."""
    return lambda: (make(), torch.randn(*shape))


def copies(make, *shape):
    """The same, with copies of one module: its class, or the keys of its hooks, are new in each `make`."""
    result = make()
    return lambda: (copy.deepcopy(result), torch.randn(*shape))


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


@one_graph(inputs=on(lambda: nn.Sequential(collections.OrderedDict(fc=nn.Linear(4, 4), act=nn.Tanh())), 2, 4))
def test_sequential_with_names(seq, x):
    return seq(x), seq.fc(x), [n for n, _ in seq.named_children()]


@one_graph(grad=True, inputs=on(lambda: nn.ParameterList([torch.randn(4), torch.randn(4)]), 2, 4))
def test_parameter_list(params, x):
    for p in params:
        x = x * p
    return x + params[0] + params[-1], len(params), sum(p.numel() for p in params)


@one_graph(grad=True, inputs=on(lambda: nn.ParameterDict({"a": torch.randn(4), "b": torch.randn(4)}), 2, 4))
def test_parameter_dict(params, x):
    for name, p in params.items():
        x = x * p + len(name)
    for p in params.values():
        x = x + p
    return x + params["a"], list(params.keys()), len(params), "b" in params


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleDict(
            {"l": nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])}
        )

    def forward(self, x):
        for layer in self.branches["l"]:
            x = layer(x)
        return x


@one_graph(grad=True, inputs=on(Nested, 2, 4))
def test_nested_containers(net, x):
    return net(x)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a
        self.out = nn.Linear(4, 4, bias=False)
        self.out.weight = self.a.weight

    def forward(self, x):
        return self.out(self.b(self.a(x)))


@one_graph(grad=True, inputs=on(Shared, 2, 4))
def test_shared_modules_and_tied_parameters(net, x):
    return net(x), net.a is net.b, net.out.weight is net.a.weight


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


class Moving(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


@one_graph(inputs=on(Moving, 2, 4))
def test_buffer_assigned_anew(net, x):
    return net(x), net.mean, net(x), net._buffers["mean"] is net.mean


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", None, persistent=False)

    def forward(self, x):
        if self.cache is None:
            self.cache = x.cos()
        return x + self.cache


@one_graph(inputs=on(Caching, 2, 4))
def test_buffer_that_was_none(net, x):
    return net(x) + net(x), net.cache


@one_graph(inputs=on(lambda: nn.BatchNorm1d(4), 8, 4))
def test_batch_norm_statistics(bn, x):
    y = bn(x)
    return bn(y), bn.running_mean, bn.running_var, bn.num_batches_tracked


@one_graph(inputs=on(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), 2, 4))
def test_named_parameters_buffers_modules(net, x):
    names = [n for n, _ in net.named_parameters()], [n for n, _ in net.named_buffers()]
    kinds = [(n, type(m).__name__) for n, m in net.named_modules()]
    total = sum(p.sum() for p in net.parameters()) + sum(b.sum() for b in net.buffers())
    return x + total, names, kinds, [n for n, _ in net.named_children()], len(list(net.children()))


@one_graph(inputs=on(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), 2, 4))
def test_get_parameter_and_submodule(net, x):
    return net.get_submodule("0")(x) + net.get_parameter("0.bias") + net.get_buffer("1.running_mean")


@one_graph(inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_device_and_dtype_of_parameters(fc, x):
    first = next(fc.parameters())
    return fc(x.to(first.dtype).to(first.device)), first.dtype, {p.device for p in fc.parameters()}


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


@same_as_eager(graphs=1, breaks=[], inputs=on(lambda: nn.Linear(4, 4), 2, 4))
def test_apply_and_initialise_inside(fc, x):
    def fill(m):
        if isinstance(m, nn.Linear):
            nn.init.constant_(m.weight, 0.5)

    fc.apply(fill)
    return fc(x)


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


class LinearPlus(nn.Linear):
    def forward(self, input):
        return super().forward(input) + F.linear(input, self.weight, self.bias)


@one_graph(grad=True, inputs=on(lambda: LinearPlus(4, 4), 2, 4))
def test_subclass_of_a_library_module(net, x):
    return net(x)


class WithFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = F.gelu
        self.norm = functools.partial(F.layer_norm, normalized_shape=(4,))
        self.post = lambda t: t * 2
        self.table = {"relu": torch.relu}
        self.klass = nn.Tanh

    def forward(self, x):
        return self.table["relu"](self.post(self.norm(self.act(x))))


@one_graph(inputs=on(WithFunctions, 2, 4))
def test_functions_stored_as_attributes(net, x):
    return net(x)


class OtherMethods(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(4, 2)
        self.dec = nn.Linear(2, 4)

    def encode(self, x):
        return self.enc(x).relu()

    def decode(self, z):
        return self.dec(z)

    def forward(self, x):
        return self.decode(self.encode(x))


@one_graph(inputs=on(OtherMethods, 2, 4))
def test_methods_other_than_forward(net, x):
    return net.encode(x), net(x), getattr(net, "decode")(net.encode(x))


class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def __call__(self, x):
        return super().__call__(x) + 1

    def forward(self, x):
        return self.fc(x)


@one_graph(inputs=on(Called, 2, 4))
def test_call_of_its_own(net, x):
    return net(x)


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


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def parametrised():
    fc = nn.Linear(4, 4)
    parametrize.register_parametrization(fc, "weight", Symmetric())
    return fc


@one_graph(grad=True, inputs=copies(parametrised, 2, 4))
def test_parametrised_weight(fc, x):
    return fc(x)


@one_graph(grad=True, inputs=copies(lambda: parametrizations.orthogonal(nn.Linear(4, 4)), 2, 4))
def test_orthogonal(fc, x):
    return fc(x)


def normed_by_hook():
    torch.utils.hooks.RemovableHandle.next_id = 0  # the key of the hook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return nn.utils.weight_norm(nn.Linear(4, 4))


@one_graph(inputs=on(normed_by_hook, 2, 4))
def test_weight_norm_by_hook(fc, x):
    return fc(x)


@one_graph(inputs=copies(lambda: nn.utils.spectral_norm(nn.Linear(4, 4)), 2, 4))
def test_spectral_norm_by_hook(fc, x):
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


@one_graph(grad=True, inputs=on(lambda: nn.LSTM(4, 3, batch_first=True, bidirectional=True), 2, 5, 4))
def test_lstm(net, x):
    out, (h, c) = net(x)
    return out, h, c


@one_graph(grad=True, inputs=on(lambda: nn.GRUCell(4, 3), 2, 4))
def test_recurrent_cell_in_a_loop(cell, x):
    h = None
    for _ in range(3):
        h = cell(x, h)
    return h


@one_graph(grad=True, inputs=lambda: (nn.EmbeddingBag(9, 4), torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])))
def test_embedding_bag(table, ids, offsets):
    return table(ids, offsets)


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
