"""Planted faults in what scripts have besides their models: caches, meters, averages of weights, logs, schedules."""

from __future__ import annotations

from tests.faults.fault import Broken, Change, Inexact, Missed, Recompiled, Repeated

RECOMPILES = [
    Recompiled(
        "numbers of two types that a function reads which is not compiled",
        """
scales = []

@torch.compiler.disable
def read():
    return scales.pop(0)

def program(x):
    y = x.sin()
    scale = read()
    return y * scale  # the fault

def run(call):
    scales[:] = [2, 0.5]
    for _ in range(2):
        call(torch.ones(3))
""",
        "read()",
        "class",
        "int",
        "float",
        (
            Change(
                "of a break",
                {"program(x)": "program(x, scale)", "    scale = read()\n": "", "ones(3))": "ones(3), float(read()))"},
                {"dynamic": True},
            ),
        ),
        compiles=3,
        breaks=1,
    ),
    Recompiled(
        "a counter of itertools in the function",
        """
import itertools

counter = itertools.count()

def program(x):
    step = next(counter)  # the fault
    return x * (1 + step)

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "counter",
        "value",
        "0",
        "1",
        (
            Change(
                "call before",
                {
                    "program(x)": "program(x, step)",
                    "    step = next(counter)  # the fault\n": "",
                    "ones(3))": "ones(3), next(counter))",
                },
                compiles=2,
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"name": "next(counter)", "aspect": "result", "got": "", "compiles": 3, "remedy": "call before"},
    ),
    Recompiled(
        "a step of a sampler, a tensor of one number, that is an index",
        """
alphas = torch.linspace(0.1, 0.9, 10)

def program(x, t):
    return x * alphas[t]  # the fault

def run(call):
    for t in (5, 4, 3):
        call(torch.ones(3), torch.tensor(t))
""",
        "t.item()",
        "value",
        "5",
        "4",
        (Change("an index", {"alphas[t]": "alphas[t.reshape(1)]"}),),
        compiles=3,
        on_core=False,
    ),
    Recompiled(
        "a count of steps in an attribute, of which each tenth is another",
        """
class Loop:
    def __init__(self):
        self.step = 0

loop = Loop()

def program(loss):
    loop.step += 1  # the fault
    return loss.sum() if loop.step % 10 == 0 else loss.mean()

def run(call):
    for step in range(4):
        call(torch.ones(3))
""",
        "loop.step",
        "value",
        "0",
        "1",
        (
            Change(
                "an argument",
                {
                    "program(loss)": "program(loss, step)",
                    "    loop.step += 1  # the fault": "    step += 1",
                    "if loop.step %": "if step %",
                    "call(torch.ones(3))": "call(torch.ones(3), step)",
                },
                compiles=2,
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"remedy": "an argument", "compiles": 4},
        logs={"remedy": "a tensor"},
    ),
    Recompiled(
        "a length of sequences that a property makes of the epoch",
        """
class Curriculum:
    def __init__(self):
        self.epoch = 0

    @property
    def longest(self):
        return 4 + 2 * self.epoch  # the fault

curriculum = Curriculum()

def program(tokens):
    return tokens[:, : curriculum.longest].cumsum(1)

def run(call):
    for curriculum.epoch in range(4):
        call(torch.ones(2, 16))
""",
        "curriculum.epoch",
        "value",
        "0",
        "1",
        (
            Change(
                "a tensor",
                {
                    "program(tokens)": "program(tokens, longest)",
                    "curriculum.longest].": "longest].",
                    "16))": "16), curriculum.longest)",
                },
                compiles=2,
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"remedy": "a tensor", "compiles": 4},
    ),
    Recompiled(
        "a mask that only some batches have",
        """
from typing import NamedTuple

class Batch(NamedTuple):
    x: torch.Tensor
    mask: torch.Tensor | None = None

def program(batch):
    y = batch.x.sin()
    return y if batch.mask is None else y.masked_fill(batch.mask, 0)  # the fault

def run(call):
    x = torch.ones(3)
    call(Batch(x))
    call(Batch(x, x > 2))
""",
        "batch.mask",
        "value",
        "None",
        "a Tensor",
        (Change("not None", {"Batch(x))": "Batch(x, x > 2))"}),),
    ),
    Recompiled(
        "a cache of rows that drops the oldest",
        """
from collections import OrderedDict

class Cache:
    def __init__(self):
        self.rows = OrderedDict()

    def put(self, key, value):
        self.rows[key] = value  # the fault
        if len(self.rows) > 2:
            self.rows.popitem(last=False)

cache = Cache()

def program(x, key):
    cache.put(key, x * 2)
    return sum(cache.rows.values())

def run(call):
    for step in range(4):
        call(torch.ones(3) * step, step)
""",
        "cache.rows",
        "keys",
        "[0, 1]",
        "[1, 2]",
        (
            Change(
                "no growing dict",
                {
                    "program(x, key):\n    cache.put(key, x * 2)\n    return sum(cache.rows.values())": "program(x):\n"
                    "    return x * 2",
                    "call(torch.ones(3) * step, step)": "cache.put(step, call(torch.ones(3) * step))",
                },
            ),
        ),
        compiles=4,
        is_confirmed=False,  # another key is passed, too
    ),
    Recompiled(
        "an average of weights that starts as None",
        """
import copy

class Average:
    def __init__(self):
        self.shadow = None

    def update(self):
        if self.shadow is None:  # the fault
            self.shadow = copy.deepcopy(model.state_dict())
        for name, value in model.state_dict().items():
            self.shadow[name] = self.shadow[name] * 0.9 + value * 0.1

model = torch.nn.Linear(3, 3)
average = Average()

def program(x):
    y = model(x)
    average.update()
    return y.relu()

def run(call):
    with torch.no_grad():
        for _ in range(2):
            call(torch.ones(2, 3))
""",
        "average.shadow",
        "value",
        "None",
        "an OrderedDict",
        (Change("a value at first", {"self.shadow = None": "self.shadow = copy.deepcopy(model.state_dict())"}),),
        compiles=3,  # with the rest after the graph break
        breaks=1,
        stock=None,  # which captures nothing in the first call
    ),
    Recompiled(
        "a warm-up that a property of a configuration compares",
        """
from dataclasses import dataclass

@dataclass
class Config:
    warmup: int = 5
    step: int = 0

    @property
    def is_warm(self):
        return self.step >= self.warmup  # the fault

class Net(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.proj = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.proj(x)
        return y + x if self.config.is_warm else y

config = Config()
program = Net(config)

def run(call):
    for step in range(4):
        config.step = step
        call(torch.arange(6.0).reshape(2, 3))
""",
        "self.config.step",
        "value",
        "0",
        "1",
        (Change("an argument", {"config.step = step": "config.step = 0"}, engines=("torch",)),),
        remedy="symbolic number",
        stock={"compiles": 4, "remedy": "an argument"},
    ),
]

BREAKS = [
    Broken(
        "a value that is read as a context manager ends",
        """
import contextlib

@contextlib.contextmanager
def counted(stats):
    stats["steps"] = stats.get("steps", 0) + 1
    try:
        yield
    finally:
        stats["norms"] = int(stats["norm"].item())  # the fault

stats = {}

def program(x):
    with counted(stats):
        y = x.sin()
        stats["norm"] = y.norm() * 10
    return y * 2
""",
        "tensor value read",
        'int(stats["norm"].item())',
        "read the value after",
        {'int(stats["norm"].item())': 'stats["norm"]'},
        stock={"grade": "blocking"},
    ),
    Broken(
        "a generator that averages what it is sent",
        """
def averager():
    total, count = 0.0, 0
    while True:
        value = yield total / max(count, 1)
        total, count = total + value, count + 1

average = averager()
next(average)

def program(x):
    y = x.sin()
    mean = average.send(y.sum())  # the fault
    return y - mean
""",
        "unsupported attribute",
        "average.send",
        "No change is known",
        {"average.send(y.sum())": "y.sum()"},
        stock={"reason": "generator"},
    ),
    Broken(
        "a mean of each layer that is written to a log",
        """
import io

log = io.StringIO()

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x).relu()
            log.write(f"layer {i}: {x.mean():.3f}")  # the fault
        return x

program = Encoder()
""",
        "print",
        'log.write(f"layer {i}: {x.mean():.3f}")',
        "after the compiled function",
        {'log.write(f"layer {i}: {x.mean():.3f}")': "x = x * 2"},
        stock={"grade": "blocking"},
    ),
]

REPEATED = [
    Repeated(
        "Euler steps over a dict of weights",
        """
WEIGHTS = {"a": torch.full((3, 3), 0.1), "b": torch.full((3, 3), 0.2)}

def drift(y, t):
    hidden = (y @ WEIGHTS["a"] + t).tanh()  # the fault
    return hidden @ WEIGHTS["b"]

def program(x):
    y, t = x, 0.0
    while t < 0.95:
        y = y + 0.1 * drift(y, t)
        t += 0.1
    return y
""",
        10,
        "drift",
        compiles=2,
    ),
    Repeated(
        "experts that all see each token",
        """
class Expert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(3, 6)
        self.down = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x)))  # the fault

experts = torch.nn.ModuleList(Expert() for _ in range(9))

def program(x):
    return sum(expert(x) for expert in experts)
""",
        9,
        "Expert.forward",
    ),
    Repeated(
        "residual blocks in a nested Sequential",
        """
class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.LayerNorm(3), torch.nn.Linear(3, 3), torch.nn.GELU())

    def forward(self, x):
        return x + self.body(x)  # the fault

model = torch.nn.Sequential(*(torch.nn.Sequential(Residual(), Residual()) for _ in range(4)))

def program(x):
    return model(x).mean()
""",
        8,
        "Residual.forward",
        compiles=2,
    ),
]

INEXACT = [
    Inexact(
        "a norm of squares that overflows",
        """
def program(x):
    large = x.half() * 200
    squares = large * large  # the fault
    return squares.sum().sqrt().float() * x
""",
        repair={"x.half()": "x"},
    ),
    Inexact(
        "a logarithm of a softmax that underflows",
        """
def program(x):
    probabilities = (x * 100).softmax(-1)
    loss = probabilities.log()  # the fault
    return loss @ x.t()
""",
        repair={"probabilities.log()": "(x * 100).log_softmax(-1)"},
    ),
]

MISSED = [
    Missed(
        "an activation from a configuration",
        """
config = {"act": "relu" if rank == 0 else "tanh"}

def program(x):
    return getattr(torch, config["act"])(x) * 2  # the fault
""",
        "graph",
        "relu",
        "tanh",
        {'"relu" if rank == 0 else "tanh"': '"relu"'},
    ),
    Missed(
        "a dtype from a configuration",
        """
def program(x):
    return (x * 2).sin()  # the fault

def run(call):
    call(torch.ones(6, 4, dtype=torch.float64 if rank else torch.float32))
""",
        "inputs[0]",
        "float32",
        "float64",
        {"torch.float64 if rank else torch.float32": "torch.float32"},
    ),
    Missed(
        "a number of layers",
        """
def program(x):
    for _ in range(2 + rank):
        x = x.sin()  # the fault
    return x
""",
        "graph",
        "sin",
        "sin",
        {"2 + rank": "2"},
    ),
    Missed(
        "the number of threads",
        """
torch.set_num_threads(1 + rank)

def program(x):
    return (x * 2).sin()  # the fault
""",
        "thread",
        "1",
        "2",
        {"1 + rank": "1"},
    ),
]
