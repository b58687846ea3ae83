# mypy: ignore-errors
# ruff: noqa
"""Programs that look at their own functions and objects: signatures, identities, weak references, thread-local state.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import types
import weakref

import torch
import torch.nn as nn

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


# ---- signatures


def scaled(x, by=2.0, *rest, offset=1.0, **named):
    return x * by + offset + sum(rest) + sum(named.values())


@one_graph()
def test_bound_arguments(x):
    bound = inspect.signature(scaled).bind(x, 3.0, 4.0, c=5.0)
    return scaled(*bound.args, **bound.kwargs)


@one_graph()
def test_defaults_of_bound_arguments(x):
    bound = inspect.signature(scaled).bind(x)
    before = len(bound.arguments)
    bound.apply_defaults()
    return scaled(*bound.args, **bound.kwargs) * before + len(bound.arguments)


@one_graph()
def test_bound_arguments_are_changed(x):
    bound = inspect.signature(scaled).bind_partial(x, offset=2.0)
    bound.arguments["by"] = 7.0
    return scaled(*bound.args, **bound.kwargs), list(bound.arguments)


@one_graph()
def test_bound_arguments_of_a_function_made_here(x):
    scale = x.sum()

    def inner(a, b=scale, *, c=2.0):
        return a * b + c

    bound = inspect.signature(inner).bind(x, c=4.0)
    bound.apply_defaults()
    return inner(*bound.args, **bound.kwargs) + len(inspect.signature(inner).parameters)


@one_graph()
def test_wrong_arguments_of_a_signature(x):
    try:
        inspect.signature(scaled).bind(x, by=1.0, unknown=2.0, offset=1.0).arguments["none"]
    except KeyError:
        x = x + 1
    try:
        inspect.signature(scaled).bind()
    except TypeError as error:
        return x * len(str(error))
    return x


class Propagates(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.wanted = list(inspect.signature(self.message).parameters)

    def message(self, x_j, weight=None):
        return self.linear(x_j) if weight is None else self.linear(x_j) * weight

    def forward(self, x):
        given = {"x_j": x, "weight": x.sigmoid(), "unused": None}
        names = [n for n, p in inspect.signature(self.message).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        return self.message(**{name: given[name] for name in names})


PROPAGATES = Propagates()


@one_graph()
def test_attributes_of_a_partial(x):
    made = functools.partial(torch.mul, x, other=3.0)
    made.tag = 2
    return made.func(*made.args, **made.keywords) * len(made.__dict__) * made.__dict__["tag"]


@one_graph()
def test_dict_of_a_partial_without_attributes(x):
    made = functools.partial(torch.add, x)
    return made(1) if hasattr(made, "__dict__") and not made.__dict__ else x


# ---- identity, weak references, bound methods


@one_graph()
def test_identities_of_outside_objects(x):
    seen = {id(PROPAGATES): 2.0, id(scaled): 3.0, id(Propagates): 5.0}
    return x * seen[id(PROPAGATES)] * seen[id(scaled)] + seen[id(Propagates)]


@same_as_eager(breaks=["unsupported call"])
def test_identity_of_an_object_that_is_made_here(x):
    y = x + 1
    return y * (id(y) > 0)


@one_graph()
def test_weak_reference_made_here(x):
    reference = weakref.ref(PROPAGATES)
    return x * (2.0 if reference() is PROPAGATES else 3.0)


@same_as_eager(graphs=1)
def test_weak_reference_is_returned(x):
    return x * 2, weakref.ref(PROPAGATES)() is PROPAGATES


OWN = threading.local()
OWN.depth, OWN.scale = 1, 2.0


@one_graph()
def test_thread_local_values(x):
    return x * OWN.scale if hasattr(OWN, "scale") and not hasattr(OWN, "none") else x


@one_graph()
def test_thread_local_values_are_changed(x):
    OWN.depth += 1
    try:
        return x * OWN.depth
    finally:
        OWN.depth -= 1


# ---- containers


class Config(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


CONFIG = Config(scale=2.0, offset=1.0)


@one_graph()
def test_dict_with_attributes(x):
    made = Config(scale=3.0)
    made.offset = 4.0
    return x * CONFIG.scale + (CONFIG.none is None) + made.scale + made["offset"]


@one_graph()
def test_dicts_from_keys(x):
    counts = collections.defaultdict.fromkeys(["a", "b"], 2.0)
    ordered = collections.OrderedDict.fromkeys("ab", 3.0)
    own = Config.fromkeys("a", 4.0)
    assert type(counts) is collections.defaultdict and type(ordered) is collections.OrderedDict
    return x * counts["a"] + ordered["b"] + own.a


@one_graph()
def test_item_in_an_iterator(x):
    left = iter([1, 2, 3, 4])
    found = 2 in left
    numbers = (n * n for n in range(5))
    return x * found + sum(left) + (4 in numbers) + sum(numbers)


@one_graph()
def test_return_types(x):
    values, indices = x.abs().reshape(-1).max(0)
    made = torch.return_types.max((values * 2, indices))
    return made.values + made[0], made.indices, type(made) is torch.return_types.max


# ---- context managers


@contextlib.contextmanager
def noted(log, name):
    log.append(name)
    try:
        yield len(log)
    finally:
        log.append(f"end of {name}")


@one_graph()
def test_exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        number = stack.enter_context(noted(log, "a"))
        stack.enter_context(noted(log, "b"))
        stack.enter_context(torch.no_grad())
        stack.callback(log.append, "called")
        y = x * number
    return y + len(log), log


class Catches:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__)
        return True


@one_graph()
def test_exit_stack_that_catches(x):
    log = []

    with contextlib.ExitStack() as stack:
        stack.enter_context(Catches(log))
        x = x + 1
        raise ValueError("caught")
    return x * 2, log


def test_exit_stack_within_a_handler():
    def f(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(noted([], "a"))
            return x * (2 if sys.exc_info()[0] is None is sys.exception() else 3)

    compiled, x = cc.compile(f, backend="eager"), torch.ones(2)
    assert compiled(x).tolist() == [2.0, 2.0]
    try:
        raise ValueError
    except ValueError:
        assert compiled(x).tolist() == [3.0, 3.0]
    assert compiled(x).tolist() == [2.0, 2.0]


@torch.profiler.record_function("decorated")
def in_range(x):
    return x + 1


@one_graph()
def test_function_with_a_range_of_the_profiler(x):
    return in_range(x) * 2


# ---- checks


@one_graph()
def test_checks_that_hold(x):
    torch._check(x.dim() >= 0)
    torch._check(x.numel() > 0, lambda: "empty")
    torch._check_value(x.shape == x.size(), lambda: f"{x.shape}")
    torch._check_index(True)
    return x * 2


@same_as_eager(breaks=["exception"])
def test_check_that_fails(x):
    y = x + 1
    try:
        torch._check_value(x.numel() < 0, lambda: f"has {x.numel()}")
    except ValueError as error:
        return y * len(str(error))
    return y


@one_graph()
def test_names_of_arguments(x):
    return x * torch.is_floating_point(input=x) + torch.numel(input=x) + torch.is_complex(input=x)


OUTER, NAMED = functools.partial(scaled, by=3.0), functools.partial(scaled, by=3.0)
NAMED.tag = "named"


@one_graph()
def test_partials_of_partials(x):
    made = functools.partial(functools.partial(scaled, x), offset=2.0)
    joined, kept = functools.partial(OUTER, offset=4.0), functools.partial(NAMED, offset=4.0)
    facts = len(made.args), [*made.keywords], made.func is scaled, joined.func is scaled, kept.func is scaled
    return made(3.0), joined(x), kept(x), facts


# ---------------------------------------------------------------- signatures and proxies from outside


def shifted_by(x, scale=1.0, *, bias=0.0, offsets=[1.0]):
    return x * scale + bias + offsets[0]


SCALED = inspect.signature(shifted_by)
SHARED = {"a": 1}
OF_SHARED = types.MappingProxyType(SHARED)


class Layer(torch.nn.Module):
    """As a layer for graphs, which looks for the arguments of its methods in what it was given."""

    def __init__(self):
        super().__init__()
        self.parameters_of = {name: inspect.signature(getattr(self, name)).parameters for name in ("message",)}
        self.linear = torch.nn.Linear(4, 4)

    def message(self, x_j, norm=None):
        return x_j if norm is None else norm.view(-1, 1) * x_j

    def collected(self, edges, **given):
        found = {}
        for name, parameter in self.parameters_of["message"].items():
            if name[-2:] in ("_i", "_j"):
                found[name] = given[name[:-2]].index_select(0, edges[0 if name[-1] == "j" else 1])
            else:
                found[name] = given.get(name, parameter.default)
        return found

    def forward(self, x, edges, **given):
        messages = self.message(**self.collected(edges, x=self.linear(x), **given))
        return torch.zeros_like(x).index_add_(0, edges[1], messages)


LAYER = Layer()


@same_as_eager(graphs=1, breaks=[], compiles=1, grad=True)
def test_a_layer_for_graphs(x):
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return LAYER(x, edges), LAYER(x, edges, norm=torch.ones(3) / 2)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_a_signature_from_outside(x):
    given = {"scale": 2.0, "bias": 1.0, "other": 3}
    known = {k: v for k, v in given.items() if k in SCALED.parameters}
    defaults = {k: p.default for k, p in SCALED.parameters.items() if p.default is not inspect.Parameter.empty}
    kinds = [p.kind is inspect.Parameter.KEYWORD_ONLY for p in SCALED.parameters.values()]
    bound = SCALED.bind(x, 3.0)
    bound.apply_defaults()
    return (
        shifted_by(x, **{**defaults, **known}),
        kinds,
        bound.arguments["bias"],
        list(SCALED.parameters),
        SCALED is not None,
    )


@same_as_eager(changes=["SHARED"])
def test_a_proxy_whose_dict_changes(x):
    SHARED["a"] += 1
    return x * OF_SHARED["a"], dict(OF_SHARED)


def test_a_default_that_changes():
    offsets = [1.0]

    def shifted(x, by=offsets):
        return x + by[0]

    signature = inspect.signature(shifted)

    def program(x):
        return x + signature.parameters["by"].default[0]

    run = cc.compile(program, backend="eager", strict=True)
    for value in (1.0, 2.0, 3.0):
        offsets[0] = value
        assert run(torch.zeros(1)).item() == value


# ---- what Python and inspect say


@one_graph()
def test_versions_and_other_facts_of_sys(x):
    if sys.version_info >= (3, 9) and sys.version_info.major == 3 and sys.version_info[:1] == (3,):
        x = x + 1
    return x, tuple(sys.version_info), sys.flags.optimize, sys.float_info.max


EPOCH, ROOT = time.gmtime(0), os.stat("/")


@one_graph()
def test_tuples_of_c_with_names(x):
    texts = str(sys.flags), f"{EPOCH}", repr(sys.version_info), {EPOCH: 1}[EPOCH], EPOCH == EPOCH, hash(ROOT)
    return x + EPOCH.tm_year, texts, EPOCH.tm_zone, len(EPOCH), ROOT[7], ROOT.st_atime, ROOT.st_mode, ROOT.n_fields


def scaled_later():
    yield 1


@one_graph()
def test_kinds_of_functions_and_classes(x):
    kinds = inspect.isfunction(scaled), inspect.isfunction(len), inspect.isbuiltin(len), inspect.isclass(nn.Linear)
    others = inspect.isgeneratorfunction(scaled_later), inspect.ismodule(torch), inspect.isroutine(scaled)
    return x * 2, kinds, others, inspect.unwrap(scaled) is scaled


# ---- attributes of functions from outside


def counted(x):
    counted.calls += 1
    counted.last = x * counted.calls
    return counted.last + len(vars(counted)), hasattr(counted, "calls"), counted.__dict__["calls"]


counted.calls = 0


def counting(function):
    @functools.wraps(function)
    def wrapper(x):
        wrapper.calls = getattr(wrapper, "calls", 0) + 1
        return function(x) * wrapper.calls

    return wrapper


doubled = counting(lambda x: x * 2)


@one_graph()
def test_attributes_that_a_function_sets_on_itself(x):
    counted.calls = 3  # each run begins with the same
    doubled.calls = 1
    return counted(x), counted(x), doubled(x), doubled(x), doubled.calls


@same_as_eager(breaks=["unsupported mutation"])
def test_an_attribute_of_a_function_is_deleted(x):
    counted.extra = x
    found = counted.extra * 2
    del counted.extra
    return found, hasattr(counted, "extra")


def test_a_count_on_a_function_is_compiled_twice():
    def step(x):
        step.calls += 1
        return x * step.calls

    step.calls = 0
    compiled = cc.compile(step, backend="eager", strict=True, fullgraph=True)
    assert [compiled(torch.ones(())).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert step.calls == 5
    assert len(record_of(compiled).compiles) == 2  # then the number is symbolic


@one_graph()
def test_paths(x):
    joined = os.path.join("models", "small.pt")
    return x + len(joined), joined, os.path.splitext(joined), os.path.basename(joined)


# ---- hasattr


Pair = collections.namedtuple("Pair", "a b")
OBJECTS = [
    scaled, PROPAGATES, PROPAGATES.message, PROPAGATES.linear.weight, Propagates, OWN, Pair(1, 2), torch, None, len, 3,
    1.5, "a", [1], (1,), {1: 2}, {1}, frozenset([1]), slice(1), range(3), collections.OrderedDict(a=1), ValueError("x"),
    collections.defaultdict(int), collections.deque([1]), functools.partial(scaled, by=2), types.MappingProxyType({}),
    torch.Size([1]), torch.float32, torch.device("cpu"), inspect.Parameter.KEYWORD_ONLY,
]  # fmt: skip
METHODS = [n for n in dir(object) if n not in ("__class__", "__doc__", "__init_subclass__", "__subclasshook__")]
METHODS += ["__call__", "__len__", "__iter__", "__contains__", "__next__", "__getitem__"]


def test_hasattr_of_methods():
    def found(obj, x):
        return x + 1, [hasattr(obj, name) for name in METHODS]

    compiled = cc.compile(found, backend="eager", fullgraph=True, recompile_limit=99)
    x = torch.ones(2)
    assert [compiled(obj, x)[1] for obj in OBJECTS] == [found(obj, x)[1] for obj in OBJECTS]
