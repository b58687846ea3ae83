# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Users' subclasses of Python's containers.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
from dataclasses import dataclass, fields, is_dataclass
from typing import Optional

import torch

from compiler_core.tools.testing import same_as_eager


class ModelOutput(collections.OrderedDict):
    """As Hugging Face's transformers have it."""

    def __post_init__(self):
        assert is_dataclass(self)
        for field in fields(self):
            value = self.__dict__.get(field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in {field.name for field in fields(self)} and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclass
class Output(ModelOutput):
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None
    hidden: Optional[tuple] = None


class Tagged(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tag = "new"

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)

    def __missing__(self, key):
        return f"no {key}"


class Stack(list):
    limit = 3

    def push(self, value):
        self.append(value)
        return self

    @property
    def top(self):
        return self[-1]


class Lower(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


def two(x):
    return Output(logits=x + 1, hidden=(x * 2, x * 3))


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_model_output_set(x):
    out = two(x)
    out.loss = x.sum()
    out["hidden"] = (x,)
    return out, out.loss is out["loss"], "loss" in out, out.get("other"), out.get("loss")


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), Tagged(a=1, b=2), Stack([1])))
def test_subclasses_from_outside(x, d, stack):
    d["n"] = x + d["b"]
    d.tag = "used"
    del d["a"]
    stack.push(x)
    return d["b"], stack.top, stack.limit


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_list_subclass(x):
    stack = Stack([x])
    stack.push(3).push(x + 1).extend([4])
    return stack, stack[0], stack[1:], len(stack), stack.top, bool(Stack()), [*stack]


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_update_calls_setitem_of_an_ordered_dict(x):
    d = Lower(A=x + 1)
    d.update({"B": 1})
    return d, list(d)
