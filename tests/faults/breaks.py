"""Scripts with one planted graph break each."""

from __future__ import annotations

from tests.faults.fault import Broken

SCALARS = {"capture_scalar_outputs": True}
SHAPES = {"capture_dynamic_output_shape_ops": True}

BREAKS = [
    Broken(
        "a perplexity that is logged in a method",
        """
import math

class Trainer:
    def __init__(self):
        self.log = {}

    def loss(self, x):
        loss = (x - 1).square().mean()
        self.log["perplexity"] = math.exp(loss.item())  # the fault
        return loss * 0.5

trainer = Trainer()

def program(x):
    return trainer.loss(x).sqrt()
""",
        "tensor value read",
        "math.exp(loss.item())",
        "Compute with the tensor itself",
        {"math.exp(loss.item())": "loss.detach().exp()"},
    ),
    Broken(
        "clipping by a norm as a number",
        """
def program(x):
    norm = x.norm()
    scale = min(1.0, 1.0 / float(norm))  # the fault
    return x * scale
""",
        "tensor value read",
        "1.0 / float(norm)",
        "Compute with the tensor itself",
        {"min(1.0, 1.0 / float(norm))": "(1.0 / norm).clamp(max=1.0)"},
    ),
    Broken(
        "a test for NaN",
        """
def program(x):
    loss = x.log().sum()
    if torch.isnan(loss):  # the fault
        loss = torch.zeros(())
    return loss + 1
""",
        "data-dependent branch",
        "if torch.isnan(loss):",
        "choose with torch.where",
        {
            "    if torch.isnan(loss):  # the fault\n        loss = torch.zeros(())": "    loss = torch.where(torch.isnan(loss), 0.0, loss)"
        },
    ),
    Broken(
        "a comprehension over the values of a tensor",
        """
def program(x):
    y = x.sin()
    rows = [row * length for row, length in zip(y, x[:, 0].tolist())]  # the fault
    return torch.stack(rows)
""",
        "tensor value read",
        "x[:, 0].tolist()",
        "Compute with the tensor itself",
        {"x[:, 0].tolist()": "x[:, 0]"},
        on_core=False,
    ),
    Broken(
        "a context manager that takes the time",
        """
import contextlib
import time

times = []

@contextlib.contextmanager
def timed():
    start = time.perf_counter()  # the fault
    yield
    times.append(start)

def program(x):
    y = x.sin()
    with timed():
        y = y.cos()
    return y * 2
""",
        "clock",
        "time.perf_counter()",
        "before and after",
        {"time.perf_counter()": "None"},
        stock={"grade": "blocking"},
    ),
    Broken(
        "a lock around a part of a step",
        """
import threading

class Buffer:
    def __init__(self):
        self._lock = threading.Lock()

    def add(self, x):
        with self._lock:  # the fault
            return x + 1

buffer = Buffer()

def stepped(x):
    return buffer.add(x.sin())

def program(x):
    return stepped(x) * 2
""",
        "lock",
        "with self._lock:",
        "Take the lock before",
        {"with self._lock:  # the fault": "if True:"},
        stock={"grade": "blocking"},
    ),
    Broken(
        "a counter whose keys are computed",
        """
import collections

class Metric:
    def __init__(self):
        self.counts = collections.Counter()

metric = Metric()

def program(predicted, labels):
    right = (predicted == labels).all()
    metric.counts[bool(right)] += 1  # the fault
    return predicted * 2

def run(call):
    call(torch.ones(3), torch.ones(3))
""",
        "tensor value read",
        "bool(right)",
        "read the value after the compiled function has returned",
        {
            "    metric.counts[bool(right)] += 1  # the fault\n": "",
            "    call(torch.ones(3), torch.ones(3))": "    call(torch.ones(3), torch.ones(3))\n    metric.counts[True] += 1",
        },
    ),
    Broken(
        "a count at an index that is a tensor",
        """
def counted(counts, row, column):
    counts[row, column] += 1  # the fault
    return counts

def updated(counts, row, column):
    return counted(counts.cos(), row, column)

def program(counts, row, column):
    return updated(counts, row, column) * 2

def run(call):
    call(torch.ones(2, 3), torch.tensor(1), torch.tensor(2))
""",
        "tensor value read",
        "counts[row, column]",
        "x[i] = x[i] + y",
        {"counts[row, column] += 1": "counts[row, column] = counts[row, column] + 1"},
        stock=None,
    ),
    Broken(
        "a property that reads a tensor",
        """
class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("log_scale", torch.zeros(()))

    @property
    def scale(self):
        return int(self.log_scale.exp())  # the fault

    def forward(self, x):
        return x.softmax(-1) * self.scale

program = Head()
""",
        "tensor value read",
        "int(self.log_scale.exp())",
        "Compute with the tensor itself",
        {"int(self.log_scale.exp())": "self.log_scale.exp()"},
        stock={"grade": "blocking"},
    ),
    Broken(
        "a message of logging",
        """
import logging

log = logging.getLogger("training")
log.setLevel(logging.INFO)

def program(x):
    y = x.relu()
    log.info("shape %s", y.shape)  # the fault
    return y.sum()
""",
        "print",
        'log.info("shape %s", y.shape)',
        "after the compiled function",
        {'    log.info("shape %s", y.shape)  # the fault\n': ""},
    ),
    Broken(
        "a text with a tensor and a number",
        """
titles = []

def program(x):
    y = x.relu()
    titles.append("mean %s of %d" % (y.mean(), len(y)))  # the fault
    return y.sum()
""",
        "tensor value read",
        '"mean %s of %d" % (y.mean(), len(y))',
        "read the value after the compiled function has returned",
        {'"mean %s of %d" % (y.mean(), len(y))': "(y.mean(), len(y))"},
        stock={"reason": "other", "grade": "blocking"},  # it expects a TypeError
    ),
    Broken(
        "a function of a list that a tensor chooses",
        """
functions = [torch.sin, torch.cos]

def program(x):
    y = x.relu()
    return functions[y.sum().long() % 2](y)  # the fault
""",
        "tensor value read",
        "functions[y.sum().long() % 2]",
        "Compute with the tensor itself",
        {"functions[y.sum().long() % 2](y)": "torch.where(y.sum().long() % 2 > 0, y.cos(), y.sin())"},
    ),
    Broken(
        "a print in a nested call",
        """
def norm(x):
    y = x - x.mean()
    print("norm", end="")  # the fault
    return y / y.std()

def block(x):
    return norm(x).relu()

def program(x):
    return block(x) + 1
""",
        "print",
        'print("norm", end="")',
        "after the compiled function",
        {'    print("norm", end="")  # the fault\n': ""},
    ),
    Broken(
        "an assertion about values",
        """
def attention(q, k):
    weights = (q @ k.T).softmax(-1)
    assert torch.isfinite(weights).all(), "not finite"  # the fault
    return weights @ k

def program(x):
    try:
        return attention(x, x * 2)
    except AssertionError:
        return x
""",
        "assertion",
        'assert torch.isfinite(weights).all(), "not finite"',
        "torch._assert_async",
        {
            'assert torch.isfinite(weights).all(), "not finite"': 'torch._assert_async(torch.isfinite(weights).all(), "not finite")'
        },
        stock=None,
    ),
    Broken(
        "a mask that selects rows",
        """
def program(x):
    y = x.cos()
    kept = y[y > 0]  # the fault
    return kept.sum()
""",
        "tensor value read",
        "y[y > 0]",
        "torch.where(mask, x, 0)",
        {"y[y > 0]": "torch.where(y > 0, y, 0)"},
        config=SHAPES,
        on_core=False,
    ),
    Broken(
        "the places that are not zero",
        """
def program(x):
    y = (x - 2).relu()
    rows, columns = y.nonzero(as_tuple=True)  # the fault
    return y.sum() / rows.shape[0]
""",
        "tensor value read",
        "y.nonzero(as_tuple=True)",
        "Compute with the tensor itself",
        {"    rows, columns = y.nonzero(as_tuple=True)  # the fault\n": "", "rows.shape[0]": "(y != 0).sum()"},
        on_core=False,
    ),
    Broken(
        "the number of classes from the labels",
        """
def program(x):
    labels = x[:, 0].long()
    classes = torch.nn.functional.one_hot(labels, int(labels.max()) + 1)  # the fault
    return classes.float() * x.sum()
""",
        "tensor value read",
        "torch.nn.functional.one_hot(labels, int(labels.max()) + 1)",
        "read the value after the compiled function has returned",
        {"int(labels.max()) + 1": "5"},
    ),
    Broken(
        "the largest of several losses",
        """
def program(x):
    losses = [x.sum(), x.mean(), x.std()]
    worst = max(losses)  # the fault
    return worst * 2
""",
        "data-dependent branch",
        "max(losses)",
        "torch.stack(values).max()",
        {"max(losses)": "torch.stack(losses).max()"},
        stock=None,
    ),
    Broken(
        "any over a generator",
        """
def program(x):
    parts = [x.sin(), x.cos()]
    if any(part.sum() > 9 for part in parts):  # the fault
        return parts[0]
    return parts[1] * 2
""",
        "data-dependent branch",
        "any(part.sum() > 9 for part in parts)",
        "torch.stack(values).any() in place of any(values)",
        {
            "    if any(part.sum() > 9 for part in parts):  # the fault\n        return parts[0]\n    return parts[1] * 2": "    large = torch.stack([part.sum() for part in parts]) > 9\n    return torch.where(large.any(), parts[0], parts[1] * 2)"
        },
        stock={"grade": "blocking", "problems": 2},
    ),
    Broken(
        "sorting tensors by their values",
        """
def program(x):
    rows = list(x.sin())
    rows.sort(key=lambda row: row.sum().item())  # the fault
    return torch.stack(rows)
""",
        "data-dependent branch",
        "rows.sort(key=lambda row: row.sum().item())",
        "Let a function of torch decide",
        {
            "    rows.sort(key=lambda row: row.sum().item())  # the fault\n    return torch.stack(rows)": "    rows = torch.stack(rows)\n    return rows[rows.sum(-1).argsort()]"
        },
        stock={"reason": "tensor value read"},
    ),
    Broken(
        "a list that grows where values are not finite",
        """
seen = []

def program(x):
    y = x.sin()
    if y.isnan().any():  # the fault
        seen.append("not a number")
    return y * 2
""",
        "data-dependent branch",
        "if y.isnan().any():",
        "Keep the condition as a tensor",
        {
            """    if y.isnan().any():  # the fault
        seen.append("not a number")""": "    seen.append(y.isnan().any())"
        },
    ),
    Broken(
        "a branch that also appends to a list",
        """
loud = []

def program(x):
    peak = x.max()
    if peak > 5:  # the fault
        loud.append("loud")
        x = x / peak
    return x.sin()
""",
        "data-dependent branch",
        "peak > 5",
        "but without the calls of the branch",
        {
            """    if peak > 5:  # the fault
        loud.append("loud")
        x = x / peak""": "    loud.append(peak > 5)\n    x = torch.where(peak > 5, x / peak, x)"
        },
    ),
    Broken(
        "a table looked up by the value of a tensor",
        """
table = {1: 0.5, 4: 2.0}

def program(x):
    first = x[0, 0]
    factor = table[int(first)]  # the fault
    return x.sin() * factor
""",
        "tensor value read",
        "int(first)",
        "Compute with the tensor itself",
        {
            "table = {1: 0.5, 4: 2.0}": "table = torch.tensor([0.0, 0.5, 0.0, 0.0, 2.0])",
            "x[0, 0]": "x[0, :1]",
            "table[int(first)]": "table[first.long()]",
        },
    ),
    Broken(
        "losses in an f-string",
        """
class Report:
    line = ""

report = Report()

def program(x):
    loss = x.square()
    report.line = f"losses {loss}"  # the fault
    return loss.sqrt()
""",
        "tensor value read",
        'f"losses {loss}"',
        "read the value after the compiled function has returned",
        {'f"losses {loss}"': "loss.detach()"},
        stock=None,
    ),
    Broken(
        "a forward hook that reads a value",
        """
means = []

def keep_mean(module, inputs, output):
    means.append(round(output.mean().item()))  # the fault

program = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
program[0].register_forward_hook(keep_mean)
""",
        "tensor value read",
        "round(output.mean().item())",
        "Compute with the tensor itself",
        {"round(output.mean().item())": "output.mean().detach()"},
    ),
    Broken(
        "math on a tensor",
        """
import math

def program(x):
    variance = x.var()
    return x.sin() / math.sqrt(variance)  # the fault
""",
        "tensor value read",
        "math.sqrt(variance)",
        "torch.sqrt(x) in place of",
        {"math.sqrt(variance)": "torch.sqrt(variance)"},
    ),
    Broken(
        "a loop as long as a tensor says",
        """
def program(x):
    steps = x[0, 0].long() + 1
    for _ in range(int(steps)):  # the fault
        x = x.sin()
    return x * 2
""",
        "tensor value read",
        "range(int(steps))",
        "read the value after the compiled function has returned",
        {"    steps = x[0, 0].long() + 1\n": "", "int(steps)": "2"},
    ),
    Broken(
        "a tensor made from a value",
        """
def program(x):
    mean = x.mean()
    target = torch.tensor([mean.item(), 0.0, 1.0])  # the fault
    return x - target
""",
        "tensor value read",
        "torch.tensor([mean.item(), 0.0, 1.0])",
        "Compute with the tensor itself",
        {"torch.tensor([mean.item(), 0.0, 1.0])": "torch.stack([mean, torch.tensor(0.0), torch.tensor(1.0)])"},
        on_core=False,
        config=SCALARS,
    ),
    Broken(
        "gradient mode from a value",
        """
def program(x):
    y = x.sin()
    with torch.set_grad_enabled(bool(y.sum() > 0)):  # the fault
        z = y.cos()
    return z * 2
""",
        "tensor value read",
        "bool(y.sum() > 0)",
        "read the value after the compiled function has returned",
        {"bool(y.sum() > 0)": "False"},
    ),
    Broken(
        "inference mode in a helper",
        """
def frozen(x):
    with torch.inference_mode():  # the fault
        return x.sin() * 2

def program(x):
    return frozen(x.cos()) + 1
""",
        "inference mode",
        "with torch.inference_mode():",
        "torch.no_grad()",
        {"torch.inference_mode()": "torch.no_grad()"},
        stock=None,
    ),
    Broken(
        "a sparse adjacency",
        """
adjacency = torch.eye(2).to_sparse()

def program(x):
    y = x.sin()
    y = torch.sparse.mm(adjacency, y)  # the fault
    return y.relu()
""",
        "sparse tensor",
        "torch.sparse.mm(adjacency, y)",
        "dense",
        {".to_sparse()": "", "torch.sparse.mm(": "torch.mm("},
        stock={"grade": "blocking"},
    ),
    Broken(
        "checkpointing a block",
        """
from torch.utils.checkpoint import checkpoint

count = torch.zeros(())

def block(x):
    count.add_(1)
    return x.sin().cos()

def program(x):
    y = checkpoint(block, x, use_reentrant=False)  # the fault
    return y.sum()
""",
        "checkpoint",
        "checkpoint(block, x, use_reentrant=False)",
        "Remove the checkpoint",
        {"checkpoint(block, x, use_reentrant=False)": "block(x)"},
        stock=None,
    ),
    Broken(
        "a hash of a name",
        """
import hashlib

def program(x, name="encoder"):
    seed = int(hashlib.md5(name.encode()).hexdigest(), 16) % 7  # the fault
    return x.sin() * seed
""",
        "skipped function",
        "hashlib.md5(name.encode())",
        "do it before the compiled function",
        {
            'def program(x, name="encoder"):\n    seed = int(hashlib.md5(name.encode()).hexdigest(), 16) % 7  # the fault': 'def program(x, seed=int(hashlib.md5(b"encoder").hexdigest(), 16) % 7):'
        },
        stock={"problems": 2},
    ),
    Broken(
        "a lock",
        """
import threading

lock = threading.Lock()

def program(x):
    y = x.sin()
    with lock:  # the fault
        y = y * 2
    return y.cos()
""",
        "unsupported call",
        "with lock:",
        "",
        {"    with lock:  # the fault\n        y = y * 2": "    y = y * 2"},
        stock={"reason": "lock", "grade": "blocking"},
    ),
    Broken(
        "an address of memory",
        """
seen = set()

def program(x):
    y = x.sin()
    seen.add(y.data_ptr())  # the fault
    return y.cos()
""",
        "tensor value read",
        "y.data_ptr()",
        "read the value after the compiled function has returned",
        {"    seen.add(y.data_ptr())  # the fault\n": ""},
        stock=None,
    ),
    Broken(
        "counting labels in Python",
        """
from collections import Counter

def program(x):
    labels = x.long().flatten().repeat(9)
    counts = Counter(labels.tolist())  # the fault
    return x * len(counts)
""",
        "tensor value read",
        "labels.tolist()",
        "Compute with the tensor itself",
        {
            "    counts = Counter(labels.tolist())  # the fault\n    return x * len(counts)": "    return x * (labels == torch.arange(7)[:, None]).any(1).sum()"
        },
    ),
    Broken(
        "a class in a function",
        """
def program(x):
    y = x.sin()

    class Output:  # the fault
        def __init__(self, value):
            self.value = value

    return Output(y).value * 2
""",
        "class statement",
        "class Output:",
        "Define the class outside",
        {
            "def program(x):\n    y = x.sin()\n\n    class Output:  # the fault\n        def __init__(self, value):\n            self.value = value\n\n": "class Output:\n    def __init__(self, value):\n        self.value = value\n\ndef program(x):\n    y = x.sin()\n"
        },
    ),
    Broken(
        "a weight that gets a gradient in the function",
        """
def program(x):
    shift = torch.zeros(3)
    y = x.sin()
    shift.requires_grad_()  # the fault
    return (y + shift).sum().detach()
""",
        "requires_grad",
        "shift.requires_grad_()",
        "before the compiled function",
        {"    shift.requires_grad_()  # the fault\n": ""},
        stock=None,
    ),
    Broken(
        "a step of training",
        """
model = torch.nn.Linear(3, 1)

def program(x):
    loss = model(x).square().mean()
    loss.backward()  # the fault
    return loss.detach()
""",
        "backward",
        "loss.backward()",
        "Nothing to change",
        {"    loss.backward()  # the fault\n": ""},
        grade="expected",
    ),
    Broken(
        "a copy of a model after all that is computed",
        """
import copy

model = torch.nn.Linear(3, 1)
copies = []

def program(x):
    y = x.sin()
    copies.append(copy.deepcopy(model))  # the fault
    return y
""",
        "unsupported call",
        "copy.deepcopy(model)",
        "Nothing to change: nothing is computed after it",
        {"    copies.append(copy.deepcopy(model))  # the fault\n": ""},
        grade="expected",
    ),
    Broken(
        "an average of weights made in the function",
        """
model = torch.nn.Linear(3, 1)
averages = []

def program(x):
    y = x.sin()
    averages.append(torch.optim.swa_utils.AveragedModel(model))  # the fault
    return y
""",
        "skipped function",
        "torch.optim.swa_utils.AveragedModel(model)",
        "Nothing to change: nothing is computed after it",
        {"    averages.append(torch.optim.swa_utils.AveragedModel(model))  # the fault\n": ""},
        grade="expected",
        stock={"reason": "unsupported call"},
    ),
    Broken(
        "an optimizer of the program's made in the function",
        """
model = torch.nn.Linear(3, 1)

class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})  # the fault

def program(x):
    y = x.sin()
    Signs([model.weight], 0.1)
    return y.cos()
""",
        "new optimizer",
        'super().__init__(params, {"lr": lr})',
        "Nothing to change if it is made once",
        {"    Signs([model.weight], 0.1)\n": ""},
        grade="expected",
        stock={"line": 10},  # which calls the constructor
    ),
    Broken(
        "a helper that is not compiled on purpose",
        """
@torch.compiler.disable
def legacy(x):
    return x.flip(0)

def program(x):
    y = x.sin()
    y = legacy(y)  # the fault
    return y.cos()
""",
        "asked for",
        "legacy(y)",
        "Remove the call",
        {"@torch.compiler.disable\n": ""},
        grade="expected",
    ),
    Broken(
        "a parameter made in the forward",
        """
def program(x):
    y = x.sin()
    layer = torch.nn.Parameter(torch.ones(3, 3))  # the fault
    return (y @ layer).detach()
""",
        "new parameter",
        "torch.nn.Parameter(torch.ones(3, 3))",
        "Nothing to change",
        {"torch.nn.Parameter(torch.ones(3, 3))": "torch.ones(3, 3)"},
        grade="expected",
    ),
    Broken(
        "a module that is copied",
        """
import copy

linear = torch.nn.Linear(3, 3)

def program(x):
    y = x.sin()
    clone = copy.deepcopy(linear)  # the fault
    return clone(y) * 2
""",
        "unsupported call",
        "copy.deepcopy(linear)",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    clone = copy.deepcopy(linear)  # the fault": "clone = copy.deepcopy(linear)\n\ndef program(x):\n    y = x.sin()"
        },
    ),
    Broken(
        "a random number of NumPy",
        """
import numpy as np

rng = np.random.default_rng(0)

def program(x):
    y = x.sin()
    factor = rng.uniform(0.5, 1.5)  # the fault
    return y * factor
""",
        "unsupported attribute",
        "rng.uniform",
        "do it before the compiled function",
        {
            "def program(x):\n    y = x.sin()\n    factor = rng.uniform(0.5, 1.5)  # the fault": "factor = rng.uniform(0.5, 1.5)\n\ndef program(x):\n    y = x.sin()"
        },
        stock={"reason": "unsupported call"},
    ),
    Broken(
        "a repair of values by a helper in a dataclass",
        """
from dataclasses import dataclass

@dataclass
class Boxes:
    corners: torch.Tensor

    def __post_init__(self):
        if (self.corners < 0).any():  # the fault
            self.corners = self.corners.abs()

def program(x):
    boxes = Boxes(x.abs())
    return boxes.corners.sum() * 2
""",
        "data-dependent branch",
        "if (self.corners < 0).any():",
        "choose with torch.where",
        {"        if (self.corners < 0).any():  # the fault\n            self.corners = ": "        self.corners = "},
    ),
    Broken(
        "autocast around a value",
        """
def program(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        scale = int(y.max())  # the fault
        y = y / scale
    return y.float()
""",
        "tensor value read",
        "int(y.max())",
        "Compute with the tensor itself",
        {"int(y.max())": "y.max()"},
    ),
    Broken(
        "unique values",
        """
def program(x):
    labels = (x > 2).long()
    values = torch.unique(labels)  # the fault
    return values.float().sum() + x.sum()
""",
        "tensor value read",
        "torch.unique(labels)",
        "read the value after the compiled function has returned",
        {"torch.unique(labels)": "torch.arange(2)"},
        on_core=False,
    ),
    Broken(
        "a tuple of sizes from a tensor",
        """
def program(x):
    sizes = (x[:, 0] > 0).long() + 1
    first, second = sizes.tolist()  # the fault
    return x[:first] * second
""",
        "tensor value read",
        "sizes.tolist()",
        "read the value after the compiled function has returned",
        {
            "    sizes = (x[:, 0] > 0).long() + 1\n    first, second = sizes.tolist()  # the fault": "    first, second = 2, 2"
        },
        on_core=False,
    ),
    Broken(
        "a loss times the scale of a gradient scaler",
        """
scaler = torch.amp.GradScaler("cpu")

def program(x):
    loss = (x - 1).square().mean()
    loss = loss * scaler.get_scale()  # the fault
    return loss.sqrt()
""",
        "tensor value read",
        "scaler.get_scale()",
        "Compute with the tensor itself",
        {
            "loss * scaler.get_scale()  # the fault": "loss * SCALE",
            "\ndef program": "SCALE = scaler.get_scale()\n\ndef program",
        },
    ),
]
