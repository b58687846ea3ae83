"""Scripts whose ranks do not do the same."""

from __future__ import annotations

from tests.faults.fault import Diverged

DIVERGENCES = [
    Diverged(
        "a branch on the rank",
        """
def program(x):
    y = x.sin()
    if rank == 1:
        y = y.cos()  # the fault
    return y.sum()
""",
        "graph",
        "cos",
        "nothing",
        {"    if rank == 1:\n        y = y.cos()  # the fault\n": ""},
    ),
    Diverged(
        "a smaller last batch on one rank",
        """
def program(x):
    return x.sin().mean(0)  # the fault

def run(call):
    call(torch.ones(8 - rank, 3))
""",
        "guard",
        "7",
        "8",
        {"8 - rank": "8"},
    ),
    Diverged(
        "a dtype on one rank",
        """
def program(x):
    scaled = x * 2  # the fault
    return scaled.sum()

def run(call):
    call(torch.ones(4, dtype=torch.float64 if rank else torch.float32))
""",
        "guard",
        "float64",
        "float32",
        {"torch.float64 if rank else torch.float32": "torch.float32"},
    ),
    Diverged(
        "one rank prints",
        """
def program(x):
    y = x.sin()
    if rank == 1:
        print("step", end="")  # the fault
    return y.cos()
""",
        "graph break",
        "print",
        "nothing",
        {'    if rank == 1:\n        print("step", end="")  # the fault\n': ""},
    ),
    Diverged(
        "one rank prints before a global is read",
        """
scale = 3.0

def program(x):
    y = x.sin()
    if rank == 1:
        print("step", end="")  # the fault
    return y * scale
""",
        "graph break",
        "print",
        "nothing",
        {'    if rank == 1:\n        print("step", end="")  # the fault\n': ""},
    ),
    Diverged(
        "a number from the environment of one rank",
        """
scale = 0.5 if rank else 0.25

def program(x):
    y = x.sin()
    return y * scale  # the fault
""",
        "guard",
        "0.5",
        "0.25",
        {"0.5 if rank else 0.25": "0.25"},
    ),
    Diverged(
        "a frozen layer on one rank",
        """
layer = torch.nn.Linear(3, 3)
layer.weight.requires_grad_(rank == 0)

def program(x):
    y = x.sin()
    return torch.nn.functional.linear(y, layer.weight)  # the fault
""",
        "guard",
        "requires_grad=False",
        "requires_grad=True",
        {"rank == 0": "True"},
    ),
    Diverged(
        "a layer more on one rank",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2 + rank))

    def forward(self, x):
        for layer in self.layers:  # the fault
            x = layer(x).relu()
        return x

program = Model()
""",
        "guard",
        "'2'",
        "_modules",
        {"2 + rank": "2"},
        stock={"others": "none"},
    ),
    Diverged(
        "one rank evaluates",
        """
dropout = torch.nn.Dropout(0.5)
dropout.train(rank == 0)

def program(x):
    y = x.sin()
    return dropout(y).sum()  # the fault
""",
        "guard",
        "False",
        "True",
        {"rank == 0": "True"},
    ),
    Diverged(
        "one rank compiles again",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    if rank == 1:
        call(torch.ones(3, dtype=torch.float64))
""",
        "recompile",
        "float64",
        "nothing",
        {"if rank == 1": "if False"},
    ),
    Diverged(
        "another activation on one rank",
        """
activation = torch.relu if rank else torch.tanh

def program(x):
    y = x * 2
    return activation(y)  # the fault
""",
        "graph",
        "relu",
        "tanh",
        {"torch.relu if rank else torch.tanh": "torch.tanh"},
    ),
    Diverged(
        "half precision on one rank",
        """
def program(x):
    y = x.half() if rank else x.float()  # the fault
    return y.sum()
""",
        "graph",
        "half",
        "float",
        {"x.half() if rank else x.float()": "x.float()"},
    ),
    Diverged(
        "a layout on one rank",
        """
def program(x):
    return x.sin().sum(0)  # the fault

def run(call):
    x = torch.arange(9.0).reshape(3, 3)
    call(x.t() if rank else x)
""",
        "guard",
        "stride=(1, 3)",
        "stride=(3, 1)",
        {"x.t() if rank else x": "x"},
        stock={"here": "stride=[1, 3]", "others": "stride=[3, 1]"},
    ),
    Diverged(
        "a loss that one rank has more",
        """
def program(losses):
    total = sum(losses.values())  # the fault
    return total.sqrt()

def run(call):
    losses = {"box": torch.ones(3), "class": torch.ones(3)}
    if rank == 1:
        losses["mask"] = torch.ones(3)
    call(losses)
""",
        "guard",
        "['box', 'class', 'mask']",
        "['box', 'class']",
        {"if rank == 1": "if True"},
        stock={"here": "[2] == 'mask'", "others": "none"},
    ),
    Diverged(
        "a loss that one rank does not have",
        """
def program(losses):
    total = losses["box"]
    if "mask" in losses:  # the fault
        total = total + losses["mask"]
    return total.sqrt()

def run(call):
    losses = {"box": torch.ones(3), "mask": torch.ones(3)}
    if rank == 1:
        del losses["mask"]
    call(losses)
""",
        "guard",
        "'mask' not in",
        "'mask' in",
        {"if rank == 1": "if True"},
        stock={"here": "not ___dict_contains('mask'", "others": "___dict_contains('mask'"},
    ),
    Diverged(
        "another epsilon on one rank",
        """
def program(x):
    eps = 1e-5 if rank else 1e-6
    return x / (x.norm() + eps)  # the fault
""",
        "graph",
        "add(1e-05)",
        "add(1e-06)",
        {"1e-5 if rank else 1e-6": "1e-6"},
    ),
]
