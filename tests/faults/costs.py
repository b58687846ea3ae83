"""Scripts that compile slowly, keep much memory, compute inexactly, or miss the cache."""

from __future__ import annotations

from tests.faults.fault import Inexact, Missed, Repeated, Saved

REPEATED = [
    Repeated(
        "layers of one class",
        """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.linear(x)  # the fault
        return x + y.relu()

blocks = [Block() for _ in range(12)]

def program(x):
    x = x.sin()
    for block in blocks:
        x = block(x)
    return x.sum()
""",
        12,
        "Block.forward",
        compiles=2,  # the first input requires no gradient
    ),
    Repeated(
        "steps of a recurrence",
        """
weight = torch.full((3, 3), 0.1)

def step(state, x):
    state = (state @ weight + x).tanh()
    return state * 0.9

def program(x):
    state = torch.zeros(3)
    for _ in range(10):
        state = step(state, x[0])  # the fault
    return state
""",
        10,
        "step",
    ),
    Repeated(
        "an iteration of Newton's",
        """
def newton(y, x):
    y = y - (y * y - x) / (2 * y)  # the fault
    return y.abs()

def program(x):
    y = x + 1
    for _ in range(16):
        y = newton(y, x)
    return y
""",
        16,
        "newton",
    ),
    Repeated(
        "an update of each parameter",
        """
parameters = [torch.ones(3) for _ in range(9)]

def updated(parameter, gradient):
    gradient = gradient / gradient.norm().clamp(min=1)
    return parameter - 0.1 * gradient

def program(x):
    return torch.stack([updated(each, x[0]) for each in parameters])  # the fault
""",
        9,
        "updated",
    ),
    Repeated(
        "the terms of a series",
        """
def term(total, power, x):
    power = power * x / 3.0  # the fault
    return total + power, power

def program(x):
    total, power = torch.ones_like(x), torch.ones_like(x)
    for _ in range(14):
        total, power = term(total, power, x)
    return total
""",
        14,
        "term",
    ),
    Repeated(
        "a filter that is applied again and again",
        """
def smoothed(x):
    y = x.roll(1, 0) + x  # the fault
    return (y / 2).tanh()

def program(x):
    for _ in range(11):
        x = smoothed(x)
    return x
""",
        11,
        "smoothed",
    ),
    Repeated(
        "heads of a model in a dict",
        """
class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3, 3), 0.1))

    def forward(self, x):
        y = x @ self.weight  # the fault
        return y.softmax(-1).log()

heads = {f"head {number}": Head() for number in range(10)}

def program(x):
    return {name: head(x) for name, head in heads.items()}
""",
        10,
        "Head.forward",
    ),
    Repeated(
        "the layers of a call inside a call",
        """
def gate(x, scale):
    y = (x * scale).sigmoid()  # the fault
    return y * x

def stage(x):
    for _ in range(3):
        x = gate(x, 0.5)
    return x

def program(x):
    for _ in range(4):
        x = stage(x)
    return x
""",
        12,
        "gate",
    ),
    Repeated(
        "steps of gradient descent by hand",
        """
def step(w, x):
    error = x @ w - 1.0  # the fault
    return w - 0.01 * (x.t() @ error)

def program(x):
    w = torch.zeros(3)
    for _ in range(9):
        w = step(w, x)
    return w
""",
        9,
        "step",
    ),
]

WEIGHTS = """
w = torch.full((4, 512), 0.1, requires_grad=True)

def run(call):
    call(torch.linspace(0, 1, 256 * 4).reshape(256, 4), w)
"""
SAVED = [
    Saved(
        "scores of all pairs",
        """
def program(x, w):
    keys = x @ w[:, :4]
    scores = x @ keys.t()
    return (scores.softmax(-1) @ keys).sum()  # the fault
"""
        + WEIGHTS,
        256 * 256 * 4,
        {"x @ keys.t()": "x[:16] @ keys.t()"},
    ),
    Saved(
        "a wide hidden layer",
        """
def program(x, w):
    hidden = x @ w
    return (hidden.sigmoid() @ w.t()).sum()  # the fault
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"= x @ w": "= x[:8] @ w"},
    ),
    Saved(
        "random numbers for each pair",
        """
def program(x, w):
    noise = torch.rand(256, 512)
    return ((w.sum(0) + noise).cos() * x.sum()).sum()  # the fault
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"torch.rand(256, 512)": "torch.rand(512)"},
    ),
    Saved(
        "the input of an activation that is wide",
        """
def program(x, w):
    wide = x @ w  # the fault
    return (wide.sin() @ w.t()).sum()
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"= x @ w": "= x[:8] @ w"},
    ),
    Saved(
        "a mask of dropout",
        """
def program(x, w):
    kept = torch.nn.functional.dropout(w.sum(0).expand(256, 512), 0.5)  # the fault
    return (kept * x.sum()).sum()
"""
        + WEIGHTS,
        256 * 512,
        {"expand(256, 512)": "expand(1, 512)"},
    ),
    Saved(
        "the logits of a large vocabulary",
        """
def program(x, w):
    logits = x @ w  # the fault
    return torch.nn.functional.cross_entropy(logits, torch.arange(256))
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"= x @ w": "= x[:8] @ w", "torch.arange(256)": "torch.arange(8)"},
    ),
    Saved(
        "a product of two wide values",
        """
def program(x, w):
    gate, value = x @ w, (x + 1) @ w  # the fault
    return ((gate * value) @ w.t()).sum()
"""
        + WEIGHTS,
        256 * 512 * 4,
        {"= x @ w, (x + 1) @ w": "= x[:8] @ w, (x[:8] + 1) @ w"},
    ),
    Saved(
        "the weights of attention",
        """
def program(x, w):
    q = x @ w[:, :4]
    weights = (q @ x.t()).softmax(-1)  # the fault
    return (weights @ q).square().sum()
"""
        + WEIGHTS,
        256 * 256 * 4,
        {"(q @ x.t())": "(q @ x[:16].t())", "(weights @ q)": "(weights @ q[:16])"},
    ),
]

INEXACT = [
    Inexact(
        "a wrong constant in a kernel",
        """
def program(x):
    y = x @ x.t()
    z = (y * 0.5).tanh()  # the fault
    return z @ x
""",
        edit={"0.5": "0.4"},
    ),
    Inexact(
        "a wrong operation in a kernel",
        """
def program(x):
    y = x.flip(0) @ x.t()
    z = (y - 3.0).sum(1)  # the fault
    return x.t() @ z
""",
        edit={" - ": " + "},
    ),
    Inexact(
        "a variance by a difference of squares",
        """
def program(x):
    y = x + 1000.0
    variance = (y * y).mean() - y.mean() * y.mean()  # the fault
    return variance.reshape(1, 1) @ x[:1]
""",
        repair={"(y * y).mean() - y.mean() * y.mean()": "(y - y.mean()).square().mean()"},
    ),
    Inexact(
        "an exponential in half precision",
        """
def program(x):
    scores = x.half() * 0.01 + 12.0
    weights = scores.exp()  # the fault
    return weights @ weights.t()
""",
        repair={"x.half()": "x"},
    ),
    Inexact(
        "a small number added to a large one",
        """
def program(x):
    large = x * 0.001 + 1.0e7
    step = large - 1.0e7  # the fault
    return step @ x.t()
""",
        repair={"x * 0.001 + 1.0e7": "x * 0.001", "large - 1.0e7": "large + 0.0"},
    ),
]

MISSED = [
    Missed(
        "a constant",
        """
scale = 2.0 if rank == 0 else 3.0

def program(x):
    return (x * scale).cos()  # the fault
""",
        "graph",
        "2.0",
        "3.0",
        {"3.0": "2.0"},
    ),
    Missed(
        "another size",
        """
def program(x):
    return (x * 2).cos()  # the fault

def run(call):
    call(torch.ones(6, 4 + rank))
""",
        "inputs[0]",
        "shape=(6, 4)",
        "shape=(6, 5)",
        {"4 + rank": "4"},
    ),
    Missed(
        "a setting of matrix products",
        """
torch.set_float32_matmul_precision("high" if rank else "highest")

def program(x):
    return (x * 2).sin()  # the fault
""",
        "torch[float32_matmul_precision]",
        "highest",
        "high",
        {'"high" if rank else "highest"': '"highest"'},
    ),
]
