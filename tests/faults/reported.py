"""Planted faults in the manner of public reports: caches of models, training loops by hand, configurations."""

from __future__ import annotations

from tests.faults.costs import WEIGHTS
from tests.faults.fault import Broken, Change, Diverged, Inexact, Missed, Recompiled, Repeated, Saved

DYNAMIC = {"dynamic": True}

RECOMPILES = [
    Recompiled(
        "a table of positions that grows with the longest sequence",
        """
class Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.longest = 0
        self.table = None

    def forward(self, x):
        if x.shape[0] > self.longest:  # the fault
            self.longest = x.shape[0]
            self.table = torch.arange(x.shape[0] * 1.0)
        return x * self.table[: x.shape[0], None].cos()

program = Rotary()

def run(call):
    for n in (4, 4, 4):
        call(torch.ones(n, 3))
""",
        "self.longest",
        "value",
        "0",
        "4",
        (
            Change(
                "an argument",
                {
                    "longest = 0": "longest = 4",
                    "table = None": "table = torch.arange(4.0)",
                },
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"remedy": "", "is_confirmed": False},
    ),
    Recompiled(
        "masks that are kept by length",
        """
class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, x):
        n = x.shape[0]
        if n not in self.masks:  # the fault
            self.masks[n] = torch.ones(n, n).tril()
        return self.masks[n] @ x

program = Masked()

def run(call):
    for _ in range(3):
        call(torch.ones(4, 3))
""",
        "self.masks",
        "key",
        "absent",
        "present",
        (Change("all keys", {"self.masks = {}": "self.masks = {4: torch.ones(4, 4).tril()}"}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a gradient that is None before the first step",
        """
weight = torch.ones(3, requires_grad=True)

def program():
    with torch.no_grad():
        return weight * 2 if weight.grad is None else weight - 0.1 * weight.grad  # the fault

def run(call):
    for _ in range(3):
        call()
        weight.sin().sum().backward()
""",
        "weight.grad",
        "value",
        "None",
        "a Tensor",
        (Change("a value at first", {"requires_grad=True)": "requires_grad=True)\nweight.grad = torch.zeros(3)"}),),
    ),
    Recompiled(
        "a buffer of momentum that the first step makes",
        """
weights = {"w": torch.ones(3)}
state = {}

def program(grad):
    if "momentum" not in state:  # the fault
        state["momentum"] = torch.zeros_like(grad)
    momentum = state["momentum"].mul(0.9).add(grad)
    state["momentum"] = momentum
    return weights["w"] - 0.1 * momentum

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "state",
        "key",
        "absent",
        "present",
        (Change("all keys", {"state = {}": 'state = {"momentum": torch.zeros(3)}'}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a counter that nonlocal changes",
        """
def make():
    step = 0

    def inner(x):
        nonlocal step
        step += 1  # the fault
        return x * 0.5**step

    return inner

program = make()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "step",
        "value",
        "0",
        "1",
        (Change("dynamic numbers", options=DYNAMIC),),
    ),
    Recompiled(
        "a temperature that the forward anneals",
        """
class Gumbel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tau = 1.0

    def forward(self, x):
        self.tau = self.tau * 0.5  # the fault
        return (x / self.tau).softmax(-1)

program = Gumbel()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "self.tau",
        "value",
        "1.0",
        "0.5",
        remedy="symbolic number",
    ),
    Recompiled(
        "keywords that a wrapper passes on",
        """
def scaled(x, **options):
    for name, value in options.items():
        x = x * value
    return x

def program(x, **options):
    return scaled(x.sin(), **options)  # the fault

def run(program):
    x = torch.ones(3)
    return [program(x, scale=x), program(x, scale=x, gain=x)]
""",
        "options",
        "keys",
        "['scale']",
        "['scale', 'gain']",
        (Change("all keys", {"program(x, scale=x), ": "program(x, scale=x, gain=x), "}),),
        stock={"aspect": "length", "expected": "1", "got": "2"},
    ),
    Recompiled(
        "an attribute that __getattr__ looks up",
        """
class Config:
    def __init__(self, **entries):
        self.__dict__["_entries"] = entries

    def __getattr__(self, name):
        return self._entries[name]

config = Config(activation="relu")

def program(x):
    return x.relu() if config.activation == "relu" else x.tanh()  # the fault

def run(call):
    for name in ("relu", "tanh"):
        config._entries["activation"] = name
        call(torch.ones(3))
""",
        "config._entries['activation']",
        "value",
        "'relu'",
        "'tanh'",
        (Change("few values", {'("relu", "tanh")': '("relu", "relu")'}),),
    ),
    Recompiled(
        "an environment variable that is read",
        """
import os

def program(x):
    if os.environ.get("CUTAWAY_TEST_MODE", "fast") == "fast":  # the fault
        return x.sin()
    return x.cos()

def run(call):
    os.environ.pop("CUTAWAY_TEST_MODE", None)
    call(torch.ones(3))
    os.environ["CUTAWAY_TEST_MODE"] = "slow"
    call(torch.ones(3))
    del os.environ["CUTAWAY_TEST_MODE"]
""",
        "os.environ",
        "key",
        "absent",
        "present",
        (
            Change(
                "all keys",
                {'    os.environ.pop("CUTAWAY_TEST_MODE", None)\n': '    os.environ["CUTAWAY_TEST_MODE"] = "slow"\n'},
            ),
        ),
        stock=None,  # which has no guard on it, and computes as at first
    ),
    Recompiled(
        "an instance of a subclass",
        """
class Scheduler:
    def scale(self, x):
        return x * 2

class Cosine(Scheduler):
    def scale(self, x):
        return x.cos()

def program(x, scheduler):
    assert isinstance(scheduler, Scheduler)  # the fault
    return scheduler.scale(x)

def run(call):
    for scheduler in (Scheduler(), Cosine()):
        call(torch.ones(3), scheduler)
""",
        "scheduler",
        "class",
        "Scheduler",
        "Cosine",
        (Change("one class", {"(Scheduler(), Cosine())": "(Cosine(), Cosine())"}),),
    ),
    Recompiled(
        "a number of NumPy in place of a float",
        """
import numpy

def program(x, scale):
    return x * scale  # the fault

def run(call):
    call(torch.ones(3), 0.5)
    call(torch.ones(3), numpy.float64(0.5))
""",
        "scale",
        "class",
        "float",
        "float64",
        (Change("one type", {"numpy.float64(0.5)": "float(numpy.float64(0.5))"}),),
    ),
    Recompiled(
        "layers that are dropped at random",
        """
import random

layers = [torch.full((3, 3), 0.1 * n) for n in range(1, 3)]
KEPT = [True, True]

def choose():
    KEPT[1] = random.Random(3).random() > 0.5

def program(x):
    for weight, kept in zip(layers, KEPT):
        if kept:  # the fault
            x = x @ weight
    return x

def run(call):
    call(torch.ones(3, 3))
    choose()
    call(torch.ones(3, 3))
""",
        "KEPT[1]",
        "value",
        "True",
        "False",
        remedy="two values",
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a config that is replaced by another one",
        """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Encoder:
    depth: int = 1

@dataclasses.dataclass(frozen=True)
class Config:
    encoder: Encoder = Encoder()

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        for _ in range(self.config.encoder.depth):  # the fault
            x = x.sin()
        return x

program = Model(Config())

def run(call):
    for depth in (1, 2):
        program.config = dataclasses.replace(program.config, encoder=Encoder(depth))
        call(torch.ones(3))
""",
        "self.config.encoder.depth",
        "value",
        "1",
        "2",
        (Change("few values", {"(1, 2)": "(2, 2)"}),),
    ),
    Recompiled(
        "a head of a multi-task model",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 1), "b": torch.nn.Linear(3, 2)})
        for each in self.parameters():
            torch.nn.init.constant_(each, 0.5)

    def forward(self, x, task):
        return self.heads[task](x)  # the fault

program = Model()

def run(call):
    for task in ("a", "b"):
        call(torch.ones(2, 3), task)
""",
        "task",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b")': '("b", "b")'}),),
        stock={"is_confirmed": False},
        logs={"line": 9},  # the first line of the function
    ),
    Recompiled(
        "an attribute more in what vars gives",
        """
class Extras:
    pass

extras = Extras()
extras.first = torch.ones(3)

def program(x):
    for value in vars(extras).values():  # the fault
        x = x + value
    return x

def run(call):
    call(torch.ones(3))
    extras.second = torch.ones(3)
    call(torch.ones(3))
""",
        "extras.__dict__",
        "keys",
        "['first']",
        "['first', 'second']",
        (Change("all keys", {"    extras.second = torch.ones(3)\n": ""}),),
    ),
    Recompiled(
        "a dict that makes its own keys",
        """
from collections import defaultdict

sums = defaultdict(float)

def program(x):
    sums["train"] = sums["train"] + x.sum()  # the fault
    return x * 2

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "sums",
        "key",
        "absent",
        "present",
        (Change("all keys", {"defaultdict(float)": '{"train": torch.zeros(())}'}),),
        stock={"aspect": "length", "expected": "0", "got": "1"},
    ),
    Recompiled(
        "another dtype of autocast",
        """
def program(x):  # the fault
    return x @ x

def run(call):
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            call(torch.ones(3, 3))
""",
        "torch's global state",
        "setting",
        "torch.bfloat16",
        "torch.float16",
        (Change("one setting", {"(torch.bfloat16, torch.float16)": "(torch.bfloat16, torch.bfloat16)"}),),
    ),
    Recompiled(
        "an activation that is replaced by another",
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.act = torch.nn.ReLU()

    def forward(self, x):
        return self.act(self.fc(x))  # the fault

program = Net()

def run(call):
    call(torch.ones(2, 3))
    program.act = torch.nn.GELU()
    call(torch.ones(2, 3))
""",
        "self.act",
        "class",
        "ReLU",
        "GELU",
        (Change("one class", {"    call(torch.ones(2, 3))\n    program": "    program"}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a field of a batch that the last one leaves out",
        """
import dataclasses

@dataclasses.dataclass
class Batch:
    pixels: torch.Tensor
    labels: torch.Tensor | None = None

def program(batch):
    loss = batch.pixels.square().mean()
    if batch.labels is not None:  # the fault
        loss = loss + (batch.pixels - batch.labels).abs().mean()
    return loss

def run(call):
    call(Batch(torch.ones(3), torch.zeros(3)))
    call(Batch(torch.ones(3)))
""",
        "batch.labels",
        "value",
        "a Tensor",
        "None",
        (Change("not None", {"call(Batch(torch.ones(3)))": "call(Batch(torch.ones(3), torch.zeros(3)))"}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "prompts that are appended to a ParameterList",
        """
class Tuned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.prompts = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))])

    def forward(self, x):
        for prompt in self.prompts:  # the fault
            x = x + prompt
        return x

program = Tuned()

def run(call):
    call(torch.ones(3))
    program.prompts.append(torch.nn.Parameter(torch.ones(3)))
    call(torch.ones(3))
""",
        "self.prompts",
        "length",
        "1",
        "2",
        (Change("modules before", {"    call(torch.ones(3))\n    program": "    program"}),),
    ),
    Recompiled(
        "a context variable that is set later",
        """
import contextvars

PRECISION = contextvars.ContextVar("precision", default="high")

def program(x):
    return x.double() if PRECISION.get() == "high" else x.half()  # the fault

def run(call):
    call(torch.ones(3))
    PRECISION.set("low")
    call(torch.ones(3))
""",
        "PRECISION.get()",
        "value",
        "no value",
        "'low'",
        (Change("few values", {'    PRECISION.set("low")\n': ""}, engines=("core",)),),
        stock=None,
    ),
    Recompiled(
        "a weak reference whose object is gone",
        """
import weakref

class Parent:
    scale = 2.0

PARENT = Parent()
REF = weakref.ref(PARENT)

def program(x):
    parent = REF()
    return x.sin() if parent is None else x.sin() * parent.scale  # the fault

def run(call):
    global PARENT
    call(torch.ones(3))
    PARENT = None
    call(torch.ones(3))
""",
        "REF()",
        "value",
        "a Parent",
        "None",
        (Change("not None", {"    PARENT = None\n": ""}, engines=("core",)),),
        stock={"aspect": "class", "expected": "Parent", "got": "", "remedy": "one class", "is_confirmed": False},
    ),
    Recompiled(
        "a path",
        """
import pathlib

def program(x, path):
    return x.mean() if path.suffix == ".png" else x.sum()  # the fault

def run(call):
    for name in ("a.png", "b.npy"):
        call(torch.ones(3), pathlib.PurePosixPath(name))
""",
        "path",
        "value",
        "PurePosixPath('a.png')",
        "PurePosixPath('b.npy')",
        (Change("few values", {'"b.npy"': '"a.png"'}, engines=("core",)),),
        stock=None,  # it names attributes that differ with the version of Python
    ),
    Recompiled(
        "a schedule that is popped from a list",
        """
class Sampler:
    def __init__(self):
        self.left = [0.1, 0.2, 0.3, 0.4]

    def step(self, x):
        return x + self.left.pop(0)  # the fault

SAMPLER = Sampler()
program = SAMPLER.step

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "self.left",
        "length",
        "4",
        "3",
        (
            Change(
                "no growing list",
                {
                    "def step(self, x):": "def step(self, x, sigma):",
                    "self.left.pop(0)": "sigma",
                    "call(torch.ones(3))": "call(torch.ones(3), torch.tensor(SAMPLER.left.pop(0)))",
                },
            ),
        ),
        compiles=3,
        is_confirmed=False,
    ),
]

BREAKS = [
    Broken(
        "a stop token among the tokens",
        """
def program(x):
    tokens = x.long().flatten()
    done = 6 in tokens.tolist()  # the fault
    return x.sin() * done
""",
        "tensor value read",
        "6 in tokens.tolist()",
        "Compute with the tensor itself",
        {"6 in tokens.tolist()": "(tokens == 6).any()"},
    ),
    Broken(
        "a file that is written in the forward",
        """
def program(x):
    y = x.sin()
    with open("/dev/zero", "w") as file:  # the fault
        file.write("step")
    return y.cos()
""",
        "skipped function",
        'open("/dev/zero", "w")',
        "enter it around the call of the compiled function",
        {'    with open("/dev/zero", "w") as file:  # the fault\n        file.write("step")\n': ""},
        stock={"reason": "unsupported call"},
    ),
    Broken(
        "statistics that are written as JSON",
        """
import json

lines = []

def program(x):
    y = x.sin()
    lines.append(json.dumps({"rows": y.shape[0]}))  # the fault
    return y.cos()
""",
        "skipped function",
        'json.dumps({"rows": y.shape[0]})',
        "do it after the compiled function has returned",
        {'json.dumps({"rows": y.shape[0]})': "y.shape[0]"},
        stock={"reason": "unsupported call"},
    ),
    Broken(
        "a pool of threads",
        """
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)

def program(x):
    y = x.sin()
    pool.submit(len, "ab")  # the fault
    return y.cos()
""",
        "skipped function",
        'pool.submit(len, "ab")',
        "do it before the compiled function",
        {'    pool.submit(len, "ab")  # the fault\n': ""},
        stock={"reason": "lock"},
    ),
    Broken(
        "shapes that are printed",
        """
import sys

def program(x):
    y = x.sin()
    print("shape", y.shape, file=sys.stderr, end="")  # the fault
    return y.cos()
""",
        "print",
        'print("shape", y.shape, file=sys.stderr, end="")',
        "",
        {'    print("shape", y.shape, file=sys.stderr, end="")  # the fault\n': ""},
    ),
    Broken(
        "an optimizer that decides by the value of its loss",
        """
class Plateau:
    best = float("inf")
    lr = 0.1

    def step(self, loss):
        if loss < self.best:  # the fault
            self.best = 1.0
        else:
            self.lr *= 0.5

plateau = Plateau()

def program(x):
    loss = x.square().mean()
    plateau.step(loss)
    return loss * plateau.lr
""",
        "data-dependent branch",
        "loss < self.best",
        "torch.where",
        {"    plateau.step(loss)\n": ""},
    ),
    Broken(
        "a checkpoint that is saved in the step",
        """
import io

def program(x):
    y = x.sin()
    torch.save(y, io.BytesIO())  # the fault
    return y.cos()
""",
        "skipped function",
        "torch.save(y, io.BytesIO())",
        "",
        {"    torch.save(y, io.BytesIO())  # the fault\n": ""},
        problems=2,
    ),
    Broken(
        "a padded batch that is packed",
        """
from torch.nn.utils.rnn import pack_padded_sequence as pack

def program(x):
    y = x.sin()[None]
    packed = pack(y, torch.tensor([2]), batch_first=True)  # the fault
    return packed.data * 2
""",
        "packed sequence",
        "pack(y, torch.tensor([2]), batch_first=True)",
        "give it the padded batch",
        {"pack(y, torch.tensor([2]), batch_first=True)": "y"},
    ),
    Broken(
        "a loss that % formats",
        """
log = []

def program(x):
    loss = x.square().mean()
    log.append("loss %.3f" % loss)  # the fault
    return loss.sqrt()
""",
        "tensor value read",
        '"loss %.3f" % loss',
        "read the value after the compiled function has returned",
        {'"loss %.3f" % loss': "loss.detach()"},
    ),
    Broken(
        "anomalies that are looked for in the forward",
        """
from torch.autograd import set_detect_anomaly

def program(x):
    y = x.sin()
    with set_detect_anomaly(False):  # the fault
        y = y.cos()
    return y * 2
""",
        "skipped function",
        "set_detect_anomaly(False)",
        "enter it around the call of the compiled function",
        {"    with set_detect_anomaly(False):  # the fault\n        y = y.cos()": "    y = y.cos()"},
    ),
    Broken(
        "a date that is formatted",
        """
import datetime

NAMES = []

def program(x):
    y = x.sin()
    NAMES.append(datetime.datetime.now().isoformat())  # the fault
    return y.cos()
""",
        "clock",
        "datetime.datetime.now()",
        "Read the clock before and after",
        {"    NAMES.append(datetime.datetime.now().isoformat())  # the fault\n": ""},
    ),
    Broken(
        "a checksum of a result",
        """
import zlib

SUMS = []

def program(x):
    y = x.sin()
    SUMS.append(zlib.crc32(y.numpy().tobytes()))  # the fault
    return y.cos()
""",
        "tensor value read",
        "y.numpy().tobytes()",
        "or read the value after the compiled function has returned",
        {"    SUMS.append(zlib.crc32(y.numpy().tobytes()))  # the fault\n": ""},
        problems=2,
        stock={"problems": 1},  # the other one goes with it
    ),
    Broken(
        "batches that the compiled function fetches",
        """
LOADER = torch.utils.data.DataLoader(list(torch.ones(4, 3)), batch_size=2)

def program(x):
    y = x.sin()
    for batch in LOADER:  # the fault
        y = y + batch.sum()
    return y.cos()
""",
        "skipped function",
        "for batch in LOADER:",
        "Python runs the loop, and the body of the loop is compiled as a function",
        {"    for batch in LOADER:  # the fault\n        y = y + batch.sum()\n": ""},
        grade="expected",
        stock={"grade": "blocking"},
    ),
    Broken(
        "weights that are loaded in the function",
        """
linear = torch.nn.Linear(3, 3)
SAVED = {name: value.clone() for name, value in linear.state_dict().items()}

def program(x):
    y = x.sin()
    linear.load_state_dict(SAVED)  # the fault
    return linear(y)
""",
        "skipped function",
        "linear.load_state_dict(SAVED)",
        "Call it outside of the compiled function",
        {"    linear.load_state_dict(SAVED)  # the fault\n": ""},
        stock={"reason": "other"},
    ),
    Broken(
        "a bar of progress",
        """
import sys

class Bar:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        for item in self.items:
            sys.stderr.write("")  # the fault
            yield item

def program(x):
    y = x.sin()
    for _ in Bar(range(2)):
        y = y.cos()
    return y
""",
        "print",
        'sys.stderr.write("")',
        "Return what is printed",
        {'            sys.stderr.write("")  # the fault\n': ""},
        stock={"grade": "blocking"},
    ),
]

DIVERGENCES = [
    Diverged(
        "one rank trains under no_grad",
        """
def program(x):  # the fault
    return (x * 2).sin()

def run(call):
    with torch.set_grad_enabled(rank == 0):
        call(torch.ones(3, requires_grad=True))
""",
        "guard",
        "grad",
        "grad",
        {"rank == 0": "True"},
    ),
    Diverged(
        "one rank has a mask",
        """
def program(x, mask=None):
    if mask is not None:  # the fault
        x = x.masked_fill(mask, 0.0)
    return x.softmax(-1)

def run(call):
    x = torch.ones(2, 3)
    call(x, x > 1) if rank else call(x)
""",
        "guard",
        "check_tensor(mask",
        "mask is None",
        {"call(x, x > 1) if rank else call(x)": "call(x)"},
        stock={"kind": "graph", "line": 4, "here": "masked_fill", "others": "nothing"},
    ),
    Diverged(
        "one rank scales by a value",
        """
def program(x):
    y = x.sin()
    if rank == 1:
        y = y * y.sum().item()  # the fault
    return y.cos()
""",
        "graph",
        "sum",
        "nothing",
        {"    if rank == 1:\n        y = y * y.sum().item()  # the fault\n": ""},
    ),
    Diverged(
        "another number of steps on one rank",
        """
steps = 3 if rank else 2

def program(x):
    for _ in range(steps):  # the fault
        x = x.sin()
    return x
""",
        "guard",
        "steps == 3",
        "steps == 2",
        {"3 if rank else 2": "2"},
    ),
    Diverged(
        "one rank clips its gradient",
        """
limit = 1.0 if rank else None

def program(x):
    y = x * 3
    if limit is not None:  # the fault
        y = y.clamp(max=limit)
    return y.sum()
""",
        "guard",
        "limit == 1.0",
        "limit is None",
        {"1.0 if rank else None": "None"},
    ),
]

REPEATED = [
    Repeated(
        "a recurrent cell over the steps of a sequence",
        """
cell = torch.nn.GRUCell(3, 3)

def step(state, x):
    return cell(x, state) * 0.9  # the fault

def program(x):
    state = torch.zeros(2, 3)
    for _ in range(12):
        state = step(state, x)
    return state
""",
        12,
        "step",
        compiles=2,
    ),
    Repeated(
        "steps of a sampler with other times",
        """
times = [0.1 * n for n in range(10)]

def denoised(x, time):
    noise = (x + time).tanh()  # the fault
    return x - 0.1 * noise

def program(x):
    for time in times:
        x = denoised(x, time)
    return x
""",
        10,
        "denoised",
        compiles=2,
    ),
    Repeated(
        "rows that are normalised one by one",
        """
def normalised(row):
    return row / row.norm()  # the fault

def program(x):
    rows = x.repeat(4, 1)
    return torch.stack([normalised(row) for row in rows.unbind(0)])
""",
        8,
        "normalised",
    ),
]

SAVED = [
    Saved(
        "distances of all pairs",
        """
def program(x, w):
    rows = x @ w[:, :64]
    distances = torch.cdist(rows, rows)  # the fault
    return distances.sum()
"""
        + WEIGHTS,
        256 * 256 * 4,
        {"x @ w[:, :64]": "x[:16] @ w[:, :64]"},
    ),
    Saved(
        "a table of one-hot rows",
        """
def program(x, w):
    rows = torch.nn.functional.one_hot(torch.arange(256), 4096).float() * w.sum()  # the fault
    return rows.exp().sum() + x.sum()
"""
        + WEIGHTS,
        256 * 4096 * 4,
        {"torch.arange(256), 4096)": "torch.arange(2), 4096)"},
    ),
]

INEXACT = [
    Inexact(
        "a softmax by hand that overflows",
        """
def program(x):
    weights = (x * 60 + 70).exp()  # the fault
    return (weights / weights.sum(-1, keepdim=True)) @ x.t()
""",
        repair={"(x * 60 + 70).exp()": "(x * 6 - 6).exp()"},
    ),
    Inexact(
        "a mean of half precision",
        """
def program(x):
    total = (x.half() * 30000).sum(0)  # the fault
    return total[None] @ x.half().t()
""",
        repair={".half()": ""},
    ),
]

MISSED = [
    Missed(
        "a layout of the input",
        """
def program(x):
    return (x * 2).cos()  # the fault

def run(call):
    x = torch.ones(4, 4)
    call(x.t() if rank else x)
""",
        "inputs[0]",
        "stride=(4, 1)",
        "stride=(1, 4)",
        {"x.t() if rank else x": "x"},
    ),
    Missed(
        "an epsilon from a configuration",
        """
norm = torch.nn.LayerNorm(4, eps=1e-5 if rank else 1e-6)

def program(x):
    return norm(x)  # the fault

def run(call):
    call(torch.ones(6, 4))
""",
        "graph",
        "1e-06",
        "1e-05",
        {"1e-5 if rank else 1e-6": "1e-6"},
    ),
]
