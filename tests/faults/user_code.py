"""Planted faults in training scripts, samplers, rollouts and models, as users write them."""

from __future__ import annotations

from tests.faults.costs import WEIGHTS
from tests.faults.fault import Broken, Change, Inexact, Missed, Recompiled, Repeated, Saved

RECOMPILES = [
    Recompiled(
        "features of edges that some graphs lack",
        """
class Data:
    def __init__(self, **fields):
        self.__dict__["store"] = fields

    def __getattr__(self, name):
        return self.store.get(name)  # the fault

def program(data):
    out = data.x.index_select(0, data.edges[0])
    return out.sum(0) if data.weights is None else (out * data.weights).sum(0)

def run(call):
    edges = torch.tensor([[0, 1], [1, 0]])
    call(Data(x=torch.ones(2, 3), edges=edges, weights=torch.ones(2, 1)))
    call(Data(x=torch.ones(2, 3), edges=edges))
""",
        "data.store",
        "key",
        "present",
        "absent",
        (Change("all keys", {"edges=edges))": "edges=edges, weights=torch.ones(2, 1)))"}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a level of a logger that is changed",
        """
import logging

logger = logging.getLogger("a level that is changed")

def program(x):
    return x.sin() if logger.isEnabledFor(logging.DEBUG) else x.cos()  # the fault

def run(call):
    for level in (logging.INFO, logging.DEBUG):
        logger.setLevel(level)
        call(torch.ones(3))
""",
        "getLogger('a level that is changed').isEnabledFor(10)",
        "result",
        "False",
        "True",
        (Change("call before", {"logging.INFO, logging.DEBUG": "logging.DEBUG, logging.DEBUG"}, engines=("core",)),),
        stock=None,  # which breaks the graph
    ),
    Recompiled(
        "a smoothing of the loss in a partial function",
        """
import functools

def program(logits, loss):
    return loss(logits * 2, torch.tensor([0, 2]))  # the fault

def run(call):
    for smoothing in (0.1, 0.2):
        loss = functools.partial(torch.nn.functional.cross_entropy, label_smoothing=smoothing)
        call(torch.arange(6.0).reshape(2, 3), loss)
""",
        "loss.keywords['label_smoothing']",
        "value",
        "0.1",
        "0.2",
        (Change("few values", {"(0.1, 0.2)": "(0.1, 0.1)"}),),
    ),
    Recompiled(
        "a learning rate that a scheduler changes",
        """
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)

def program():
    optimizer.step()  # the fault

def run(call):
    for rate in (0.1, 0.05):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.ones(3)
        call()
""",
        "self.param_groups[0]['lr']",
        "value",
        "0.1",
        "0.05",
        (
            Change(
                "tensor lr",
                {"lr=0.1": "lr=torch.tensor(0.1)", '["lr"] = rate': '["lr"].fill_(rate)'},
                {"backend": "aot_eager"},
                compiles=3,
            ),
        ),
        compiles=4,
        breaks=1,
        options={"backend": "aot_eager"},
        is_confirmed=False,
        on_core=False,
        logs={"compiles": 3},  # one has no line of the script in its stack
    ),
    Recompiled(
        "the message of an error that is caught",
        """
def program(x, w):
    try:
        return x @ w
    except RuntimeError as error:
        return x.sum() + len(str(error))  # the fault

def run(call):
    for size in (3, 4):
        call(torch.ones(1, 2), torch.ones(size, 2))
""",
        "the message of the exception",
        "value",
        "'mat1 and mat2 shapes cannot be multiplied (1x2 and 3x2)'",
        "'mat1 and mat2 shapes cannot be multiplied (1x2 and 4x2)'",
        (Change("no message", {" + len(str(error))": ""}, compiles=2, engines=("core",)),),
        compiles=3,
        breaks=1,
        stock=None,  # which raises when it compiles
    ),
    Recompiled(
        "a range of activations that gets a gradient",
        """
class Observer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("high", torch.zeros(()))

    def forward(self, x):
        x = x * self.weight
        self.high = torch.maximum(self.high, x.max())  # the fault
        return x / self.high

program = Observer()

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "self.high",
        "requires_grad",
        "False",
        "True",
        (Change("one requires_grad", {"x.max()": "x.detach().max()"}),),
    ),
    Recompiled(
        "a setting in a dict that is read as attributes",
        """
class Config(dict):
    def __getattr__(self, name):
        return self[name]

config = Config(model=Config(dropout=0.0, activation="relu"))

def program(x, config):
    return getattr(torch.nn.functional, config.model.activation)(x)  # the fault

def run(call):
    for activation in ("relu", "gelu"):
        config.model["activation"] = activation
        call(torch.ones(3), config)
""",
        "config['model']['activation']",
        "value",
        "'relu'",
        "'gelu'",
        (Change("few values", {'("relu", "gelu")': '("relu", "relu")'}),),
        stock={"is_confirmed": False},  # `relu` is a function of Python's, and `gelu` none
    ),
    Recompiled(
        "a function that chooses by the class of its argument",
        """
import functools

@functools.singledispatch
def scaled(x):
    return torch.stack(x)

@scaled.register
def _(x: torch.Tensor):
    return x * 2

def program(x):
    return scaled(x) + 1  # the fault

def run(call):
    x = torch.ones(3)
    call(x)
    call([x])
""",
        "x",
        "class",
        "Tensor",
        "list",
        (Change("one type", {"call([x])": "call(torch.stack([x])[0])"}, engines=("core",)),),
        stock=None,
    ),
    Recompiled(
        "the cache of a function that chooses by the class of its argument",
        """
import functools

@functools.singledispatch
def scaled(x):
    return torch.stack(x)

@scaled.register
def _(x: torch.Tensor):
    return x * 2

def program(x):
    return scaled(x) + 1  # the fault

def run(call):
    x = torch.ones(3)
    for _ in range(3):
        call(x)
""",
        "a free variable of scaled",
        "length",
        "0",
        "",
        (Change("filled cache", {"    x = torch.ones(3)\n": "    x = torch.ones(3)\n    scaled(x)\n"}),),
        is_confirmed=False,
        on_core=False,
        logs={"line": 12},
    ),
    Recompiled(
        "a learning rate of a scheduler in the loss",
        """
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

def program(x):
    return (x * weight).sum() * scheduler.get_last_lr()[0]  # the fault

def run(call):
    for _ in range(3):
        call(torch.ones(3))
        optimizer.step()
        scheduler.step()
""",
        "scheduler._last_lr[0]",
        "value",
        "0.5",
        "0.25",
        remedy="symbolic number",
        stock=None,
    ),
    Recompiled(
        "windows of a table",
        """
def program(x):
    return x.sum(-1).sin()  # the fault

def run(call):
    table = torch.arange(24.0).reshape(4, 6)
    call(table[:, :3])
    call(table[:, ::2])
    call(table[:, :3].clone())
""",
        "x",
        "stride",
        "(6, 1)",
        "(6, 2)",
        (
            Change(
                "one layout",
                {"table[:, :3])": "table[:, :3].contiguous())", "table[:, ::2])": "table[:, ::2].contiguous())"},
            ),
        ),
        compiles=3,
    ),
    Recompiled(
        "a best loss that starts as infinity",
        """
class Best:
    def __init__(self):
        self.value = float("inf")

best = Best()

def program(loss):
    best.value = torch.minimum(loss, torch.as_tensor(best.value))  # the fault
    return best.value * 2

def run(call):
    for n in range(3):
        call(torch.tensor(1.0 / (n + 1)))
""",
        "best.value",
        "class",
        "float",
        "Tensor",
        (Change("one type", {'self.value = float("inf")': 'self.value = torch.tensor(float("inf"))'}),),
    ),
    Recompiled(
        "a variable of the environment",
        """
import os

def program(x):
    return x.sin() if os.environ.get("CUTAWAY_MODE") == "a" else x.cos()  # the fault

def run(call):
    for mode in ("a", "b"):
        os.environ["CUTAWAY_MODE"] = mode
        call(torch.ones(3))
    del os.environ["CUTAWAY_MODE"]
""",
        "os.environ['CUTAWAY_MODE']",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b")': '("a", "a")'}),),
    ),
    Recompiled(
        "a layout of what a line before only measures",
        """
def program(x):
    rows = x.shape[0]
    flat = x.reshape(-1)  # the fault
    return flat.sum() / rows

def run(call):
    call(torch.ones(4, 3))
    call(torch.ones(3, 4).t())
""",
        "x",
        "stride",
        "(3, 1)",
        "(1, 4)",
        (Change("one layout", {"torch.ones(3, 4).t()": "torch.ones(3, 4).t().contiguous()"}),),
    ),
    Recompiled(
        "an epsilon of a configuration that is replaced",
        """
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    eps: float

def program(x, config):
    return x / (x.norm() + config.eps)  # the fault

def run(call):
    for eps in (1e-5, 1e-6, 1e-7):
        call(torch.ones(3), Config(eps))
""",
        "config.eps",
        "value",
        "1e-05",
        "1e-06",
        (Change("symbolic number", {"(1e-5, 1e-6, 1e-7)": "(1e-5, 1e-5)"}),),
    ),
    Recompiled(
        "batches that differ in one dimension, then in the other",
        """
def program(tokens):
    return tokens.sin().sum(1)  # the fault

def run(call):
    for shape in ((2, 3), (2, 5), (4, 7), (5, 6)):
        call(torch.ones(shape))
""",
        "tokens",
        "size",
        "3",
        "5",
        (Change("dynamic sizes", options={"dynamic": True}),),
        compiles=3,
    ),
    Recompiled(
        "sizes under dynamic=False",
        """
def program(tokens):
    return tokens.mean(0) * 2  # the fault

def run(call):
    for length in (5, 7, 9):
        call(torch.ones(length, 4))
""",
        "tokens",
        "size",
        "5",
        "7",
        (Change("not dynamic", options={"dynamic": None}, compiles=2),),
        compiles=3,
        options={"dynamic": False},
    ),
    Recompiled(
        "numbers under dynamic=False",
        """
def program(x, n):
    return x.sin() * n  # the fault

def run(call):
    for n in (5, 7, 9):
        call(torch.ones(4), n)
""",
        "n",
        "value",
        "5",
        "7",
        (Change("not dynamic", options={"dynamic": None}, compiles=2),),
        compiles=3,
        options={"dynamic": False},
    ),
    Recompiled(
        "a buffer of a module that grows",
        """
class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.ones(2, 3))

    def forward(self, x):
        return (x @ self.bank.t()).softmax(-1).sum()  # the fault

program = Memory()

def run(call):
    for _ in range(3):
        call(torch.ones(4, 3))
        program.bank = torch.cat([program.bank, program.bank[:1]])
""",
        "self.bank",
        "size",
        "2",
        "3",
        (Change("static sizes", {"torch.cat([program.bank, program.bank[:1]])": "program.bank + 1"}),),
        compiles=3,
    ),
    Recompiled(
        "an offset that is a number of NumPy",
        """
import numpy as np

def program(x, offset):
    return x.sin() * divmod(offset, 2)[0]  # the fault

def run(call):
    for offset in np.arange(2, 5):
        call(torch.ones(5), offset)
""",
        "offset",
        "value",
        "np.int64(2)",
        "np.int64(3)",
        (Change("NumPy number", {"call(torch.ones(5), offset)": "call(torch.ones(5), offset.item())"}, compiles=2),),
        compiles=3,
        stock=None,
    ),
    Recompiled(
        "a number that is compared with one of its values",
        """
def program(x, n):
    if n == 2:  # the fault
        return x.cos() * n
    return x.sin() * n

def run(call):
    for n in (3, 2, 4, 5):
        call(torch.ones(3), n)
""",
        "n",
        "value",
        "3",
        "2",
        (Change("one case", {"(3, 2, 4, 5)": "(3, 4, 5)"}, compiles=2),),
        "dynamic numbers",
        compiles=3,
        problems=2,
    ),
    Recompiled(
        "gradients that a walk over the parameters looks for",
        """
model = torch.nn.Linear(3, 1)

def program(x):
    for parameter in model.parameters():
        x = x * 2 if parameter.grad is None else x + parameter.grad.norm()  # the fault
    return x

def run(call):
    for _ in range(2):
        call(torch.ones(3))
        model(torch.ones(2, 3)).sum().backward()
""",
        "model.weight.grad",
        "value",
        "None",
        "a Tensor",
        (Change("a value at first", {"def program": "model(torch.ones(2, 3)).sum().backward()\n\ndef program"}),),
        is_confirmed=False,
    ),
    Recompiled(
        "a step of a sampler that looks up a list",
        """
class Sampler:
    def __init__(self):
        self.time, self.scales = 0, [0.9, 0.8, 0.7, 0.6]

    def step(self, x):
        x = x * self.scales[self.time]  # the fault
        self.time += 1
        return x

sampler = Sampler()

def program(x):
    return sampler.step(x)

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "sampler.time",
        "value",
        "0",
        "1",
        (Change("few values", {"self.time += 1": "self.time = 0"}),),
        compiles=4,
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "an exponent in a whole step",
        """
weight = torch.full((3,), 2.0, requires_grad=True)

def program(n):
    loss = (weight**n).sum()  # the fault
    (gradient,) = torch.autograd.grad(loss, [weight])
    return gradient * 2

def run(call):
    for n in (2, 3, 4):
        call(n)
""",
        "n",
        "value",
        "2",
        "3",
        (Change("few values", {"(2, 3, 4)": "(2, 2, 2)"}, engines=("core",)),),
        compiles=3,
        options={"capture_backward": True},
        stock=None,
    ),
    Recompiled(
        "the depth of scopes, which is formatted",
        """
import contextlib

DEPTH = 0

@contextlib.contextmanager
def scope(name):
    global DEPTH
    DEPTH += 1  # the fault
    try:
        yield name + str(DEPTH)
    finally:
        DEPTH -= 1

def program(x):
    with scope("layer") as name:
        return x * len(name)

def run(call):
    global DEPTH
    for DEPTH in range(3):
        call(torch.ones(3))
    DEPTH = 0
""",
        "DEPTH",
        "value",
        "0",
        "1",
        (Change("few values", {"range(3)": "(0, 0, 0)"}),),
        compiles=3,
        logs={"remedy": "a tensor"},
    ),
]

BREAKS = [
    Broken(
        "a hook of a layer that writes its shape to a log",
        """
import io

log = io.StringIO()
layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

def record(module, args, output):
    log.write(f"{tuple(output.shape)}")  # the fault

layers[0].register_forward_hook(record)

def program(x):
    return layers(x).sum()

def run(call):
    torch.nn.init.ones_(layers[0].weight)
    call(torch.ones(2, 3))
""",
        "print",
        'log.write(f"{tuple(output.shape)}")',
        "print it after the compiled function has returned",
        {"layers[0].register_forward_hook(record)": ""},
    ),
    Broken(
        "an index of a step that is looked up in a sampler",
        """
times, sigmas = torch.tensor([9, 6, 3]), torch.tensor([1.0, 0.5, 0.1])

def place(time):
    return int((times == time).int().argmax())  # the fault

def program(sample, time=torch.tensor(6)):
    noise = sample.tanh()
    return sample - sigmas.index_select(0, torch.tensor([place(time)])) * noise
""",
        "tensor value read",
        "int((times == time).int().argmax())",
        "Compute with the tensor itself",
        {
            "int((times == time).int().argmax())": "(times == time).int().argmax()",
            "torch.tensor([place(time)])": "place(time).view(1)",
        },
        on_core=False,
    ),
    Broken(
        "a loss that is kept as a number, with nothing after it",
        """
LOSSES = []

def program(x):
    loss = x.square().mean()
    LOSSES.append("loss %.4f" % loss.item())  # the fault
    return loss
""",
        "tensor value read",
        "loss.item()",
        "nothing is computed after it",
        {"loss.item()": "1.5"},
        grade="expected",
        on_core=False,
    ),
    Broken(
        "a number of an argument that is compared",
        """
def program(x, steps=torch.tensor(3)):
    number = steps.item()
    if number > 2:  # the fault
        return x.sin()
    return x.cos()
""",
        "data-dependent branch",
        "number > 2",
        "nothing is computed before it",
        {"steps.item()": "3"},
        grade="expected",
        stock={"reason": "tensor value read", "line": 3},
    ),
    Broken(
        "a flag that is a tensor",
        """
def program(x, flag=torch.tensor(True)):
    if flag:  # the fault
        return x.sin()
    return x.cos()
""",
        "data-dependent branch",
        "if flag:",
        "nothing is computed before it",
        {"if flag:": "if True:"},
        grade="expected",
    ),
    Broken(
        "a weight that is made in the function",
        """
def program(x):
    weight = torch.ones(3, requires_grad=True)  # the fault
    return (x * weight).sin().sum().detach()
""",
        "requires_grad",
        "torch.ones(3, requires_grad=True)",
        "nothing is computed before it",
        {", requires_grad=True": ""},
        grade="expected",
    ),
]

REPEATED = [
    Repeated(
        "steps of a sampler with guidance",
        """
weight = torch.full((3, 3), 0.1)

def guided(x):
    noise = (x @ weight).tanh()  # the fault
    return x - 0.1 * (noise + 2.0 * (noise - x.tanh()))

def program(x):
    for _ in range(9):
        x = guided(x)
    return x
""",
        9,
        "guided",
    ),
    Repeated(
        "steps of Runge and Kutta, which call one function four times",
        """
weight = torch.full((3, 3), 0.1)

def slope(y):
    return (y @ weight).tanh()  # the fault

def step(y):
    first = slope(y)
    second = slope(y + first / 2)
    third = slope(y + second / 2)
    return y + (first + 2 * second + 2 * third + slope(y + third)) / 6

def program(x):
    for _ in range(9):
        x = step(x)
    return x
""",
        9,
        "step",
    ),
]

SAVED = [
    Saved(
        "a product of outer products for each row by vmap",
        """
def squared(row):
    pairs = torch.outer(row, row)  # the fault
    return pairs @ pairs

def program(x, w):
    rows = x @ w[:, :32]
    pairs = torch.vmap(squared)(rows)
    return pairs.sigmoid().sum()
"""
        + WEIGHTS,
        256 * 32 * 32 * 4,
        {"x @ w[:, :32]": "x[:16] @ w[:, :32]"},
    ),
]

INEXACT = [
    Inexact(
        "one minus the cosine of a small angle",
        """
def program(x):
    small = x * 1e-4
    versine = 1 - small.cos()  # the fault
    return versine.sqrt()
""",
        repair={"1 - small.cos()": "2 * (small / 2).sin() ** 2"},
    ),
]

MISSED = [
    Missed(
        "a scale from the environment",
        """
import os

os.environ["CUTAWAY_SCALE"] = "0.5" if rank else "0.25"
scale = float(os.environ.pop("CUTAWAY_SCALE"))

def program(x):
    return (x * scale).tanh()  # the fault

def run(call):
    call(torch.ones(6, 4))
""",
        "graph",
        "0.25",
        "0.5",
        {'"0.5" if rank else "0.25"': '"0.25"'},
    ),
]
