# mypy: ignore-errors
# ruff: noqa
"""A model changes between calls; its guards are checked by the versions of its dicts.  PYTEST_DONT_REWRITE"""

import gc
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import difference
from compiler_core.guards.sources import VERSIONS_ARE_STALE
from tests.sampling import always, pairs


class Block(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.scale = nn.Parameter(torch.full((3,), float(k)))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        x = x * self.scale + self.shift
        return x + self.k if self.training else x - self.k


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(i) for i in range(6)])
        self.head = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.ReLU())
        self.factor = 1

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.factor


class NetOverTable(Net):
    """Reaches its blocks by iteration over the table of submodules, as DenseNets do."""

    def forward(self, x):
        for name, block in self.blocks.named_children():
            x = block(x)
        for block in self.head._modules.values():
            x = block(x)
        return x * self.factor


def nothing(net):
    pass


def eval_mode(net):
    net.eval()


def eval_and_back(net):
    net.eval()
    net.train()


def one_block_eval(net):
    net.blocks[3].eval()


def attribute_of_a_block(net):
    net.blocks[2].k = 50


def attribute_of_the_root(net):
    net.factor = 3


def unrelated_attribute(net):
    net.blocks[1].note = "seen"


def forward_hook(net):
    net.blocks[4].register_forward_hook(lambda m, args, out: out + 100)


def forward_pre_hook(net):
    net.blocks[4].register_forward_pre_hook(lambda m, args: (args[0] + 100,))


def hook_on_the_head(net):
    net.head[2].register_forward_hook(lambda m, args, out: out + 100)


def hook_put_in_by_hand(net):
    net.blocks[0]._forward_hooks[7] = lambda m, args, out: out + 100


def hooks_replaced(net):
    hooks = type(net.blocks[0]._forward_hooks)()
    hooks[1] = lambda m, args, out: out + 100
    net.blocks[0]._forward_hooks = hooks


def hook_added_and_removed(net):
    net.blocks[4].register_forward_hook(lambda m, args, out: out + 100).remove()


def backward_hook(net):
    net.blocks[1].register_full_backward_hook(lambda m, gin, gout: (gin[0] * 2,))


def backward_pre_hook(net):
    net.blocks[1].register_full_backward_pre_hook(lambda m, gout: (gout[0] * 2,))


def block_replaced(net):
    net.blocks[2] = Block(70)


def block_replaced_by_another_class(net):
    net.blocks[2] = nn.Tanh()


def block_appended(net):
    net.blocks.append(Block(9))


def block_deleted(net):
    del net.blocks[0]


def blocks_swapped(net):
    net.blocks[0], net.blocks[5] = net.blocks[5], net.blocks[0]


def list_of_blocks_replaced(net):
    net.blocks = nn.ModuleList([Block(20), Block(30)])


def head_replaced(net):
    net.head = nn.Identity()


def table_of_modules_replaced(net):
    net.head._modules = dict(reversed(net.head._modules.items()))


def modules_put_in_by_hand(net):
    net.blocks._modules["3"] = Block(33)


def parameter_replaced(net):
    net.blocks[3].scale = nn.Parameter(torch.zeros(3))


def parameter_of_another_shape(net):
    net.blocks[3].scale = nn.Parameter(torch.ones(1))


def parameter_of_another_class(net):
    class Scale(nn.Parameter):
        pass

    net.blocks[3].scale = Scale(torch.full((3,), 7.0))


def parameter_replaced_and_another_reshaped(net):
    net.blocks[3].scale = nn.Parameter(torch.full((3,), 7.0))
    net.blocks[3].shift = torch.full((1,), 8.0)


def parameter_without_gradients(net):
    net.blocks[3].scale = nn.Parameter(torch.full((3,), 7.0), requires_grad=False)


def parameters_swapped(net):
    torch.utils.swap_tensors(net.blocks[3].scale, net.blocks[4].scale)


def parameters_exchanged(net):
    tables = [block._parameters for block in net.blocks]
    tables[1]["scale"], tables[2]["scale"] = tables[2]["scale"], tables[1]["scale"]


def parameter_shared(net):
    net.blocks[1].scale = net.blocks[2].scale


def table_of_parameters_replaced(net):
    net.blocks[3].__dict__["_parameters"] = {"scale": nn.Parameter(torch.full((3,), 7.0))}


def parameters_assigned(net):
    net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}, assign=True)


def parameters_functional(net):
    changed = {k: v.detach() + 1 for k, v in net.named_parameters()}
    torch.func.functional_call(net, changed, (torch.ones(3),))


def buffer_added_in_front(net):
    net.blocks[3]._buffers = {"other": torch.ones(1), **net.blocks[3]._buffers}


def parameter_changed_in_place(net):
    with torch.no_grad():
        net.blocks[3].scale.mul_(5)


def parameter_given_other_data(net):
    net.blocks[3].scale.data = torch.full((1,), 4.0)


def parameter_frozen(net):
    net.blocks[3].scale.requires_grad_(False)


def model_frozen(net):
    net.requires_grad_(False)


def buffer_replaced(net):
    net.blocks[3].shift = torch.full((1,), 8.0)


def buffer_of_another_dtype(net):
    net.blocks[3].shift = net.blocks[3].shift.half()


def state_loaded(net):
    net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})


def to_double_and_back(net):
    net.double()
    net.float()


def class_of_a_block(net):
    class Other(Block):
        def forward(self, x):
            return x + 1000

    net.blocks[4].__class__ = Other


def class_behind_the_module(net):
    class Other(Block):
        def forward(self, x):
            return x + 1000

    object.__setattr__(net.blocks[4], "__class__", Other)


def dict_of_a_block(net):
    net.blocks[4].__dict__ = dict(net.blocks[4].__dict__, k=500)


def dict_of_a_block_then_a_hook(net):
    block = net.blocks[4]
    block.__dict__ = dict(block.__dict__, _forward_hooks=type(block._forward_hooks)())
    block._forward_hooks[3] = lambda m, args, out: out + 100


def dict_of_the_root(net):
    net.__dict__ = dict(net.__dict__, factor=9)


def forward_of_one_block(net):
    net.blocks[1].forward = lambda x: x + 2000


def forward_of_the_class(net):
    cls = type("Block", (Block,), {"forward": lambda self, x: x - 1})
    for i in range(6):
        net.blocks[i].__class__ = cls


def call_of_the_class(net):
    class Other(Block):
        def __call__(self, x):
            return super().__call__(x) + 1000

    net.blocks[1].__class__ = Other


def parametrized(net):
    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    parametrize.register_parametrization(net.blocks[2], "scale", Double())


def attribute_hides_a_parameter(net):
    del net.blocks[2].scale
    net.blocks[2].scale = torch.full((3,), 3.0)


def global_hook(net):
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1)
    net.__dict__["handles"] = [handle]


CHANGES = [
    v
    for k, v in list(globals().items())
    if isinstance(v, types.FunctionType) and v.__code__.co_varnames[:1] == ("net",)
]
WITHOUT_COMPILE = {
    nothing,
    eval_and_back,
    unrelated_attribute,
    hook_added_and_removed,
    parameter_changed_in_place,
    parameter_replaced,
    parameters_exchanged,
    parameters_assigned,
    state_loaded,
    to_double_and_back,
}


@pytest.fixture
def one_change():
    torch.manual_seed(0)
    yield
    nn.modules.module._global_forward_hooks.clear()


@pytest.mark.parametrize(
    "change", always(CHANGES, {forward_hook, backward_hook, class_of_a_block, call_of_the_class}.__contains__)
)
def test_compiled_blocks_change(change, one_change):
    """Each block is a compiled module itself, which the change may turn into something else."""
    net = Net()
    blocks = [(each, cc.compile(each, backend="eager", strict=True)) for each in (*net.blocks, net.head)]
    for _ in range(2):
        for block, compiled in blocks:
            agrees(block, compiled, block)
        change(net)


@pytest.mark.parametrize(("change", "how"), pairs(CHANGES, ["module", "method", "argument", "table"], 16))
def test_model_changes(change, how, one_change):
    net = NetOverTable() if how == "table" else Net()
    if how in ("module", "table"):
        compiled, call = cc.compile(net, backend="eager", strict=True), net
    elif how == "method":
        compiled, call = cc.compile(net.forward, backend="eager", strict=True), net.forward
    else:
        run = lambda x, model: model(x)
        fast = cc.compile(run, backend="eager", strict=True)
        compiled, call = (lambda x: fast(x, net)), net
    record = record_of(fast if how == "argument" else compiled)
    for _ in range(2):
        agrees(call, compiled, net)
    before = len(record.compiles)
    change(net)
    for _ in range(2):
        agrees(call, compiled, net)
    if change in WITHOUT_COMPILE:
        assert len(record.compiles) == before, record.compiles[-1].cause


@pytest.mark.cpu  # a default device is a mode, which guards look at
def test_one_call_into_python_checks_a_whole_model():
    """Each tree of modules has one check in Python at each call; blocks reached by iteration belong to the net's."""
    import sys

    net = NetOverTable()
    compiled = cc.compile(net, backend="eager", strict=True)
    compiled(torch.ones(3))
    calls = []
    sys.setprofile(lambda frame, event, arg: event == "call" and calls.append(frame.f_code.co_name))
    try:
        compiled(torch.ones(3))
    finally:
        sys.setprofile(None)
    assert VERSIONS_ARE_STALE or calls.count("<lambda>") == 1, calls


def agrees(call, compiled, net):
    """The same output and the same gradients."""
    found = []
    for run in (call, compiled):
        x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
        net.zero_grad()
        out = run(x)
        out.sum().backward()
        found.append((out.detach(), x.grad, [p.grad for p in net.parameters()]))
    assert difference(found[0], found[1]) is None, difference(found[0], found[1])


def test_other_models_use_the_same_code():
    run = lambda x, model: model(x)
    compiled = cc.compile(run, backend="eager", strict=True)
    models = [Net() for _ in range(3)]
    for _ in range(2):
        for model in models:
            assert difference(model(torch.ones(3)), compiled(torch.ones(3), model)) is None
    assert len(record_of(compiled).compiles) == 1
    models[1].blocks[0].register_forward_hook(lambda m, args, out: out + 1)
    models[2].blocks[3].k = 99
    for model in models:
        assert difference(model(torch.ones(3)), compiled(torch.ones(3), model)) is None


def test_models_die():
    import weakref

    compiled = cc.compile(lambda x, model: model(x), backend="eager", strict=True)
    for _ in range(5):
        net = Net()
        watched = [weakref.ref(net), weakref.ref(net.blocks[2]), weakref.ref(net.blocks[2].scale)]
        assert difference(net(torch.ones(3)), compiled(torch.ones(3), net)) is None
        del net
        gc.collect()
        assert [w() for w in watched] == [None] * 3


REPLACED = [parameter_replaced, parameter_of_another_shape, block_replaced, list_of_blocks_replaced]


@pytest.mark.parametrize("change", REPLACED)
def test_what_is_replaced_is_freed_at_the_next_call(change):
    import weakref

    net = Net()
    compiled = cc.compile(net, backend="eager", strict=True)
    agrees(net, compiled, net)
    before = {id(part): weakref.ref(part) for part in (*net.modules(), *net.parameters(), *net.buffers())}
    change(net)
    agrees(net, compiled, net)
    gc.collect()
    kept = {id(part) for part in (*net.modules(), *net.parameters(), *net.buffers())}
    assert [found() for part, found in before.items() if part not in kept and found() is not None] == []
    assert len(kept & before.keys()) < len(before)
