# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""What the code around models' layers does: decorators, configurations, outputs, caches.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields

import torch
from torch import nn

from compiler_core.tools.testing import same_as_eager


# ---------------------------------------------------------------- decorators of methods


class Config:
    attribute_map = {"width": "hidden_size"}

    def __init__(self, **settings):
        self.hidden_size = 4
        self.return_dict = True
        self.layer_types = ["full", "sliding", "full"]
        for key, value in settings.items():
            setattr(self, key, value)

    def __setattr__(self, key, value):
        if key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        super().__setattr__(key, value)

    def __getattribute__(self, key):
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)


@dataclass
class Output(OrderedDict):
    last: torch.Tensor | None = None
    hidden: tuple | None = None
    extra: object = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


def defaults_from_config(fn):
    @functools.wraps(fn)
    def wrapper(self, *args, **kwargs):
        for name in ("use_cache", "width"):
            index = None
            if name in fn.__code__.co_varnames:
                index = fn.__code__.co_varnames.index(name) - 1
            if index is not None and len(args) > index and args[index] is not None:
                value = args[index]
            elif kwargs.get(name) is not None:
                value = kwargs[name]
            else:
                value = getattr(self.config, name, None)
            if value is not None and not (index is not None and len(args) > index):
                kwargs[name] = value
        return fn(self, *args, **kwargs)

    return wrapper


def may_return_tuple(fn):
    @functools.wraps(fn)
    def wrapper(self, *args, **kwargs):
        return_dict = self.config.return_dict if hasattr(self, "config") else True
        passed = kwargs.pop("return_dict", return_dict)
        if passed is not None:
            return_dict = passed
        output = fn(self, *args, **kwargs)
        if not return_dict and not isinstance(output, tuple):
            output = output.to_tuple()
        return output

    return wrapper


class Wrapped(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.config = Config(**settings)
        self.fc = nn.Linear(4, 4)

    @may_return_tuple
    @defaults_from_config
    def forward(self, x, use_cache=None, width=None, **kwargs):
        y = self.fc(x) * width
        return Output(last=y, hidden=(x, y) if use_cache else None)


def wrapped(**settings):
    torch.manual_seed(0)
    return lambda: (Wrapped(**settings), torch.ones(2, 4))


@same_as_eager(graphs=1, breaks=[], inputs=wrapped(use_cache=True, width=2))
def test_settings_of_the_config(model, x):
    return model(x), model(x, None, 3), model(x, use_cache=False)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (Config(), torch.ones(4)))
def test_copy_of_a_config_with_its_own_getattribute(config, x):
    copied = copy.deepcopy(config)
    copied.width = 7
    copied.layer_types.append("new")
    return x * copied.hidden_size + config.width, copied, config.layer_types


@same_as_eager(graphs=1, breaks=[])
def test_missing_attribute_deleted(x):
    config = Config()
    try:
        del config.nothing
    except AttributeError as error:
        return x + 1, str(error)


# ---------------------------------------------------------------- views of per-layer settings


class Layers(Sequence):
    def __init__(self, config):
        self.config = config

    def __len__(self):
        return len(self.config.layer_types)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError("list index out of range")
        return self.config.layer_types[i]


@same_as_eager(graphs=1, breaks=[])
def test_sequence_of_a_users_class(x):
    layers = Layers(Config())
    for i, kind in enumerate(layers):
        x = x + i * (2 if kind == "sliding" else 1)
    return x, list(layers), layers[1:], "full" in layers, layers.index("sliding"), layers.count("full")


class Registry(MutableMapping):
    shared = {"relu": torch.relu}

    def __init__(self):
        self.own = {}

    def __getitem__(self, key):
        if key in self.own:
            return self.own[key]
        return self.shared[key]

    def __setitem__(self, key, value):
        self.own[key] = value

    def __delitem__(self, key):
        del self.own[key]

    def __iter__(self):
        return iter({**self.shared, **self.own})

    def __len__(self):
        return len(self.shared.keys() | self.own.keys())

    def of(self, name, default):
        if name != "plain" and name not in self:
            raise KeyError(f"{name} is not registered")
        return super().get(name, default)


REGISTRY = Registry()
REGISTRY["tanh"] = torch.tanh


@same_as_eager(graphs=1, breaks=[])
def test_registry_of_functions(x):
    return REGISTRY.of("tanh", None)(x) + REGISTRY.of("plain", torch.abs)(x) + REGISTRY["relu"](x), len(REGISTRY)


class Activations(OrderedDict):
    def __getitem__(self, key):
        content = super().__getitem__(key)
        cls, kwargs = content if isinstance(content, tuple) else (content, {})
        return cls(**kwargs)


ACTIVATIONS = Activations({"silu": nn.SiLU, "leaky": (nn.LeakyReLU, {"negative_slope": 0.2})})


@same_as_eager(graphs=1, breaks=[])
def test_modules_made_by_name(x):
    return ACTIVATIONS["silu"](x) + ACTIVATIONS["leaky"](x)


# ---------------------------------------------------------------- questions to the surroundings


def is_capturing():
    try:
        return torch.cuda.is_current_stream_capturing()
    except Exception:
        return False


@same_as_eager(graphs=1, breaks=[])
def test_stream_capture(x):
    return x - 1 if is_capturing() or torch.jit.is_tracing() or torch.jit.is_scripting() else x + 1


@same_as_eager(graphs=1, breaks=[])
def test_assertions_of_torch(x):
    torch._assert(x.dim() == 2, f"two dimensions, not {x.shape}")
    return x + 1


@same_as_eager(graphs=0, breaks=["exception"])
def test_assertion_of_torch_that_fails(x):
    torch._assert(x.dim() == 3, f"three dimensions, not {tuple(x.shape)}")
    return x + 1


COLLECTOR: ContextVar[dict | None] = ContextVar("collector", default=None)


class Collecting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, collect=False):
        token = COLLECTOR.set({"hidden": []} if collect else None)
        try:
            for layer in self.layers[:2]:
                x = layer(x)
                if (found := COLLECTOR.get()) is not None:
                    found["hidden"].append(x)
            found = COLLECTOR.get()
        finally:
            COLLECTOR.reset(token)
        return x, found


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (Collecting(), torch.ones(2, 4)))
def test_outputs_collected_in_a_context_variable(model, x):
    return model(x), model(x, True), COLLECTOR.get()


# ---------------------------------------------------------------- caches and masks


@same_as_eager(graphs=1, breaks=[])
def test_histogram(x):
    return torch.histc(x, bins=4, min=-2, max=2)


@same_as_eager(graphs=1, breaks=[])
def test_keywords_with_prefixes(x):
    def strip(prefix, **kwargs):
        return {k.removeprefix(prefix): v for k, v in kwargs.items() if k.startswith((prefix, "any_"))}

    return strip("image_", image_size=x, text_size=x + 1, any_thing=2)
