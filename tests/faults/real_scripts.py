"""Planted faults in the style of real scripts: loaders, caches, policies, schedulers, pipelines and metrics."""

from __future__ import annotations

import sys

from tests.faults.fault import Broken, Change, Recompiled
from tests.faults.recompiles import DYNAMIC

RECOMPILES = [
    Recompiled(
        "a loader whose last batch is smaller",
        """
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(30.0).reshape(10, 3), torch.arange(10.0))
loader = DataLoader(data, batch_size=4)

def program(inputs, targets):
    return (inputs.mean(-1) - targets).square().mean()  # the fault

def run(call):
    for inputs, targets in loader:
        call(inputs, targets)
""",
        "inputs",
        "size",
        "4",
        "2",
        (Change("dynamic sizes", options=DYNAMIC),),
        is_confirmed=False,
    ),
    Recompiled(
        "a decoder with a cache and use_cache",
        """
from dataclasses import dataclass
from typing import Optional

@dataclass
class Output:
    logits: torch.Tensor
    past: Optional[tuple]

class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.key = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 5)
        for p in self.parameters():
            torch.nn.init.constant_(p, 0.1)

    def forward(self, hidden, past=None, use_cache=True):
        keys = self.key(hidden)
        if past is not None:  # the fault
            keys = torch.cat([past[0], keys])
        weights = (hidden @ keys.T).softmax(-1)
        logits = self.head(weights @ keys)
        return Output(logits, (keys,) if use_cache else None)

program = Decoder().eval()

def run(program):
    with torch.no_grad():
        outputs = [program(torch.ones(4, 3)), program(torch.ones(4, 3), (torch.ones(6, 3),))]
    return [output.logits for output in outputs if output]
""",
        "past",
        "value",
        "None",
        "a tuple",
        (
            Change(
                "not None",
                {
                    "[program(torch.ones(4, 3)), program(torch.ones(4, 3), (torch.ones(6, 3),))]": "[program(torch.ones(4, 3), (torch.ones(6, 3),))]"
                },
            ),
        ),
    ),
    Recompiled(
        "an epsilon that decays in a policy",
        """
class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 2)
        torch.nn.init.constant_(self.net.weight, 0.1)
        torch.nn.init.constant_(self.net.bias, 0.0)
        self.epsilon = 1.0

    def forward(self, observation):
        logits = self.net(observation)
        return (1 - self.epsilon) * logits.softmax(-1) + self.epsilon / 2  # the fault

program = Policy()

def run(call):
    for episode in range(3):
        call(torch.ones(2, 3))
        program.epsilon *= 0.9
""",
        "self.epsilon",
        "value",
        "1.0",
        "0.9",
        remedy="symbolic number",
    ),
    Recompiled(
        "a learning rate of a scheduler as a float",
        """
from dataclasses import dataclass

@dataclass
class TrainConfig:
    lr: float = 0.1
    momentum: float = 0.9

config = TrainConfig()
weights = [torch.ones(3), torch.ones(3)]

def program(grads):
    return [w - config.lr * g for w, g in zip(weights, grads)]  # the fault

def run(call):
    for step in range(3):
        call([torch.ones(3), torch.ones(3)])
        config.lr *= 0.5
""",
        "config.lr",
        "value",
        "0.1",
        "0.05",
        remedy="symbolic number",
    ),
    Recompiled(
        "an average of weights with a warm-up of its decay",
        """
class EMA:
    def __init__(self, shadow):
        self.shadow = shadow
        self.updates = 0

    def update(self, values):
        self.updates += 1  # the fault
        decay = min(0.999, (1 + self.updates) / (10 + self.updates))
        self.shadow = [s * decay + v * (1 - decay) for s, v in zip(self.shadow, values)]
        return self.shadow

ema = EMA([torch.zeros(3)])

def program(values):
    return ema.update(values)

def run(call):
    for _ in range(4):
        call([torch.ones(3)])
""",
        "ema.updates",
        "value",
        "0",
        "1",
        (
            Change(
                "a tensor",
                {
                    "self.updates = 0": "self.updates = torch.tensor(0.0)",
                    "min(0.999, (1 + self.updates) / (10 + self.updates))": "((1 + self.updates) / (10 + self.updates)).clamp(max=0.999)",
                },
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"remedy": "a tensor", "compiles": 4},
    ),
    Recompiled(
        "a step of accumulation as a flag",
        """
def program(loss, is_update_step, accumulated):
    scaled = loss.mean() / 4
    total = accumulated + scaled
    if is_update_step:  # the fault
        total = total * 2
    return total

def run(call):
    accumulated = torch.zeros(())
    for step in range(8):
        call(torch.ones(3), (step + 1) % 4 == 0, accumulated)
""",
        "is_update_step",
        "value",
        "False",
        "True",
        remedy="two values",
    ),
    Recompiled(
        "an evaluation in half precision",
        """
def program(images):
    return (images - 0.5).abs().mean(-1)  # the fault

def run(call):
    call(torch.ones(4, 3))
    call(torch.ones(4, 3, dtype=torch.bfloat16))
""",
        "images",
        "dtype",
        "torch.float32",
        "torch.bfloat16",
        (Change("one dtype", {", dtype=torch.bfloat16": ""}),),
    ),
    Recompiled(
        "the mode of a pipeline as an enum",
        """
import enum

class Stage(str, enum.Enum):
    TRAIN = "train"
    VALID = "valid"
    TEST = "test"

class Pipeline:
    def __init__(self):
        self.stage = Stage.TRAIN

    def __call__(self, x):
        x = x * 2
        if self.stage is Stage.TRAIN:  # the fault
            x = x + 1
        return x

pipeline = Pipeline()

def program(x):
    return pipeline(x)

def run(call):
    for stage in Stage:
        pipeline.stage = stage
        call(torch.ones(3))
""",
        "pipeline.stage",
        "value",
        "Stage.TRAIN",
        "Stage.VALID",
        (
            Change("few values", {"pipeline.stage = stage": "pass"}, engines=("core",)),
            Change("same object", {"pipeline.stage = stage": "pass"}, engines=("torch",)),
        ),
        compiles=3,
        stock={
            "aspect": "identity",
            "expected": "the one at capture",
            "got": "another Stage",
            "remedy": "same object",
            "is_confirmed": False,
        },
    ),
    Recompiled(
        "a count of updates in a buffer",
        """
class Average(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.updates == 0:  # the fault
            return x * 2
        return x.lerp(x * 2, 0.5)

program = Average()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
        program.updates += 1
""",
        "self.updates == 0",
        "value",
        "True",
        "False",
        remedy="two values",
        stock=None,  # which breaks there
    ),
    Recompiled(
        "a counter of calls in a module",
        """
class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("load", torch.zeros(2))
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # the fault
        scores = x @ torch.ones(3, 2) / self.calls
        return scores

program = Router()

def run(call):
    for _ in range(4):
        call(torch.ones(2, 3))
""",
        "self.calls",
        "value",
        "0",
        "1",
        (Change("a tensor", {"self.calls = 0": "self.calls = torch.zeros(())"}, engines=("torch",)),),
        remedy="symbolic number",
        stock={"remedy": "a tensor", "compiles": 4},
    ),
    Recompiled(
        "an optional argument left out",
        """
def program(x, *, scale=None, bias=None):
    if scale is not None:  # the fault
        x = x * scale
    if bias is not None:
        x = x + bias
    return x.relu()

def run(program):
    x = torch.ones(3)
    return [program(x, scale=2.0), program(x, bias=x), program(x, scale=2.0)]
""",
        "scale",
        "value",
        "2.0",
        "None",
        (Change("not None", {"program(x, bias=x)": "program(x, scale=2.0)"}),),
        is_confirmed=False,
        stock={"name": "bias", "expected": "None", "got": "a Tensor", "line": 5},
    ),
    Recompiled(
        "train and eval in one loop",
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(self.norm(x)).sum()  # the fault

program = Net()

def run(call):
    for epoch in range(2):
        program.train()
        call(torch.arange(6.0).reshape(2, 3))
        program.eval()
        call(torch.arange(6.0).reshape(2, 3))
""",
        "self.norm.training",
        "value",
        "True",
        "False",
        remedy="two values",
        is_confirmed=False,
        stock={"name": "self.drop.training"},
    ),
    Recompiled(
        "an autograd function with a float",
        """
class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-ctx.limit, ctx.limit), None  # the fault

def program(x, limit):
    return Clip.apply(x * 2, limit).sum()

def run(call):
    x = torch.ones(3, requires_grad=True)
    for limit in (1.0, 0.5, 0.25):
        call(x, limit)
""",
        "limit",
        "value",
        "1.0",
        "0.5",
        (Change("dynamic numbers", options=DYNAMIC),),
        stock={"line": 5},
    ),
    Recompiled(
        "a name that is formatted from the step",
        """
def program(x, metrics, name):
    loss = x.square().mean()
    metrics[name] = loss.detach()  # the fault
    return loss

def run(call):
    metrics = {}
    for step in range(3):
        call(torch.ones(3), metrics, f"loss/{step}")
""",
        "name",
        "value",
        "'loss/0'",
        "'loss/1'",
        (Change("no growing dict", {"metrics[name] = loss.detach()": "pass", 'f"loss/{step}"': '"loss"'}),),
        compiles=3,
        is_confirmed=False,
    ),
    Recompiled(
        "a list of losses that is kept",
        """
class Trainer:
    def __init__(self):
        self.losses = []

    def step(self, x):
        loss = x.square().mean()
        self.losses.append(loss.detach())
        return torch.stack(self.losses).mean()  # the fault

trainer = Trainer()

def program(x):
    return trainer.step(x)

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "trainer.losses",
        "length",
        "0",
        "1",
        (
            Change(
                "no growing list",
                {"        self.losses.append(loss.detach())\n": "", "torch.stack(self.losses)": "loss"},
            ),
        ),
        compiles=3,
        stock={"line": 8},
    ),
    Recompiled(
        "padding to the longest of a batch",
        """
from torch.nn.utils.rnn import pad_sequence

def program(parts):
    return pad_sequence(parts, batch_first=True).sum(-1)  # the fault

def run(call):
    call([torch.ones(2), torch.ones(3)])
    call([torch.ones(2), torch.ones(5)])
    call([torch.ones(4), torch.ones(7)])
""",
        "parts[1]",
        "size",
        "3",
        "5",
        (Change("dynamic sizes", options=DYNAMIC),),
        compiles=3,
        problems=2,
        logs={"line": 4},
    ),
    Recompiled(
        "a temperature in the arguments of generate",
        """
def program(logits, temperature=1.0, top_k=None, do_sample=False):
    logits = logits / temperature  # the fault
    if top_k is not None:
        values, _ = torch.topk(logits, top_k)
        logits = torch.where(logits < values[-1], float("-inf"), logits)
    return logits.softmax(-1)

def run(program):
    x = torch.arange(5.0)
    return [program(x, temperature=t) for t in (1.0, 0.7, 0.5)]
""",
        "temperature",
        "value",
        "1.0",
        "0.7",
        (Change("dynamic numbers", options=DYNAMIC),),
    ),
    Recompiled(
        "another top_k",
        """
def program(logits, top_k):
    values, _ = torch.topk(logits, top_k)  # the fault
    return values.softmax(-1)

def run(program):
    x = torch.arange(9.0)
    return [program(x, top_k=k) for k in (2, 3, 4)]
""",
        "top_k",
        "value",
        "2",
        "3",
        (Change("dynamic numbers", options=DYNAMIC),),
    ),
    Recompiled(
        "a hook that was registered after the first call",
        """
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
for p in model.parameters():
    torch.nn.init.constant_(p, 0.5)
seen = []

def program(x):
    return model(x) * 2  # the fault

def run(call):
    call(torch.ones(2, 3))
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    call(torch.ones(2, 3))
""",
        "model[0]._forward_hooks",
        "length",
        "0",
        "1",
        (Change("hooks before", {"    call(torch.ones(2, 3))\n    model[0]": "    model[0]"}),),
        stock=None,
    ),
    Recompiled(
        "an image of another aspect",
        """
class Patch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 2, stride=2)
        for p in self.parameters():
            torch.nn.init.constant_(p, 0.1)

    def forward(self, image):
        if image.shape[-2] > image.shape[-1]:  # the fault
            image = image.transpose(-1, -2)
        return self.conv(image).mean()

program = Patch()

def run(call):
    for h, w in ((4, 6), (6, 4), (4, 8), (8, 4)):
        call(torch.ones(1, 1, h, w))
""",
        "image",
        "size",
        "(1, 1, 4, 6)",
        "(1, 1, 6, 4)",
        (Change("one case", {"((4, 6), (6, 4), (4, 8), (8, 4))": "((4, 6), (4, 8), (4, 10))"}, compiles=2),),
        remedy="dynamic sizes",
        compiles=3,
        problems=2,
    ),
    Recompiled(
        "a replay buffer as a deque",
        """
from collections import deque

buffer = deque(maxlen=4)

def program(observation):
    buffer.append(observation)
    return torch.stack(list(buffer)).mean(0)  # the fault

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "buffer",
        "length",
        "0",
        "1",
        (
            Change(
                "no growing list",
                {
                    "    buffer.append(observation)\n    return torch.stack(list(buffer)).mean(0)  # the fault": "    return observation * 2"
                },
            ),
        ),
        compiles=3,
        stock={"line": 7},  # which changes the deque
    ),
    Recompiled(
        "the shape of a mask made from lengths",
        """
def program(x, lengths):
    longest = max(lengths)  # the fault
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    return (x[:, :longest] * mask).sum()

def run(call):
    x = torch.ones(2, 8)
    for lengths in ([3, 5], [4, 6], [2, 7]):
        call(x, lengths)
""",
        "lengths[1]",
        "value",
        "5",
        "6",
        (Change("dynamic numbers", options=DYNAMIC),),
        is_confirmed=False,
        stock={"name": "lengths[0]", "expected": "3", "got": "4"},
    ),
    Recompiled(
        "a metric of torchmetrics' kind",
        """
class Accuracy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("correct", torch.zeros(()))
        self.total = 0

    def forward(self, predicted, target):
        self.correct += (predicted == target).sum()
        self.total += target.numel()  # the fault
        return self.correct / self.total

program = Accuracy()

def run(call):
    for _ in range(3):
        call(torch.arange(4), torch.arange(4))
""",
        "self.total",
        "value",
        "0",
        "4",
        (Change("a tensor", {"self.total = 0": "self.total = torch.tensor(0)"}, engines=("torch",)),),
        remedy="symbolic number",
        stock={"remedy": "a tensor", "compiles": 3},
    ),
    Recompiled(
        "positions that are made on the way",
        """
class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cached = None

    def forward(self, x):
        if self.cached is None or self.cached.shape[0] < x.shape[0]:  # the fault
            self.cached = torch.arange(x.shape[0], dtype=torch.float32)[:, None]
        return x + self.cached[: x.shape[0]]

program = Positions()

def run(call):
    for _ in range(3):
        call(torch.ones(4, 3))
""",
        "self.cached",
        "value",
        "None",
        "a Tensor",
        (Change("a value at first", {"self.cached = None": "self.cached = torch.arange(8.0)[:, None]"}),),
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a loss weighted by a dict of names",
        """
weights = {"cls": 1.0, "box": 0.5}

def program(losses):
    return sum(weights[name] * value for name, value in losses.items())  # the fault

def run(call):
    losses = {"cls": torch.ones(()), "box": torch.ones(())}
    call(losses)
    weights["box"] = 0.25
    call(losses)
    weights["box"] = 0.125
    call(losses)
""",
        "weights['box']",
        "value",
        "0.5",
        "0.25",
        remedy="symbolic number",
    ),
]

BREAKS = [
    Broken(
        "a warning of logging in the forward",
        """
import logging

logger = logging.getLogger("faults.forward")

class Block(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        logger.warning("norm %.3f", y.norm())  # the fault
        return y * 2

program = Block()
""",
        "print",
        'logger.warning("norm %.3f", y.norm())',
        "after the compiled function",
        {'        logger.warning("norm %.3f", y.norm())  # the fault\n': ""},
    ),
    Broken(
        "NumPy in the preprocessing",
        """
import numpy as np

rng = np.random.default_rng(0)

def augment(x):
    shift = rng.integers(0, 3)  # the fault
    return torch.roll(x, int(shift), dims=-1)

def program(x):
    return augment(x * 2) + 1
""",
        "unsupported attribute",
        "rng.integers",
        "do it before the compiled function",
        {"rng.integers(0, 3)": "2"},
        stock={"reason": "unsupported call"},
    ),
    Broken(
        "an early exit on confidence",
        """
class Exits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)
        for p in self.parameters():
            torch.nn.init.constant_(p, 0.1)

    def forward(self, x):
        x = self.first(x)
        if x.softmax(-1).max() > 0.9:  # the fault
            return x
        return self.second(x)

program = Exits()
""",
        "data-dependent branch",
        "x.softmax(-1).max() > 0.9",
        "torch.where",
        {
            "        if x.softmax(-1).max() > 0.9:  # the fault\n            return x\n        return self.second(x)": "        return torch.where(x.softmax(-1).max() > 0.9, x, self.second(x))"
        },
    ),
    Broken(
        "a retry with a smaller step",
        """
def program(x):
    step = 1.0
    y = x - step * x
    for attempt in range(3):
        y = x - step * x * x
        if torch.isfinite(y).all():  # the fault
            break
        step = step / 2
    return y
""",
        "data-dependent branch",
        "if torch.isfinite(y).all():",
        "Python runs the loop, and the body of the loop is compiled as a function",
        {"        if torch.isfinite(y).all():  # the fault\n            break\n": ""},
        grade="expected",
        # from CPython 3.12 on stock breaks the graph inside of the loop
        stock={"grade": "blocking" if sys.version_info < (3, 12) else "costly"},
    ),
    Broken(
        "a best loss that is kept as a float",
        """
class Early:
    def __init__(self):
        self.best = float("inf")

    def check(self, loss):
        if loss.item() < self.best:  # the fault
            self.best = loss.item()
        return loss + 1

early = Early()

def program(x):
    return early.check((x * 2).mean()) * 3
""",
        "data-dependent branch",
        "loss.item() < self.best",
        "torch.where",
        {"loss.item()": "0.5"},
        stock={"reason": "tensor value read"},
    ),
    Broken(
        "a beam that is sorted by Python",
        """
def program(scores):
    y = scores.log_softmax(-1)
    order = sorted(range(3), key=lambda i: -y[i].item())  # the fault
    return y[order[0]] + y[order[1]]

def run(call):
    call(torch.tensor([1.0, 3.0, 2.0]))
""",
        "data-dependent branch",
        "sorted(range(3), key=lambda i: -y[i].item())",
        "Let a function of torch decide",
        {
            "    order = sorted(range(3), key=lambda i: -y[i].item())  # the fault\n    return y[order[0]] + y[order[1]]": "    return y.sort(descending=True).values[:2].sum()"
        },
        stock={"reason": "tensor value read"},
    ),
]
