"""Answers to the exercise of the guard."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "one comparison": """
def guard(x, options):
    facts = type(x), x.dtype, x.device, x.shape, x.stride(), x.requires_grad
    if facts != (torch.Tensor, torch.float32, torch.device("cpu"), (3,), (1,), False):
        return False
    return repr([options["factor"], options["shift"]]) == "[2, False]"
""",
    "from an example": """
def facts_of(value):
    if isinstance(value, torch.Tensor):
        example = torch.empty_like(value, device="meta")
        return type(value), value.device, example.dtype, example.shape, value.stride(), value.requires_grad
    return type(value), value


EXPECTED = [facts_of(torch.ones(3)), facts_of(2), facts_of(False)]


def guard(x, options):
    return [facts_of(x), facts_of(options["factor"]), facts_of(options["shift"])] == EXPECTED
""",
}

WRONG = [
    Wrong("holds always", "List what `apply` reads", "def guard(x, options):\n    return True\n"),
    Wrong(
        "asks the compiler",
        "let the compiler decide",
        "def guard(x, options):\n    return dispatcher.failing_guard(0, x, options) is None\n",
    ),
    Wrong(
        "asks the compiler in a helper",
        "let the compiler decide",
        "def helper(call):\n    return dispatcher.failing_guard(0, *call) is None\n\n"
        "def guard(x, options):\n    return helper((x, options))\n",
    ),
    Wrong("less than 3", "compare the size of the factor", old="factor == 2", new="factor < 3"),
    Wrong("the square", "an absolute value or a square", old="factor == 2", new="factor * factor == 4"),
    Wrong(
        "all of options",
        "compare all of `options`",
        old="return type(factor)",
        new='if options != {"factor": 2, "shift": False}:\n        return False\n    return type(factor)',
    ),
    Wrong("elements", "compare elements", old="x.requires_grad:", new="x.requires_grad or x[..., 0] != 1:"),
    Wrong(
        "the number of elements",
        "the number of elements",
        old="x.shape != (3,) or x.stride() != (1,)",
        new="x.numel() != 3",
    ),
    Wrong("the length", "length of the first", old="x.shape != (3,) or x.stride() != (1,)", new="len(x) != 3"),
    Wrong("no dtype", "forgot the dtype", old="x.dtype != torch.float32 or ", new=""),
    Wrong("no gradient", "forgot `requires_grad`", old=" or x.requires_grad", new=""),
    Wrong("no type of the number", "2 == 2.0", old="type(factor) is int and ", new=""),
    Wrong("any factor", "for an input", old="factor == 2", new="factor != 0"),
    Wrong("not shift", "0 is not False", old="shift is False", new="not shift"),
    Wrong("no shift", "forgot the branch", old=" and shift is False", new=""),
    Wrong("no strides", "forgot the strides", old=" or x.stride() != (1,)", new=""),
    Wrong("no class", "an nn.Parameter:\n", old="type(x) is not torch.Tensor or ", new=""),
    Wrong("no device", "on the device meta:\n", old='x.device.type != "cpu" or ', new=""),
    Wrong("raises", "raised KeyError: 'scale'", old='options["factor"]', new='options["scale"]'),
    Wrong(
        "instances of subclasses",
        "take subclasses for the class",
        """
def guard(x, options):
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or x.device.type != "cpu" or x.requires_grad:
        return False
    if x.shape != (3,) or x.stride() != (1,):
        return False
    return type(options["factor"]) is int and options["factor"] == 2 and options["shift"] is False
""",
    ),
    Wrong(
        "the same tensor",
        "the same tensor, not the same facts",
        """
first = CALLS["the same"][0]
def guard(x, options):
    return x is first and options["factor"] == 2 and options["shift"] is False
""",
    ),
]
