"""Planted faults of other kinds than those of the corpus, written after it to see how far it carries."""

from __future__ import annotations

from tests.faults.breaks import SHAPES
from tests.faults.costs import WEIGHTS
from tests.faults.fault import Broken, Change, Diverged, Inexact, Missed, Recompiled, Repeated, Saved

RECOMPILES = [
    Recompiled(
        "a field of a named tuple",
        """
from typing import NamedTuple

class Batch(NamedTuple):
    image: torch.Tensor
    mode: str

def program(batch):
    return batch.image.mean() if batch.mode == "mean" else batch.image.sum()  # the fault

def run(call):
    for mode in ("mean", "sum"):
        call(Batch(torch.ones(3), mode))
""",
        "batch.mode",
        "value",
        "'mean'",
        "'sum'",
        (Change("few values", {'("mean", "sum")': '("mean", "mean")'}),),
    ),
    Recompiled(
        "an option that is left out",
        """
def program(x, *, scale=None):
    return x.sin() if scale is None else x * scale  # the fault

def run(program):
    return [program(torch.ones(3)), program(torch.ones(3), scale=2.0)]
""",
        "scale",
        "value",
        "None",
        "2.0",
        (Change("not None", {"program(torch.ones(3)), ": "program(torch.ones(3), scale=2.0), "}),),
    ),
    Recompiled(
        "another activation in a list",
        """
def program(x, activations):
    for activation in activations:
        x = activation(x)  # the fault
    return x

def run(call):
    call(torch.ones(3), [torch.sin, torch.cos])
    call(torch.ones(3), [torch.sin, torch.tanh])
""",
        "activations[1]",
        "identity",
        "torch.cos",
        "torch.tanh",
        (Change("same object", {"torch.tanh": "torch.cos"}),),
        stock={"expected": "the object at capture", "got": "another object"},
    ),
    Recompiled(
        "complex numbers",
        """
def program(spectrum):
    return (spectrum * 2).abs()  # the fault

def run(call):
    call(torch.ones(3))
    call(torch.fft.fft(torch.ones(3)))
""",
        "spectrum",
        "dtype",
        "torch.float32",
        "torch.complex64",
        (Change("one dtype", {"call(torch.ones(3))": "call(torch.ones(3).to(torch.complex64))"}),),
    ),
    Recompiled(
        "an expanded tensor",
        """
def program(mask):
    return mask * 2  # the fault

def run(call):
    call(torch.ones(4, 3))
    call(torch.ones(1, 3).expand(4, 3))
""",
        "mask",
        "stride",
        "(3, 1)",
        "(0, 1)",
        (Change("one layout", {"expand(4, 3)": "expand(4, 3).contiguous()"}),),
    ),
    Recompiled(
        "images in channels_last",
        """
def program(images):
    return images.relu()  # the fault

def run(call):
    images = torch.ones(2, 3, 4, 5)
    call(images)
    call(images.to(memory_format=torch.channels_last))
""",
        "images",
        "stride",
        "(60, 20, 5, 1)",
        "(60, 1, 15, 3)",
        (Change("one layout", {"channels_last)": "channels_last).contiguous()"}),),
    ),
    Recompiled(
        "a cache that is empty at first",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = None

    def forward(self, x):
        return x if self.cache is None else x + self.cache  # the fault

program = Model()

def run(call):
    call(torch.ones(3))
    program.cache = torch.ones(3)
    call(torch.ones(3))
""",
        "self.cache",
        "value",
        "None",
        "a Tensor",
        (Change("a value at first", {"self.cache = None": "self.cache = torch.zeros(3)"}),),
        stock=None,  # which captures nothing in the first call, and does not try again
    ),
    Recompiled(
        "a slice",
        """
def program(x, part):
    return x[part] * 2  # the fault

def run(call):
    call(torch.ones(6), slice(0, 2))
    call(torch.ones(6), slice(0, None))
""",
        "part.stop",
        "value",
        "2",
        "None",
        (Change("not None", {"slice(0, None)": "slice(0, 2)"}),),
    ),
    Recompiled(
        "a layer that is appended",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

    def forward(self, x):
        for layer in self.layers:  # the fault
            x = layer(x)
        return x

program = Model()

def run(call):
    call(torch.ones(2, 3))
    program.layers.append(torch.nn.Linear(3, 3))
    call(torch.ones(2, 3))
""",
        "self.layers",
        "keys",
        "['0']",
        "['0', '1']",
        (Change("modules before", {"    program.layers.append(torch.nn.Linear(3, 3))\n": ""}),),
    ),
    Recompiled(
        "another number of arguments",
        """
def program(*tensors):
    return sum(tensors)  # the fault

def run(call):
    call(torch.ones(3), torch.ones(3))
    call(torch.ones(3), torch.ones(3), torch.ones(3))
""",
        "tensors",
        "length",
        "2",
        "3",
        (
            Change(
                "one length",
                {"call(torch.ones(3), torch.ones(3))\n": "call(torch.ones(3), torch.ones(3), torch.ones(3))\n"},
            ),
        ),
    ),
    Recompiled(
        "a tuple in place of a list",
        """
def program(x, shape):
    return x.reshape(*shape) * 2  # the fault

def run(call):
    call(torch.ones(6), [2, 3])
    call(torch.ones(6), (2, 3))
""",
        "shape",
        "class",
        "list",
        "tuple",
        (Change("one type", {"(2, 3)": "[2, 3]"}),),
    ),
    Recompiled(
        "a learning rate in a dict of floats that a scheduler changes",
        """
groups = [{"lr": 0.1}]

def program(x):
    return x - groups[0]["lr"] * x.cos()  # the fault

def run(call):
    for _ in range(3):
        call(torch.ones(3))
        groups[0]["lr"] *= 0.5
""",
        "groups[0]['lr']",
        "value",
        "0.1",
        "0.05",
        (Change("symbolic number", {"0.1}": "torch.tensor(0.1)}"}),),
    ),
    Recompiled(
        "a partial of another function",
        """
import functools

def program(x, act):
    return act(x) + 1  # the fault

def run(call):
    call(torch.ones(3), functools.partial(torch.clamp, min=0.0))
    call(torch.ones(3), functools.partial(torch.clamp, min=0.5))
""",
        "act.keywords['min']",
        "value",
        "0.0",
        "0.5",
        (Change("symbolic number", {"min=0.5": "min=0.0"}),),
    ),
    Recompiled(
        "a key/value cache that grows by cat",
        """
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = torch.zeros(2, 4)

    def forward(self, x):
        scores = self.keys @ x  # the fault
        return scores.softmax(0)

program = Attention()

def run(call):
    for _ in range(3):
        call(torch.ones(4))
        program.keys = torch.cat([program.keys, torch.ones(1, 4)])
""",
        "self.keys",
        "size",
        "2",
        "3",
        (Change("dynamic sizes", options={"dynamic": True}),),
    ),
    Recompiled(
        "a string built from the epoch",
        """
def program(x, tag):
    return x * 2 if tag.startswith("train") else x * 3  # the fault

def run(call):
    for epoch in range(2):
        call(torch.ones(3), f"train/{epoch}")
""",
        "tag",
        "value",
        "'train/0'",
        "'train/1'",
        (Change("few values", {'f"train/{epoch}"': '"train"'}),),
    ),
    Recompiled(
        "an image size as a tuple",
        """
def program(x, size):
    return torch.nn.functional.interpolate(x, size=size)  # the fault

def run(call):
    call(torch.ones(1, 1, 4, 4), (8, 8))
    call(torch.ones(1, 1, 4, 4), (6, 8))
""",
        "size[0]",
        "value",
        "8",
        "6",
        (Change("dynamic numbers", options={"dynamic": True}),),
    ),
    Recompiled(
        "one more layer by a depth argument",
        """
layers = [torch.full((3, 3), 0.1) for _ in range(4)]

def program(x, depth):
    for weight in layers[:depth]:  # the fault
        x = (x @ weight).relu()
    return x

def run(call):
    for depth in [2, 3]:
        call(torch.ones(2, 3), depth)
""",
        "depth",
        "value",
        "2",
        "3",
        (Change("few values", {"[2, 3]": "[2, 2]"}),),
    ),
    Recompiled(
        "a batch of another length in one list",
        """
def program(xs):
    return sum(x.sum() for x in xs)  # the fault

def run(call):
    call([torch.ones(3), torch.ones(4)])
    call([torch.ones(3), torch.ones(5)])
""",
        "xs[1]",
        "size",
        "4",
        "5",
        (Change("dynamic sizes", options={"dynamic": True}),),
    ),
    Recompiled(
        "a global list of hooks",
        """
HOOKS = []

def program(x):
    for hook in HOOKS:  # the fault
        x = hook(x)
    return x * 2

def run(call):
    call(torch.ones(3))
    HOOKS.append(torch.sin)
    call(torch.ones(3))
""",
        "HOOKS",
        "length",
        "0",
        "1",
        (Change("one length", {"HOOKS = []": "HOOKS = [torch.sin]", "    HOOKS.append(torch.sin)\n": ""}),),
    ),
    Recompiled(
        "a shape assertion with a message",
        """
def attend(q, k, mask=None):
    assert q.shape[-1] == k.shape[-1], f"heads differ: {q.shape} {k.shape}"
    scores = q @ k.transpose(-1, -2)
    if mask is not None:  # the fault
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1)

def program(q, k, mask=None):
    return attend(q, k, mask)

def run(call):
    q = torch.arange(6.0).reshape(2, 3)
    call(q, q)
    call(q, q, torch.tensor([[False, True], [False, False]]))
""",
        "mask",
        "value",
        "None",
        "a Tensor",
        (Change("not None", {"    call(q, q)\n": ""}),),
    ),
    Recompiled(
        "a nested batch with another key",
        """
def program(batch):
    total = batch["inputs"]["ids"].float().mean()
    for name, extra in batch["extras"].items():  # the fault
        total = total + extra.sum()
    return total

def run(call):
    ids = torch.arange(4)
    call({"inputs": {"ids": ids}, "extras": {"weight": torch.ones(3)}})
    call({"inputs": {"ids": ids}, "extras": {"weight": torch.ones(3), "bias": torch.ones(3)}})
""",
        "batch['extras']",
        "keys",
        "['weight']",
        "['weight', 'bias']",
        (Change("all keys", {', "bias": torch.ones(3)': ""}),),
    ),
    Recompiled(
        "a generator of chunks",
        """
def chunks(x, size):
    for start in range(0, x.shape[0], size):  # the fault
        yield x[start : start + size]

def program(x, size):
    return torch.stack([c.sum() for c in chunks(x, size)])

def run(call):
    for size in (2, 3, 4):
        call(torch.arange(12.0), size)
""",
        "size",
        "value",
        "2",
        "3",
        (Change("few values", {"(2, 3, 4)": "(2, 2, 2)"}),),
        compiles=3,
    ),
    Recompiled(
        "batches of 0, 1 and 2",
        """
def program(boxes):
    return boxes.sum(0) * 2  # the fault

def run(call):
    for count in (2, 1, 0):
        call(torch.ones(count, 4))
""",
        "boxes",
        "size",
        "2",
        "1",
        (Change("sizes 0 and 1", {"(2, 1, 0)": "(2, 2, 2)"}),),
        compiles=3,
    ),
    Recompiled(
        "a frozen backbone after the first epoch",
        """
backbone = torch.nn.Linear(3, 3)
head = torch.nn.Linear(3, 1)
for p in [*backbone.parameters(), *head.parameters()]:
    torch.nn.init.constant_(p, 0.5)

def program(x):
    return head(backbone(x).relu()).sum()  # the fault

def run(call):
    call(torch.ones(2, 3))
    for p in backbone.parameters():
        p.requires_grad_(False)
    call(torch.ones(2, 3))
""",
        "backbone.weight",
        "requires_grad",
        "True",
        "False",
        (Change("one requires_grad", {"p.requires_grad_(False)": "pass"}),),
        is_confirmed=False,
        stock={"name": "backbone.bias"},
    ),
    Recompiled(
        "a device given as text and as an object",
        """
def program(x, device):
    return x.to(device) + torch.arange(3.0, device=device)  # the fault

def run(call):
    call(torch.ones(3), "cpu")
    call(torch.ones(3), torch.device("cpu"))
""",
        "device",
        "class",
        "str",
        "device",
        (Change("one type", {'call(torch.ones(3), "cpu")': 'call(torch.ones(3), torch.device("cpu"))'}),),
    ),
    Recompiled(
        "gradient clipping only in some steps",
        """
def program(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    if max_norm:  # the fault
        grads = [g * (max_norm / (norm + 1e-6)).clamp(max=1.0) for g in grads]
    return grads

def run(call):
    grads = [torch.ones(3), torch.ones(2)]
    for max_norm in (None, 1.0, 0):
        call(grads, max_norm)
""",
        "max_norm",
        "value",
        "None",
        "1.0",
        (Change("not None", {"(None, 1.0, 0)": "(1.0, 1.0)"}),),
        compiles=3,
        problems=2,
    ),
]

BREAKS = [
    Broken(
        "an identifier of the batch",
        """
import uuid

seen = []

def program(x):
    y = x.sin()
    seen.append(uuid.uuid4().hex)  # the fault
    return y.cos()
""",
        "skipped function",
        "uuid.uuid4()",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    seen.append(uuid.uuid4().hex)  # the fault\n": "seen.append(uuid.uuid4().hex)\n\ndef program(x):\n    y = x.sin()\n"
        },
    ),
    Broken(
        "an expression in a string",
        """
def program(x):
    y = x.sin()
    y = eval("y * 2")  # the fault
    return y.cos()
""",
        "skipped function",
        'eval("y * 2")',
        "",
        {'eval("y * 2")': "y * 2"},
        stock=None,
    ),
    Broken(
        "collecting garbage",
        """
import gc

def program(x):
    y = x.sin()
    gc.collect()  # the fault
    return y.cos()
""",
        "skipped function",
        "gc.collect()",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    gc.collect()  # the fault\n": "gc.collect()\n\ndef program(x):\n    y = x.sin()\n"
        },
    ),
    Broken(
        "a seed in the function",
        """
def program(x):
    y = x.sin()
    torch.manual_seed(0)  # the fault
    return y + 1
""",
        "skipped function",
        "torch.manual_seed(0)",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    torch.manual_seed(0)  # the fault\n": "torch.manual_seed(0)\n\ndef program(x):\n    y = x.sin()\n"
        },
    ),
    Broken(
        "the size of a pickle",
        """
import pickle

config = {"width": 3}

def program(x):
    y = x.sin()
    size = len(pickle.dumps(config))  # the fault
    return y * size
""",
        "skipped function",
        "pickle.dumps(config)",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    size = len(pickle.dumps(config))  # the fault\n": "size = len(pickle.dumps(config))\n\ndef program(x):\n    y = x.sin()\n"
        },
    ),
    Broken(
        "a value in a list",
        """
def program(x):
    y = x.round()
    if y[0, 0] in [1.0, 2.0]:  # the fault
        y = y * 2
    return y.cos()
""",
        "data-dependent branch",
        "y[0, 0] in [1.0, 2.0]",
        "torch.where",
        {
            "    if y[0, 0] in [1.0, 2.0]:  # the fault\n        y = y * 2\n": "    y = torch.where((y[0, 0] == 1) | (y[0, 0] == 2), y * 2, y)\n"
        },
    ),
    Broken(
        "the names of a function",
        """
def program(x):
    y = x.sin()
    names = sorted(locals())  # the fault
    return y * len(names)
""",
        "skipped function",
        "locals()",
        "",
        {"sorted(locals())": '["x", "y"]'},
        stock=None,
    ),
    Broken(
        "a warning to the user",
        """
import warnings

warnings.simplefilter("ignore")

def program(x):
    y = x.sin()
    warnings.warn("old argument")  # the fault
    return y.cos()
""",
        "print",
        'warnings.warn("old argument")',
        "after the compiled function",
        {'    warnings.warn("old argument")  # the fault\n': ""},
    ),
    Broken(
        "the largest element by its place",
        """
def program(x):
    y = x.sin().flatten()
    best = y[y.argmax()]  # the fault
    return best * 2
""",
        "tensor value read",
        "y[y.argmax()]",
        "Compute with the tensor itself",
        {"y[y.argmax()]": "y.gather(0, y.argmax(keepdim=True))[0]"},
        on_core=False,
    ),
    Broken(
        "parts as long as a tensor says",
        """
def program(x):
    y = x.sin().flatten()
    lengths = x[:, 0].long() + 1
    first, second = torch.split(y, lengths.tolist() if False else [2, int(lengths[0]) + 2])  # the fault
    return first.sum() + second.sum()
""",
        "tensor value read",
        "torch.split(y, lengths.tolist() if False else [2, int(lengths[0]) + 2])",
        "read the value after",
        {"lengths.tolist() if False else [2, int(lengths[0]) + 2]": "[2, 4]"},
        on_core=False,
    ),
    Broken(
        "an array of a tensor",
        """
import numpy as np

means = []

def program(x):
    y = x.sin()
    means.append(np.asarray(y).mean())  # the fault
    return y.cos()
""",
        "NumPy",
        "np.asarray(y)",
        "Call the function of torch",
        {"np.asarray(y).mean()": "y.mean()"},
        stock=None,
    ),
    Broken(
        "a gradient in the function",
        """
w = torch.ones(3, requires_grad=True)

def program(x):
    y = (x * w).sin().sum()
    (gradient,) = torch.autograd.grad(y, w)  # the fault
    return gradient * 2
""",
        "backward",
        "torch.autograd.grad(y, w)",
        "Nothing to change",
        {"(gradient,) = torch.autograd.grad(y, w)": "gradient = (x * (x * w).cos()).sum(0).detach()"},
        grade="expected",
    ),
    Broken(
        "the number of a line",
        """
import inspect

def program(x):
    y = x.sin()
    line = inspect.currentframe().f_lineno  # the fault
    return y * line
""",
        "skipped function",
        "inspect.currentframe()",
        "",
        {"inspect.currentframe().f_lineno": "6"},
    ),
    Broken(
        "a pause",
        """
import time

def program(x):
    y = x.sin()
    time.sleep(0)  # the fault
    return y.cos()
""",
        "skipped function",
        "time.sleep(0)",
        "do it before the compiled function",
        {"    time.sleep(0)  # the fault\n": ""},
    ),
    Broken(
        "a while loop until it converges",
        """
def program(x):
    y = x / 10
    while y.abs().max() > 0.3:  # the fault
        y = y * 0.5
    return y.cos()
""",
        "data-dependent branch",
        "y.abs().max() > 0.3",
        "the body of the loop is compiled as a function",
        {"while y.abs().max() > 0.3:": "for _ in range(1):"},
        grade="expected",
        stock={"grade": "costly"},
    ),
    Broken(
        "an environment variable that is set",
        """
import os

def program(x):
    y = x.sin()
    os.environ["STEP"] = "1"  # the fault
    return y.cos()
""",
        "skipped function",
        'os.environ["STEP"]',
        "",
        {'    os.environ["STEP"] = "1"  # the fault\n': ""},
    ),
    Broken(
        "a loss that is compared with the best so far",
        """
best = [float("inf")]

def program(x):
    loss = x.square().mean()
    if loss < best[0]:  # the fault
        best[0] = 1.0
    return loss * 2
""",
        "data-dependent branch",
        "loss < best[0]",
        "",
        {"    if loss < best[0]:  # the fault\n        best[0] = 1.0\n": ""},
    ),
    Broken(
        "subprocess in the forward",
        """
import subprocess

def program(x):
    y = x.sin()
    subprocess.run(["true"])  # the fault
    return y.cos()
""",
        "skipped function",
        'subprocess.run(["true"])',
        "do it before the compiled function",
        {
            'def program(x):\n    y = x.sin()\n    subprocess.run(["true"])  # the fault\n': 'subprocess.run(["true"])\n\ndef program(x):\n    y = x.sin()\n'
        },
    ),
    Broken(
        "torch.equal as a condition",
        """
def program(x):
    y = x.sin()
    if torch.equal(x, y):  # the fault
        y = y * 2
    return y.cos()
""",
        "tensor value read",
        "torch.equal(x, y)",
        "Compute with the tensor itself",
        {"    if torch.equal(x, y):  # the fault\n        y = y * 2\n": ""},
    ),
    Broken(
        "the number of each label",
        """
def program(x):
    labels = x.long().flatten()
    counts = torch.bincount(labels)  # the fault
    return counts.float().mean()
""",
        "tensor value read",
        "torch.bincount(labels)",
        "Compute with the tensor itself",
        {"torch.bincount(labels)": "torch.zeros(8).scatter_add(0, labels, torch.ones(6))"},
        on_core=False,
    ),
    Broken(
        "the date",
        """
import datetime

def program(x):
    y = x.sin()
    stamp = datetime.datetime.now()  # the fault
    return y * min(stamp.year, 2)
""",
        "clock",
        "datetime.datetime.now()",
        "Read the clock before and after",
        {"    stamp = datetime.datetime.now()  # the fault\n    return y * min(stamp.year, 2)": "    return y * 2"},
    ),
    Broken(
        "a metric that is not compiled",
        """
@torch.compiler.disable
def metric(y):
    return y.sum()

def program(x):
    y = x.sin()
    m = metric(y)  # the fault
    return y.cos() + m
""",
        "asked for",
        "metric(y)",
        "mark of the function",
        {"@torch.compiler.disable\n": ""},
        grade="expected",
    ),
    Broken(
        "the time of a step",
        """
import time

def program(x, start=0.0):
    y = (x @ x.T).relu().sum()
    elapsed = time.perf_counter() - start  # the fault
    return y + 0 * elapsed
""",
        "clock",
        "time.perf_counter()",
        "before and after the compiled function",
        {"time.perf_counter() - start": "start"},
    ),
    Broken(
        "a random choice of Python",
        """
import random

random.seed(0)

def program(x):
    y = x.cos()
    scale = random.choice([1.0, 1.0])  # the fault
    return y * scale
""",
        "skipped function",
        "random.choice([1.0, 1.0])",
        "do it before the compiled function",
        {"random.choice([1.0, 1.0])": "1.0"},
    ),
    Broken(
        "a set of indices from a mask",
        """
def program(tokens, pad=0):
    kept = tokens[tokens != pad]  # the fault
    return kept.float().mean() * 2

def run(call):
    call(torch.tensor([1, 2, 0, 0]))
""",
        "tensor value read",
        "tokens[tokens != pad]",
        "torch.where",
        {
            "    kept = tokens[tokens != pad]  # the fault\n    return kept.float().mean() * 2": "    mask = tokens != pad\n    return torch.where(mask, tokens, 0).sum() / mask.sum() * 2"
        },
        config=SHAPES,
        on_core=False,
    ),
]

DIVERGENCES = [
    Diverged(
        "one rank computes no gradients",
        """
w = torch.ones(3, requires_grad=True)

def program(x):  # the fault
    return x * w

def run(program):
    with torch.set_grad_enabled(rank == 0):
        return [program(torch.ones(3))]
""",
        "guard",
        "grad mode off",
        "grad mode on",
        {"rank == 0": "True"},
    ),
    Diverged(
        "images in channels_last on one rank",
        """
def program(images):
    return images.relu()  # the fault

def run(call):
    images = torch.ones(2, 3, 4, 5)
    call(images.to(memory_format=torch.channels_last) if rank else images)
""",
        "guard",
        "1, 15, 3",
        "20, 5, 1",
        {"images.to(memory_format=torch.channels_last) if rank else images": "images"},
    ),
    Diverged(
        "a key more on one rank",
        """
def program(batch):
    return sum(batch.values())  # the fault

def run(call):
    batch = {"a": torch.ones(3), "b": torch.ones(3)}
    call(batch | {"weight": torch.ones(3)} if rank else batch)
""",
        "guard",
        "weight",
        "",
        {'batch | {"weight": torch.ones(3)} if rank else batch': "batch"},
    ),
    Diverged(
        "another probability of dropout on one rank",
        """
p = 0.1 + 0.2 * rank

def program(x):
    return torch.nn.functional.dropout(x, p, False) * p  # the fault
""",
        "guard",
        "0.3",
        "0.1",
        {"0.1 + 0.2 * rank": "0.1"},
    ),
    Diverged(
        "one rank reads a value",
        """
def program(x):
    loss = x.sin().sum()
    if rank == 0:
        print(loss.item(), end="")  # the fault
    return loss * 2
""",
        "graph break",
        "nothing",
        "print",
        {'    if rank == 0:\n        print(loss.item(), end="")  # the fault\n': ""},
        stock={"others": "tensor value read"},
    ),
]

REPEATED = [
    Repeated(
        "loops in loops",
        """
weights = [[torch.full((3, 3), 0.1) for _ in range(4)] for _ in range(3)]

def layer(x, weight):
    return (x @ weight).relu()  # the fault

def program(x):
    for row in weights:
        for weight in row:
            x = layer(x, weight)
    return x
""",
        12,
        "layer",
    ),
    Repeated(
        "losses of each class",
        """
def loss(x, label):
    return (x - label).square().mean()  # the fault

def program(x):
    total = x.sum() * 0
    for label in range(9):
        total = total + loss(x, label)
    return total
""",
        9,
        "loss",
        compiles=2,
    ),
]

SAVED = [
    Saved(
        "the order of a sort",
        """
def program(x, w):
    scores = x @ w
    return scores.sort(-1).values.square().sum()  # the fault
"""
        + WEIGHTS,
        256 * 512 * 8,
        {"x @ w\n": "x[:8] @ w\n"},
    ),
    Saved(
        "the input of a convolution",
        """
def program(x, w):
    image = (x @ w).reshape(1, 1, 256, 512)  # the fault
    return torch.nn.functional.conv2d(image.sin(), w[:3, :3].reshape(1, 1, *w[:3, :3].shape)).sum()
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"(x @ w).reshape(1, 1, 256, 512)": "(x[:8] @ w).reshape(1, 1, 8, 512)"},
    ),
]

INEXACT = [
    Inexact(
        "a smallest value in place of the largest",
        """
def program(x):
    y = x @ x.t()
    peak = y.amax(1)  # the fault
    return x.t() @ peak
""",
        edit={"v0 > amax_lane[lane]": "v0 < amax_lane[lane]"},
    ),
    Inexact(
        "a logarithm of nearly one",
        """
def program(x):
    p = x.sigmoid() * 1e-7
    rare = (1 + p).log()  # the fault
    return rare @ x.t()
""",
        repair={"(1 + p).log()": "p.log1p()"},
    ),
    Inexact(
        "a long sum in bfloat16",
        """
def program(x):
    total = (x.bfloat16() + 100).cumsum(0)[-1:] - 200  # the fault
    return total @ total.t()
""",
        repair={"x.bfloat16()": "x"},
    ),
]

MISSED = [
    Missed(
        "a gradient",
        """
def program(x):
    return (x * 2).cos()  # the fault

def run(call):
    call(torch.ones(6, 4, requires_grad=bool(rank)))
""",
        "inputs[0]",
        "=False",
        "=True",
        {"bool(rank)": "False"},
    ),
    Missed(
        "an operation more",
        """
def program(x):
    y = x.sin()
    return y.cos() if rank else y  # the fault
""",
        "graph",
        "sin",
        "cos",
        {"y.cos() if rank else y": "y"},
    ),
]
