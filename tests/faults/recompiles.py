"""Scripts with one planted recompile each; docs/recompiles.md is made from them."""

from __future__ import annotations

from tests.faults.fault import Change, Recompiled

DYNAMIC = {"dynamic": True}

RECOMPILES = [
    # ---------------------------------------------------------------- tensors
    Recompiled(
        "a size",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(8, 3))
    call(torch.ones(5, 3))
    call(torch.ones(7, 3))
""",
        "x",
        "size",
        "8",
        "5",
        (
            Change("dynamic sizes", options=DYNAMIC),
            Change(
                "dynamic sizes",
                {
                    "call(torch.ones(8, 3))": "first = torch.ones(8, 3)\n"
                    "    torch._dynamo.mark_dynamic(first, 0)\n    call(first)"
                },
            ),
        ),
    ),
    Recompiled(
        "the last, smaller batch of two tensors",
        """
def program(xb, yb):
    return ((xb - yb) ** 2).mean()  # the fault

def run(call):
    for n in (8, 8, 5):
        call(torch.ones(n, 3), torch.zeros(n, 3))
""",
        "xb",
        "size",
        "8",
        "5",
        (
            Change("dynamic sizes", options=DYNAMIC),
            Change(
                "dynamic sizes",
                {
                    "        call(torch.ones(n, 3), torch.zeros(n, 3))": "        xb, yb = torch.ones(n, 3), torch.zeros(n, 3)\n"
                    "        torch._dynamo.mark_dynamic(xb, 0)\n"
                    "        torch._dynamo.mark_dynamic(yb, 0)\n        call(xb, yb)"
                },
            ),
        ),
        is_confirmed=False,
    ),
    Recompiled(
        "a size of 1",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    for n in (8, 5, 1):
        call(torch.ones(n, 3))
""",
        "x",
        "size",
        "at least 2",
        "1",
        (Change("sizes 0 and 1", {"call(torch.ones(n, 3))": "call(torch.ones(max(n, 2), 3))"}),),
        options=DYNAMIC,
    ),
    Recompiled(
        "a size of 0",
        """
def program(x):
    return x.sum(0)  # the fault

def run(call):
    call(torch.ones(0, 3))
    call(torch.ones(4, 3))
""",
        "x",
        "size",
        "0",
        "4",
        (Change("sizes 0 and 1", {"torch.ones(0, 3)": "torch.zeros(2, 3)"}),),
        options=DYNAMIC,
    ),
    Recompiled(
        "a size that the program needs as a number",
        """
def program(x):
    rows = [x * i for i in range(x.shape[0])]  # the fault
    return torch.stack(rows)

def run(call):
    for n in (3, 4, 5):
        call(torch.ones(n, 2))
""",
        "x",
        "size",
        "3",
        "4",
        (
            Change(
                "few sizes",
                {"call(torch.ones(n, 2))": "call(torch.nn.functional.pad(torch.ones(n, 2), (0, 0, 0, 5 - n)))"},
            ),
        ),
        compiles=3,
        options=DYNAMIC,
    ),
    Recompiled(
        "two sizes that were equal",
        """
def program(x, y):
    if x.shape[0] == y.shape[0]:  # the fault
        return x + y
    return x.sum(0) + y.sum(0)

def run(call):
    call(torch.ones(8, 3), torch.ones(8, 3))
    call(torch.ones(9, 3), torch.ones(9, 3))
    call(torch.ones(6, 3), torch.ones(5, 3))
""",
        "x.size(0) == y.size(0)",
        "relation",
        "x.size(0) == y.size(0)",
        "x.size(0) is 6, y.size(0) is 5",
        (Change("one case", {"(6, 3), torch.ones(5": "(6, 3), torch.ones(6"}),),
        options=DYNAMIC,
        stock={
            "name": "y.size(0) == x.size(0)",
            "expected": "y.size(0) == x.size(0)",
            "got": "y.size(0) is 5, x.size(0) is 6",
        },
    ),
    Recompiled(
        "an item of a configuration, read as an attribute",
        """
class Config(dict):
    def __getattr__(self, name):
        return self[name]

config = Config(heads=2, drop="none")

def program(x):
    return x.sin() if config.drop == "none" else x.cos()  # the fault

def run(call):
    for drop in ("none", "some"):
        config["drop"] = drop
        call(torch.ones(3))
""",
        "config['drop']",
        "value",
        "'none'",
        "'some'",
        (Change("few values", {'("none", "some")': '("none", "none")'}),),
    ),
    Recompiled(
        "something that is done every third step",
        """
def program(x, step):
    done = step + 1
    y = x.sin()
    if done % 3 == 0:  # the fault
        y = y * 2
    return y

def run(call):
    for step in range(3, 7):
        call(torch.ones(3), step)
""",
        "((1 + step) % 3) != 0",
        "relation",
        "((1 + step) % 3) != 0",
        "step is 5",
        (Change("one case", {"range(3, 7)": "(3, 4, 6)"}),),
        options=DYNAMIC,
        stock={"got": ""},
    ),
    Recompiled(
        "a branch on a size",
        """
def program(x):
    if x.shape[0] > 6:  # the fault
        return x.sin()
    return x.cos()

def run(call):
    for n in (8, 9, 4, 5):
        call(torch.ones(n, 3))
""",
        "x.size(0) > 6",
        "relation",
        "x.size(0) > 6",
        "x.size(0) is 4",
        (Change("one case", {"(8, 9, 4, 5)": "(8, 9, 10, 11)"}),),
        options=DYNAMIC,
        stock={"name": "x.size(0) >= 7", "expected": "x.size(0) >= 7"},
    ),
    Recompiled(
        "a dtype",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    call(torch.ones(3, dtype=torch.float64))
""",
        "x",
        "dtype",
        "torch.float32",
        "torch.float64",
        (Change("one dtype", {"torch.float64)": "torch.float64).float()"}),),
    ),
    Recompiled(
        "the dtype of an item",
        """
def program(batch):
    return batch["image"].sum() + batch["label"].sum()  # the fault

def run(call):
    for dtype in (torch.int64, torch.int32):
        call({"image": torch.ones(3), "label": torch.ones(3, dtype=dtype)})
""",
        "batch['label']",
        "dtype",
        "torch.int64",
        "torch.int32",
        (Change("one dtype", {"dtype=dtype)": "dtype=dtype).long()"}),),
    ),
    Recompiled(
        "a memory layout",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    x = torch.arange(9.0).reshape(3, 3)
    for each in (x, x.double().float(), x.t()):
        call(each)
""",
        "x",
        "stride",
        "(3, 1)",
        "(1, 3)",
        (Change("one layout", {"call(each)": "call(each.contiguous())"}),),
    ),
    Recompiled(
        "the nearest of several compiles is not the newest",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    x = torch.arange(9.0).reshape(3, 3)
    for each in (x, x.double(), x.t()):
        call(each)
""",
        "x",
        "stride",
        "(3, 1)",
        "(1, 3)",
        (Change("one layout", {"(x, x.double(), x.t())": "(x, x.double(), x.t().contiguous())"}, compiles=2),),
        compiles=3,
        problems=2,
    ),
    Recompiled(
        "a number of dimensions",
        """
def program(x):
    return x.sum(-1)  # the fault

def run(call):
    call(torch.ones(2, 3))
    call(torch.ones(6))
""",
        "x",
        "rank",
        "2",
        "1",
        (Change("one rank", {"torch.ones(6)": "torch.ones(6).reshape(2, 3)"}),),
    ),
    Recompiled(
        "requires_grad",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    call(torch.ones(3, requires_grad=True))
""",
        "x",
        "requires_grad",
        "False",
        "True",
        (Change("one requires_grad", {"requires_grad=True)": "requires_grad=True).detach()"}),),
    ),
    Recompiled(
        "a class of tensor",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    call(torch.nn.Parameter(torch.ones(3), requires_grad=False))
""",
        "x",
        "class",
        "Tensor",
        "Parameter",
        (
            Change(
                "one type",
                {
                    "torch.nn.Parameter(torch.ones(3), requires_grad=False)": "torch.nn.Parameter(torch.ones(3), requires_grad=False).data"
                },
            ),
        ),
    ),
    Recompiled(
        "a tensor or None",
        """
def program(x, mask):
    return x.sin() if mask is None else x.sin() * mask  # the fault

def run(call):
    call(torch.ones(3), None)
    call(torch.ones(3), torch.ones(3))
""",
        "mask",
        "value",
        "None",
        "a Tensor",
        (Change("not None", {"None)\n": "torch.ones(3))\n"}),),
    ),
    Recompiled(
        "one tensor twice",
        """
def program(a, b):
    return a.sin() if a is b else a + b  # the fault

def run(call):
    x = torch.ones(3)
    call(x, torch.ones(3))
    call(x, x)
""",
        "a",
        "aliasing",
        "two objects",
        "one object",
        (Change("clone", {"call(x, x)": "call(x.clone(), x)"}),),
    ),
    # ---------------------------------------------------------------- numbers and constants
    Recompiled(
        "a number",
        """
def program(x, n):
    return x * n  # the fault

def run(call):
    for n in (3, 4, 5, 6):
        call(torch.ones(3), n)
""",
        "n",
        "value",
        "3",
        "4",
        (
            Change("dynamic numbers", options=DYNAMIC),
            Change("dynamic numbers", {"call(torch.ones(3), n)": "call(torch.ones(3), torch.tensor(n))"}),
        ),
    ),
    Recompiled(
        "a float",
        """
def program(x, lr):
    return x * lr  # the fault

def run(call):
    for lr in (0.5, 0.25, 0.125):
        call(torch.ones(3), lr)
""",
        "lr",
        "value",
        "0.5",
        "0.25",
        (Change("dynamic numbers", {"call(torch.ones(3), lr)": "call(torch.ones(3), torch.tensor(lr))"}),),
    ),
    Recompiled(
        "the probability of dropout",
        """
def program(x, p):
    return torch.nn.functional.dropout(x, p)  # the fault

def run(call):
    for p in (0.1, 0.2, 0.3, 0.4, 0.5):
        call(torch.ones(3), p)
""",
        "p",
        "value",
        "0.1",
        "0.2",
        (
            Change(
                "few values", {"call(torch.ones(3), p)": "call(torch.ones(3), 0.25 if p < 0.3 else 0.5)"}, compiles=2
            ),
        ),
        compiles=5,
    ),
    Recompiled(
        "the probability of a dropout module",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(x)  # the fault

program = Model()

def run(call):
    for p in (0.1, 0.2, 0.3):
        program.drop.p = p
        call(torch.ones(3))
""",
        "self.drop.p",
        "value",
        "0.1",
        "0.2",
        (Change("few values", {"(0.1, 0.2, 0.3)": "(0.1, 0.1, 0.1)"}),),
        compiles=3,
    ),
    Recompiled(
        "a range that is unrolled",
        """
def program(x, n):
    for i in list(range(n)):  # the fault
        x = x + i
    return x

def run(call):
    for n in (2, 3, 4, 5):
        call(torch.ones(3), n)
""",
        "n",
        "value",
        "2",
        "3",
        (Change("few values", {"(2, 3, 4, 5)": "(2, 4, 4, 4)"}, compiles=2),),
        compiles=4,
        options=DYNAMIC,
    ),
    Recompiled(
        "a string",
        """
def program(x, how):
    return x.sin() if how == "sin" else x.cos()  # the fault

def run(call):
    for how in ("sin", "cos", "tan"):
        call(torch.ones(3), how)
""",
        "how",
        "value",
        "'sin'",
        "'cos'",
        (Change("few values", {'("sin", "cos", "tan")': '("sin", "cos", "cos")'}, compiles=2),),
        compiles=3,
    ),
    Recompiled(
        "a bool",
        """
def program(x, flip):
    return -x if flip else x.sin()  # the fault

def run(call):
    for flip in (False, True, False, True):
        call(torch.ones(3), flip)
""",
        "flip",
        "value",
        "False",
        "True",
        remedy="two values",
    ),
    Recompiled(
        "the type of a number",
        """
def program(x, n):
    return x * n  # the fault

def run(call):
    call(torch.ones(3), 2)
    call(torch.ones(3), 2.0)
""",
        "n",
        "class",
        "int",
        "float",
        (Change("one type", {"3), 2)": "3), float(2))"}),),
    ),
    # ---------------------------------------------------------------- containers
    Recompiled(
        "the length of a list",
        """
def program(xs):
    total = 0
    for x in xs:  # the fault
        total = total + x
    return total

def run(call):
    call([torch.ones(3)])
    call([torch.ones(3), torch.zeros(3)])
""",
        "xs",
        "length",
        "1",
        "2",
        (Change("one length", {"call([torch.ones(3)])": "call([torch.ones(3), torch.zeros(3)])"}),),
    ),
    Recompiled(
        "a key of a dict",
        """
def program(x, options):
    return x * 2 if "scale" in options else x.sin()  # the fault

def run(call):
    call(torch.ones(3), {"a": 1})
    call(torch.ones(3), {"a": 1, "scale": 2})
""",
        "options",
        "key",
        "absent",
        "present",
        (Change("all keys", {'{"a": 1})': '{"a": 1, "scale": 2})'}),),
    ),
    Recompiled(
        "a number of a function under torch.no_grad",
        """
@torch.no_grad()
def program(x, t):
    if t > 0:  # the fault
        return x.sin() * t
    return x.cos() * t

def run(call):
    for t in (5, 6):
        call(torch.ones(3), t)
""",
        "t",
        "value",
        "5",
        "6",
        (Change("dynamic numbers", options={"dynamic": True}),),
        logs={"name": "args[1]"},  # Dynamo's function around it has the name of another script's
    ),
    Recompiled(
        "a dict that becomes empty",
        """
def program(x, items):
    for value in items.values():  # the fault
        x = x + value
    return x.sin()

def run(call):
    for items in ({"a": torch.ones(3)}, {}):
        call(torch.ones(3), items)
""",
        "items",
        "keys",
        "['a']",
        "[]",
        (Change("all keys", {", {})": ', {"a": torch.zeros(3)})'}),),
    ),
    Recompiled(
        "a dict that was empty",
        """
def program(x, items):
    for value in items.values():  # the fault
        x = x + value
    return x.sin()

def run(call):
    for items in ({}, {"a": torch.ones(3)}):
        call(torch.ones(3), items)
""",
        "items",
        "keys",
        "[]",
        "['a']",
        (Change("all keys", {"({}, ": '({"a": torch.zeros(3)}, '}),),
    ),
    Recompiled(
        "a dict that grows",
        """
SEEN = {}

def program(x):
    SEEN[f"call {len(SEEN)}"] = True  # the fault
    return x * 2

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "SEEN",
        "keys",
        "[]",
        "['call 0']",
        (
            Change(
                "no growing dict",
                {
                    '    SEEN[f"call {len(SEEN)}"] = True  # the fault\n': "",
                    "        call(": '        SEEN[f"call {len(SEEN)}"] = True\n        call(',
                },
            ),
        ),
        compiles=4,
        stock={"aspect": "length", "expected": "0", "got": "1"},
    ),
    Recompiled(
        "a list that grows",
        """
SUMS = []

def program(x):
    SUMS.append(x.sum())
    return x * len(SUMS)  # the fault

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "SUMS",
        "length",
        "0",
        "1",
        (
            Change(
                "no growing list",
                {
                    "def program(x):\n    SUMS.append(x.sum())\n    return x * len(SUMS)  # the fault": ""
                    "def program(x):\n    return x * 2, x.sum()",
                    "        call(": "        SUMS.append(x.sum())\n        call(",
                    "    for _ in range(4):\n": "    x = torch.ones(3)\n    for _ in range(4):\n",
                },
            ),
        ),
        compiles=4,
        stock={"line": 5},  # which changes the list
    ),
    Recompiled(
        "a vector in place of a matrix",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    for shape in ((8, 4), (6, 5), (7,)):
        call(torch.ones(shape))
""",
        "x",
        "rank",
        "2",
        "1",
        (Change("one rank", {"(7,)": "(7, 2)"}),),
        options=DYNAMIC,
        stock={"is_confirmed": False},
    ),
    Recompiled(
        "a list that grows by what a break returns",
        """
import random

DRAWN = []

def program(x):
    DRAWN.insert(0, random.random())  # the fault
    return x.sin()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "DRAWN",
        "length",
        "0",
        "1",
        (
            Change(
                "no growing list",
                {
                    "    DRAWN.insert(0, random.random())  # the fault\n": "",
                    "        call(": "        DRAWN.insert(0, random.random())\n        call(",
                },
            ),
        ),
        compiles=5,
        breaks=1,
        stock=None,  # where the bound method that is held across the break is another object, too
    ),
    Recompiled(
        "an average that starts as None",
        """
class Average:
    def __init__(self):
        self.value = None

    def update(self, x):
        self.value = x if self.value is None else 0.9 * self.value + 0.1 * x  # the fault
        return self.value

AVERAGE = Average()

def program(x):
    return AVERAGE.update(x) * 2

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "AVERAGE.value",
        "value",
        "None",
        "a Tensor",
        (Change("a value at first", {"AVERAGE = Average()": "AVERAGE = Average()\nAVERAGE.value = torch.ones(3)"}),),
    ),
    Recompiled(
        "a tensor that was made in inference mode",
        """
def program(x):
    return x.sin() * 2  # the fault

def run(call):
    with torch.inference_mode():
        x = torch.ones(3)
    call(torch.ones(3))
    call(x)
""",
        "x",
        "dispatch keys",
        "those of a tensor that autograd tracks",
        "those of an inference tensor",
        (
            Change("no inference tensor", {"    call(x)": "    call(x.clone())"}),
            Change("no inference tensor", {"inference_mode()": "no_grad()"}),
        ),
    ),
    # ---------------------------------------------------------------- objects
    Recompiled(
        "training mode",
        """
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sin() if self.training else x.cos()  # the fault

program = Model()

def run(call):
    for mode in (True, False, True, False):
        program.train(mode)
        call(torch.ones(3))
""",
        "self.training",
        "value",
        "True",
        "False",
        remedy="two values",
    ),
    Recompiled(
        "a counter in a module",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # the fault
        return x * self.calls

program = Model()

def run(call):
    for _ in range(4):
        call(torch.ones(3))
""",
        "self.calls",
        "value",
        "0",
        "1",
        (
            Change(
                "a tensor",
                {"        self.calls = 0": '        self.register_buffer("calls", torch.tensor(0))'},
                engines=("torch",),
            ),
        ),
        remedy="symbolic number",
        stock={"compiles": 4, "remedy": ""},
    ),
    Recompiled(
        "an attribute of an object",
        """
class Options:
    alpha = 1
    scale = "a"

options = Options()

def program(x):
    return x.sin() if options.scale == "a" else x.cos()  # the fault

def run(call):
    for scale in ("a", "b", "c"):
        options.scale = scale
        call(torch.ones(3))
""",
        "options.scale",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
    ),
    Recompiled(
        "an attribute that is set later",
        """
class Options:
    pass

options = Options()

def program(x):
    return x * 2 if hasattr(options, "scale") else x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    options.scale = 2
    call(torch.ones(3))
""",
        "options",
        "attribute",
        "absent",
        "present",
        (
            Change(
                "set before",
                {"    call(torch.ones(3))\n    options.scale = 2": "    options.scale = 2\n    call(torch.ones(3))"},
            ),
        ),
    ),
    Recompiled(
        "the type of an argument",
        """
class A:
    factor = 2

class B:
    factor = 3

def program(x, which):
    return x * which.factor  # the fault

def run(call):
    call(torch.ones(3), A())
    call(torch.ones(3), B())
""",
        "which",
        "class",
        "A",
        "B",
        (Change("one class", {"3), B())": "3), A())"}),),
    ),
    Recompiled(
        "one object twice",
        """
class Box:
    def __init__(self):
        self.value = 0

def program(x, a, b):  # the fault
    a.value = 1
    return x + b.value

def run(call):
    a, b = Box(), Box()
    call(torch.ones(3), a, b)
    a.value = 0
    call(torch.ones(3), b, b)
""",
        "a",
        "aliasing",
        "two objects",
        "one object",
        (Change("copy", {"call(torch.ones(3), b, b)": "call(torch.ones(3), __import__('copy').copy(b), b)"}),),
        stock=None,
    ),
    Recompiled(
        "a function that is made at each call",
        """
def program(x, fn):
    return fn(x)  # the fault

def run(call):
    call(torch.ones(3), lambda x: x.sin())
    call(torch.ones(3), lambda x: x.cos())
""",
        "fn",
        "identity",
        "<lambda>",
        "another <lambda>",
        (
            Change(
                "same object",
                {
                    "def run": "same = lambda x: x.sin()\n\ndef run",
                    "lambda x: x.sin())\n    call(torch.ones(3), lambda x: x.cos())": "same)\n    call(torch.ones(3), same)",
                },
            ),
        ),
        stock={"expected": "the object at capture", "got": "another object"},
    ),
    # ---------------------------------------------------------------- globals and closures
    Recompiled(
        "a global",
        """
MODE = "a"

def program(x):
    return x.sin() if MODE == "a" else x.cos()  # the fault

def run(call):
    global MODE
    for MODE in ("a", "b", "c"):
        call(torch.ones(3))
""",
        "MODE",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
    ),
    Recompiled(
        "a variable of a closure",
        """
def make():
    factor = "a"

    def inner(x):
        return x.sin() if factor == "a" else x.cos()  # the fault

    def change(value):
        nonlocal factor
        factor = value

    return inner, change

program, change = make()

def run(call):
    for value in ("a", "b", "c"):
        change(value)
        call(torch.ones(3))
""",
        "factor",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
    ),
    # ---------------------------------------------------------------- PyTorch's settings
    Recompiled(
        "grad mode",
        """
def program(x):  # the fault
    return x.sin()

def run(call):
    call(torch.ones(3))
    with torch.no_grad():
        call(torch.ones(3))
""",
        "torch's global state",
        "setting",
        "on",
        "off",
        (Change("two modes", {"    with torch.no_grad():\n        call": "    call"}),),
    ),
    Recompiled(
        "autocast",
        """
def program(x):  # the fault
    return x @ x

def run(call):
    call(torch.ones(3, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call(torch.ones(3, 3))
""",
        "torch's global state",
        "setting",
        "off",
        "torch.bfloat16",
        (Change("one setting", {'    with torch.autocast("cpu", dtype=torch.bfloat16):\n        call': "    call"}),),
    ),
    Recompiled(
        "the default dtype",
        """
def program(x):  # the fault
    return x + torch.ones(3)

def run(call):
    call(torch.ones(3, dtype=torch.float32))
    torch.set_default_dtype(torch.float64)
    try:
        call(torch.ones(3, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)
""",
        "torch's global state",
        "setting",
        "torch.float32",
        "torch.float64",
        (Change("one setting", {"    torch.set_default_dtype(torch.float64)\n": ""}),),
    ),
    Recompiled(
        "inference mode",
        """
def program(x):  # the fault
    return x.sin()

def run(call):
    x = torch.ones(3)
    call(x)
    with torch.inference_mode():
        call(x)
""",
        "torch's global state",
        "setting",
        "off",
        "on",
        (Change("two modes", {"    with torch.inference_mode():\n        call": "    call"}),),
        stock={"expected": "on", "got": "off"},  # of the grad mode, which is off in inference mode
    ),
    Recompiled(
        "the number of threads",
        """
def program(x):  # the fault
    return x.sin()

def run(call):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    call(torch.ones(3))
    torch.set_num_threads(2)
    try:
        call(torch.ones(3))
    finally:
        torch.set_num_threads(before)
""",
        "torch's global state",
        "setting",
        "1",
        "2",
        (Change("one setting", {"    torch.set_num_threads(2)\n": ""}),),
    ),
    Recompiled(
        "the default device",
        """
def program(x):  # the fault
    return x.to("cpu").sin()

def run(call):
    x = torch.ones(3)
    call(x)
    with torch.device("meta"):
        call(x)
""",
        "torch's global state",
        "setting",
        "none",
        "meta",
        (Change("one setting", {'    with torch.device("meta"):\n        call': "    call"}),),
        stock={"expected": "the one at capture", "got": ""},
    ),
    Recompiled(
        "deterministic algorithms",
        """
def program(x):  # the fault
    return x.sin()

def run(call):
    call(torch.ones(3))
    torch.use_deterministic_algorithms(True)
    try:
        call(torch.ones(3))
    finally:
        torch.use_deterministic_algorithms(False)
""",
        "torch's global state",
        "setting",
        "off",
        "on",
        (Change("one setting", {"    torch.use_deterministic_algorithms(True)\n": ""}),),
    ),
    # ---------------------------------------------------------------- more of tensors
    Recompiled(
        "a device",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    call(torch.ones(3))
    call(torch.ones(3, device="meta"))
""",
        "x",
        "device",
        "cpu",
        "meta",
        (Change("one device", {'device="meta"': 'device="cpu"'}),),
    ),
    Recompiled(
        "two dimensions of one tensor",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    for rows, columns in ((8, 3), (5, 4), (6, 7)):
        call(torch.ones(rows, columns))
""",
        "x",
        "size",
        "(8, 3)",
        "(5, 4)",
        (Change("dynamic sizes", options=DYNAMIC),),
    ),
    Recompiled(
        "a dimension that was marked, in a range",
        """
def program(x):
    return x.sin()  # the fault

def run(call):
    for n in (8, 5, 9, 100):
        x = torch.ones(n, 3)
        if n == 8:
            torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
        call(x)
""",
        "x.size(0) <= 16",
        "relation",
        "x.size(0) <= 16",
        "x.size(0) is 100",
        (Change("one case", {"(8, 5, 9, 100)": "(8, 5, 9, 16)"}),),
        stock={"name": "2 <= x.size(0) <= 16", "is_confirmed": False, "expected": "2 <= x.size(0) <= 16"},
    ),
    Recompiled(
        "a parameter that is frozen",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x)  # the fault

program = Model()

def run(call):
    call(torch.ones(2, 3))
    program.linear.weight.requires_grad_(False)
    call(torch.ones(2, 3))
""",
        "self.linear.weight",
        "requires_grad",
        "True",
        "False",
        (
            Change(
                "one requires_grad",
                {
                    "    call(torch.ones(2, 3))\n    program.linear.weight.requires_grad_(False)": "    program.linear.weight.requires_grad_(False)"
                },
            ),
        ),
    ),
    # ---------------------------------------------------------------- more of Python
    Recompiled(
        "the order of keys",
        """
def program(x, weights):
    for key in weights:  # the fault
        x = x * 2 + weights[key]
    return x

def run(call):
    call(torch.ones(3), {"a": 1, "b": 2})
    call(torch.ones(3), {"b": 2, "a": 1})
""",
        "weights",
        "keys",
        "['a', 'b']",
        "['b', 'a']",
        (Change("all keys", {'{"b": 2, "a": 1}': '{"a": 1, "b": 2}'}),),
    ),
    Recompiled(
        "the items of a set",
        """
def program(x, names):
    return x.sin() if "a" in names else x.cos()  # the fault

def run(call):
    call(torch.ones(3), {"a"})
    call(torch.ones(3), {"b"})
""",
        "names",
        "items",
        "{'a'}",
        "{'b'}",
        (Change("same items", {'{"b"}': '{"a"}'}),),
        stock={"expected": "some with 'a'", "got": "others, without 'a'"},
    ),
    Recompiled(
        "the order of a set",
        """
def program(x, numbers):
    for number in numbers:  # the fault
        x = x * 2 + number
    return x

def run(call):
    call(torch.ones(3), {0, 8})
    call(torch.ones(3), {8, 0})
""",
        "numbers",
        "order",
        "[0, 8]",
        "[8, 0]",
        (Change("sorted", {"3), {0, 8}": "3), sorted({0, 8})", "3), {8, 0}": "3), sorted({8, 0})"}),),
        stock=None,
    ),
    Recompiled(
        "an enum",
        """
import enum

class Mode(enum.Enum):
    A = 1
    B = 2

def program(x, mode):
    return x.sin() if mode is Mode.A else x.cos()  # the fault

def run(call):
    call(torch.ones(3), Mode.A)
    call(torch.ones(3), Mode.B)
""",
        "mode",
        "value",
        "Mode.A",
        "Mode.B",
        (
            Change("few values", {"3), Mode.B": "3), Mode.A"}, engines=("core",)),
            Change("same object", {"3), Mode.B": "3), Mode.A"}, engines=("torch",)),
        ),
        stock={
            "remedy": "same object",
            "aspect": "identity",
            "expected": "the one at capture",
            "got": "another Mode",
            "line": 9,
        },
    ),
    Recompiled(
        "a number in a list",
        """
def program(x, factors):
    return x * factors[0]  # the fault

def run(call):
    for n in (3, 4, 5):
        call(torch.ones(3), [n])
""",
        "factors[0]",
        "value",
        "3",
        "4",
        (Change("dynamic numbers", {"call(torch.ones(3), [n])": "call(torch.ones(3), [torch.tensor(n)])"}),),
    ),
    Recompiled(
        "a mode of a submodule",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0))

    def forward(self, x):
        return self.layers(x)  # the fault

program = Model()

def run(call):
    call(torch.ones(2, 3))
    program.layers[1].eval()
    call(torch.ones(2, 3))
""",
        "self.layers[1].training",
        "value",
        "True",
        "False",
        remedy="two values",
    ),
    Recompiled(
        "an attribute of a class",
        """
class Model(torch.nn.Module):
    scale = "a"

    def forward(self, x):
        return x * 2 if self.scale == "a" else x.sin()  # the fault

program = Model()

def run(call):
    for scale in ("a", "b", "c"):
        Model.scale = scale
        call(torch.ones(3))
""",
        "self.scale",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
        stock={"name": "type(self).scale"},
    ),
    Recompiled(
        "a function of a library that is replaced",
        """
def program(x):
    return torch.sin(x)  # the fault

def run(call):
    call(torch.ones(3))
    before = torch.sin
    torch.sin = torch.cos
    try:
        call(torch.ones(3))
    finally:
        torch.sin = before
""",
        "torch",
        "function",
        "as it was",
        "replaced",
        (
            Change("replace before", {"    torch.sin = torch.cos\n": ""}, engines=("core",)),
            Change("same object", {"    torch.sin = torch.cos\n": ""}, engines=("torch",)),
        ),
        stock={
            "name": "torch.sin",
            "aspect": "identity",
            "expected": "the object at capture",
            "got": "another object",
            "remedy": "same object",
        },
    ),
    Recompiled(
        "a global that hides a builtin",
        """
def program(x):
    return x * abs(-2)  # the fault

def run(call):
    call(torch.ones(3))
    globals()["abs"] = lambda n: n
    call(torch.ones(3))
""",
        "abs",
        "value",
        "the builtin abs",
        "a global abs",
        (Change("define before", {"    call(torch.ones(3))\n    globals": "    globals"}),),
        stock=None,
    ),
    Recompiled(
        "a setting that the program asks for",
        """
def program(x):
    return x.sin() if torch.is_warn_always_enabled() else x.cos()  # the fault

def run(call):
    call(torch.ones(3))
    torch.set_warn_always(True)
    try:
        call(torch.ones(3))
    finally:
        torch.set_warn_always(False)
""",
        "is_warn_always_enabled",
        "result",
        "False",
        "True",
        (
            Change(
                "call before",
                {
                    "def program(x):": "def program(x, always):",
                    "torch.is_warn_always_enabled()": "always",
                    "call(torch.ones(3))": "call(torch.ones(3), torch.tensor(True))",
                    "x.sin() if always else x.cos()": "torch.where(always, x.sin(), x.cos())",
                },
            ),
        ),
        stock=None,
    ),
    Recompiled(
        "a value that a callee of another function reads",
        """
def scaled(x, how):
    return x * 2 if how["mode"] == "a" else x.sin()  # the fault

def middle(x, how):
    return scaled(x + 1, how)

def program(x, how):
    return middle(x, how)

def run(call):
    for mode in ("a", "b", "c"):
        call(torch.ones(3), {"mode": mode})
""",
        "how['mode']",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
    ),
    Recompiled(
        "a field of a dataclass",
        """
from dataclasses import dataclass

@dataclass
class Options:
    how: str

def program(x, options):
    return x.sin() if options.how == "a" else x.cos()  # the fault

def run(call):
    for how in ("a", "b", "c"):
        call(torch.ones(3), Options(how))
""",
        "options.how",
        "value",
        "'a'",
        "'b'",
        (Change("few values", {'("a", "b", "c")': '("a", "b", "b")'}, compiles=2),),
        compiles=3,
    ),
    Recompiled(
        "a tuple of another length",
        """
def program(x, *rest):
    for each in rest:  # the fault
        x = x + each
    return x

def run(call):
    call(torch.ones(3), torch.ones(3))
    call(torch.ones(3), torch.ones(3), torch.zeros(3))
""",
        "rest",
        "length",
        "1",
        "2",
        (
            Change(
                "one length",
                {"call(torch.ones(3), torch.ones(3))\n": "call(torch.ones(3), torch.ones(3), torch.zeros(3))\n"},
            ),
        ),
    ),
    Recompiled(
        "a dtype as an argument",
        """
def program(x, dtype):
    return x.to(dtype)  # the fault

def run(call):
    call(torch.ones(3), torch.float64)
    call(torch.ones(3), torch.float16)
""",
        "dtype",
        "value",
        "torch.float64",
        "torch.float16",
        (Change("few values", {"torch.float16": "torch.float64"}),),
    ),
    Recompiled(
        "another set of tensors in a dict",
        """
def program(batch):
    return sum(each.sum() for each in batch.values())  # the fault

def run(call):
    call({"a": torch.ones(3)})
    call({"a": torch.ones(3), "b": torch.ones(2)})
""",
        "batch",
        "keys",
        "['a']",
        "['a', 'b']",
        (Change("all keys", {'{"a": torch.ones(3)})': '{"a": torch.ones(3), "b": torch.zeros(2)})'}),),
    ),
    Recompiled(
        "an attribute that the function sets",
        """
class State:
    pass

state = State()

def program(x):
    state.steps = getattr(state, "steps", 0) + 1  # the fault
    return x * 2

def run(call):
    for _ in range(2):
        call(torch.ones(3))
""",
        "state",
        "attribute",
        "absent",
        "present",
        (Change("set before", {"state = State()": "state = State()\nstate.steps = torch.tensor(0)"}),),
    ),
    Recompiled(
        "a module of PyTorch that is compiled itself",
        """
program = torch.nn.Sequential(torch.nn.Linear(3, 3))

def run(program):
    inputs = [torch.ones(2, 3), torch.ones(2, 3).requires_grad_()]
    return [program(each).sum() for each in inputs]  # the fault
""",
        "input",
        "requires_grad",
        "False",
        "True",
        (Change("one requires_grad", {"program(each)": "program(each.detach())"}),),
        logs={"name": "each"},
    ),
    Recompiled(
        "a value that a graph break leaves",
        """
def program(x):
    y = x * 2
    if int(y.sum().item()) > 0:  # the fault
        y = y + 1
    return y * 2

def run(call):
    for n in (1.0, -1.0):
        call(torch.full((3,), n))
""",
        "int(y.sum().item()) > 0",
        "relation",
        "int(y.sum().item()) > 0",
        "int(y.sum().item()) is -6",
        (
            Change(
                "value of a break",
                {
                    "    if int(y.sum().item()) > 0:  # the fault\n        y = y + 1\n": "    y = torch.where(y.sum() > 0, y + 1, y)\n"
                },
            ),
        ),
        compiles=3,
        breaks=1,
        options={"dynamic": True},
        stock={"got": ""},
    ),
    Recompiled(
        "a shorter list",
        """
def program(x, extras):
    for extra in extras:  # the fault
        x = x + extra
    return x * 2

def run(call):
    call(torch.ones(3), [torch.ones(3), torch.ones(3)])
    call(torch.ones(3), [torch.ones(3)])
""",
        "extras",
        "length",
        "2",
        "1",
        (Change("one length", {"[torch.ones(3)]": "[torch.ones(3), torch.ones(3)]"}),),
    ),
    Recompiled(
        "an array of NumPy of another dtype",
        """
import numpy

def program(array):
    return torch.from_numpy(array).double() * 2  # the fault

def run(call):
    call(numpy.ones(3, numpy.float32))
    call(numpy.ones(3, numpy.float64))
""",
        "array",
        "dtype",
        "torch.float32",
        "torch.float64",
        (Change("one dtype", {"numpy.float64": "numpy.float32"}),),
    ),
    Recompiled(
        "a module that is added",
        """
heads = torch.nn.ModuleDict({"mask": torch.nn.Linear(3, 3)})

def program(x):
    return sum(head(x).sum() for head in heads.values())  # the fault

def run(call):
    call(torch.ones(2, 3))
    heads["box"] = torch.nn.Linear(3, 3)
    call(torch.ones(2, 3))
""",
        "heads",
        "keys",
        "['mask']",
        "['mask', 'box']",
        (Change("modules before", {'    heads["box"] = torch.nn.Linear(3, 3)\n': ""}),),
    ),
    Recompiled(
        "the gradients that the first whole step makes",
        """
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)

def program(x):
    optimizer.zero_grad(set_to_none=False)  # the fault
    loss = (x * weight).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()

def run(call):
    for _ in range(3):
        call(torch.ones(3))
""",
        "weight.grad",
        "value",
        "None",
        "a Tensor",
        remedy="first step",
        options={"capture_backward": True},
        stock=None,
    ),
]
