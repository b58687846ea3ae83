"""Answers to the tasks of the lessons: other right ones, and wrong ones by a part of what is said of them."""

from __future__ import annotations

SMALLEST = "The smallest that is not:"

OTHER_RIGHT = {
    "frames/call": """
def call(entries, compile_for, x):
    found = next((code for guard, code in entries if guard(x)), None)
    if found is None:
        entries += [compile_for(x)]
        found = entries[-1][1]
    return found(x)
""",
    "bytecode/execute": """
def execute(instructions, variables):
    values = {**variables}
    stack = []
    for name, argument in instructions:
        match name:
            case "LOAD_FAST":
                stack.append(values[argument])
            case "LOAD_CONST":
                stack.append(argument)
            case "STORE_FAST":
                values[argument] = stack.pop()
            case "UNARY_NEGATIVE":
                stack[-1] = -stack[-1]
            case "BINARY_OP":
                right = stack.pop()
                stack[-1] = eval(f"left {argument} right", {"left": stack[-1], "right": right})
            case "RETURN_VALUE":
                break
    return stack[-1]
""",
    "breaks/clip": "def clip_in_one_graph(v):\n    return v / v.norm().clamp(min=1)\n",
    "joint/swish": """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.silu(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = 1 / (1 + torch.exp(-x))
        return grad * s * (1 + x * (1 - s))


def swish(x):
    return Swish.apply(x)
""",
    "sizes/compiles": """
def compiles(sizes):
    ones = int(1 in sizes)
    others = [size for size in sizes if size != 1]
    if not others:
        return ones
    if sizes[0] == 1:
        return 1 + 1
    return 1 + ones + any(size != others[0] for size in others)
""",
    "step/launches": """
def end(times, launch):
    if not times:
        return 0.0
    return max((i + 1) * launch + sum(times[i:]) for i in range(len(times)))
""",
    "stock/culprit": """
def culprit(record):
    subjects = [compile_.cause.subject for compile_ in record.compiles if compile_.cause is not None]
    return max(subjects, key=subjects.count, default=None)
""",
}

SWISH = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {forward}
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        {backward}


def swish(x):
    return Swish.apply(x)
"""
ONE = "ctx.save_for_backward(x)"
S = "(x,) = ctx.saved_tensors; s = torch.sigmoid(x); "


def _swish(forward: str, backward: str) -> str:
    return SWISH.replace("{forward}", forward).replace("{backward}", backward)


EXECUTE = """
def execute(instructions, variables):
    stack, {variables}
    for name, argument in instructions:
        if name == "LOAD_FAST":
            stack.append(variables[argument])
        elif name == "LOAD_CONST":
            stack.append(argument)
        elif name == "STORE_FAST":
            {store}
        elif name == "UNARY_NEGATIVE":
            stack.append(-{negated})
        elif name == "BINARY_OP":
            {operands} = stack.pop(), stack.pop()
            stack.append(eval(f"left {argument} right", {"left": left, "right": right}))
        elif name == "RETURN_VALUE":
            {returned}
    {last}
"""


def _execute(**changed: str) -> str:
    parts = {
        "variables": "variables = [], dict(variables)",
        "store": "variables[argument] = stack.pop()",
        "negated": "stack.pop()",
        "operands": "right, left",
        "returned": "return stack.pop()",
        "last": "return None",
    } | changed
    code = EXECUTE
    for name, text in parts.items():
        code = code.replace("{" + name + "}", text)
    return code


WRONG: dict[str, dict[str, str]] = {
    "frames/call": {
        "You probably run the entry that was compiled last": """
def call(entries, compile_for, x):
    if not any(guard(x) for guard, code in entries):
        entries.append(compile_for(x))
    return entries[-1][1](x)
""",
        "You probably put the new entry before the others": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code(x)
    entries.insert(0, compile_for(x))
    return entries[0][1](x)
""",
        "You probably compile twice": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code(x)
    entries.append(compile_for(x))
    return compile_for(x)[1](x)
""",
        "You probably keep the code alone": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code(x)
    guard, code = compile_for(x)
    entries.append(code)
    return code(x)
""",
        "You probably compile at each call": """
def call(entries, compile_for, x):
    entries.append(compile_for(x))
    return entries[-1][1](x)
""",
        "You probably forgot to keep": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code(x)
    return compile_for(x)[1](x)
""",
        "without asking its guard": """
def call(entries, compile_for, x):
    if not entries:
        entries.append(compile_for(x))
    return entries[0][1](x)
""",
        "You probably replace the old entry": """
def call(entries, compile_for, x):
    if not entries or not entries[0][0](x):
        entries[:] = [compile_for(x)]
    return entries[0][1](x)
""",
        "You probably ask only the first guard": """
def call(entries, compile_for, x):
    if entries and entries[0][0](x):
        return entries[0][1](x)
    entries.append(compile_for(x))
    return entries[-1][1](x)
""",
        "You probably return the code": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code
    entries.append(compile_for(x))
    return entries[-1][1]
""",
        "You probably run nothing after a compile": """
def call(entries, compile_for, x):
    for guard, code in entries:
        if guard(x):
            return code(x)
    entries.append(compile_for(x))
""",
    },
    "bytecode/execute": {
        "You probably take the operands that were pushed first": """
def execute(instructions, variables):
    stack, variables = [], dict(variables)
    for name, argument in instructions:
        if name == "LOAD_FAST": stack.append(variables[argument])
        elif name == "LOAD_CONST": stack.append(argument)
        elif name == "STORE_FAST": variables[argument] = stack.pop()
        elif name == "UNARY_NEGATIVE": stack.append(-stack.pop())
        elif name == "BINARY_OP":
            left, right = stack.pop(0), stack.pop(0)
            stack.append(eval(f"left {argument} right", {"left": left, "right": right}))
        elif name == "RETURN_VALUE": return stack.pop()
""",
        "You probably remove a variable": """
def execute(instructions, variables):
    stack, variables = [], dict(variables)
    for name, argument in instructions:
        if name == "LOAD_FAST": stack.append(variables.pop(argument))
        elif name == "LOAD_CONST": stack.append(argument)
        elif name == "STORE_FAST": variables[argument] = stack.pop()
        elif name == "UNARY_NEGATIVE": stack.append(-stack.pop())
        elif name == "BINARY_OP":
            right, left = stack.pop(), stack.pop()
            stack.append(eval(f"left {argument} right", {"left": left, "right": right}))
        elif name == "RETURN_VALUE": return stack.pop()
""",
        "You probably add always": """
def execute(instructions, variables):
    stack, variables = [], dict(variables)
    for name, argument in instructions:
        if name == "LOAD_FAST": stack.append(variables[argument])
        elif name == "LOAD_CONST": stack.append(argument)
        elif name == "STORE_FAST": variables[argument] = stack.pop()
        elif name == "UNARY_NEGATIVE": stack.append(-stack.pop())
        elif name == "BINARY_OP":
            right, left = stack.pop(), stack.pop()
            stack.append(left + right)
        elif name == "RETURN_VALUE": return stack.pop()
""",
        "You probably leave the operands": """
def execute(instructions, variables):
    stack, variables = [], dict(variables)
    for name, argument in instructions:
        if name == "LOAD_FAST": stack.append(variables[argument])
        elif name == "LOAD_CONST": stack.append(argument)
        elif name == "STORE_FAST": variables[argument] = stack.pop()
        elif name == "UNARY_NEGATIVE": stack.append(-stack.pop())
        elif name == "BINARY_OP":
            right, left = stack[-1], stack[-2]
            stack.append(eval(f"left {argument} right", {"left": left, "right": right}))
        elif name == "RETURN_VALUE": return stack.pop()
""",
        "You probably take the operands in the wrong order": _execute(operands="left, right"),
        "You probably store in the variables of the caller": _execute(variables="variables = [], variables"),
        "You probably do not store": _execute(store="stack.pop()"),
        "You probably go on after RETURN_VALUE": _execute(returned="result = stack.pop()", last="return result"),
        "You probably push the negative value beside its operand": _execute(negated="stack[-1]"),
        "You probably return the stack": _execute(returned="return stack"),
        "You probably take the first value of the stack. What": _execute(returned="return stack[0]"),
        "You probably take the first value of the stack in a store": _execute(
            store="variables[argument] = stack.pop(0)"
        ),
        "You probably leave what you store": _execute(store="variables[argument] = stack[-1]"),
        SMALLEST: _execute(returned="return None"),
    },
    "breaks/clip": {
        "You probably divide by the sum of the squares": """
def clip_in_one_graph(v):
    return v / (v * v).sum().clamp(min=1)
""",
        "You probably divide by the root of the mean": """
def clip_in_one_graph(v):
    return v / v.pow(2).mean().sqrt().clamp(min=1)
""",
        "You probably keep the norm out of the gradient": """
def clip_in_one_graph(v):
    return v / v.norm().detach().clamp(min=1)
""",
        "You probably chose the wrong side": """
def clip_in_one_graph(v):
    norm = v.norm()
    return v / torch.where(norm > 1, 1.0, norm)
""",
        "The graph still breaks": "def clip_in_one_graph(v):\n    return v / v.norm() if v.norm() > 1 else v\n",
        "You probably divide always": "def clip_in_one_graph(v):\n    return v / v.norm()\n",
        "You probably clamp each element": "def clip_in_one_graph(v):\n    return v.clamp(-1, 1)\n",
        "You probably divide by the largest element": (
            "def clip_in_one_graph(v):\n    return v / v.abs().max().clamp(min=1)\n"
        ),
        "You probably divide by the sum": "def clip_in_one_graph(v):\n    return v / v.abs().sum().clamp(min=1)\n",
        "You probably divide in place": "def clip_in_one_graph(v):\n    return v.div_(v.norm().clamp(min=1))\n",
        "The gradient of zero is NaN": (
            "def clip_in_one_graph(v):\n    norm = v.norm()\n    return torch.where(norm > 1, v / norm, v)\n"
        ),
    },
    "joint/swish": {
        "You probably take the result for x": """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x*torch.sigmoid(x))
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors; s = torch.sigmoid(y); return grad * (s + y * (1 - s))


def swish(x):
    return Swish.apply(x)
""",
        "You probably add the gradient": """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors; s = torch.sigmoid(x); return grad + s + x * s * (1 - s)


def swish(x):
    return Swish.apply(x)
""",
        "You probably save more than x": _swish(
            "ctx.save_for_backward(x, torch.sigmoid(x))",
            "x, s = ctx.saved_tensors; return grad * (s + x * s * (1 - s))",
        ),
        "You probably keep x as an attribute": _swish(
            "ctx.x = x", "x = ctx.x; s = torch.sigmoid(x); return grad * (s + x * s * (1 - s))"
        ),
        "You probably call PyTorch's operations": "swish = torch.nn.functional.silu\n",
        "You probably forgot the gradient of the result": _swish(ONE, S + "return s + x * s * (1 - s)"),
        "You probably differentiate one factor only": _swish(ONE, S + "return grad * s"),
        "You probably took the derivative of the sigmoid for the sigmoid": _swish(ONE, S + "return grad * (s + x * s)"),
        SMALLEST: _swish(ONE, S + "return grad * (s - x * s * (1 - s))"),
    },
    "sizes/compiles": {
        "You probably compile whenever the size changes": """
def compiles(sizes):
    return 1 + sum(a != b for a, b in zip(sizes, sizes[1:]))
""",
        "You probably compile once for each size": "def compiles(sizes):\n    return len(set(sizes))\n",
        "You probably compile once for each call": "def compiles(sizes):\n    return len(sizes)\n",
        "You probably have a symbol from the start": "def compiles(sizes):\n    return 1 + (1 in sizes)\n",
        "You probably forgot the size 1": "def compiles(sizes):\n    return min(2, len(set(sizes)))\n",
        "You probably count a size alone beside the 1": """
def compiles(sizes):
    others = {size for size in sizes if size != 1}
    return (1 in sizes) + min(2, len(others))
""",
        "You probably forgot what was compiled for 1": """
def compiles(sizes):
    count, last, symbol = 0, None, False
    for size in sizes:
        if size == 1 or (size != last and not symbol):
            count += 1
            symbol = symbol or (size != 1 and last is not None)
            last = size
    return count
""",
    },
    "step/launches": {
        "You probably count one launch": """
def end(times, launch):
    return float(launch + sum(times)) if times else 0.0
""",
        "You probably add the launches only": """
def end(times, launch):
    return float(len(times) * launch)
""",
        "You probably wait for the last launch": """
def end(times, launch):
    return float(len(times) * launch + times[-1]) if times else 0.0
""",
        "You probably take the later of two ends": """
def end(times, launch):
    return max(len(times) * launch + times[-1], launch + sum(times)) if times else 0.0
""",
        "You probably ask for the last kernel of none": """
def end(times, launch):
    return max(len(times) * launch + times[-1], launch + sum(times))
""",
        "You probably add all launches and all kernels": (
            "def end(times, launch):\n    return float(sum(times) + len(times) * launch)\n"
        ),
        "You probably start the first kernel at 0": """
def end(times, launch):
    now = 0.0
    for number, time in enumerate(times):
        now = max(now, number * launch) + time
    return now
""",
        "You probably take the longer of two sums": (
            "def end(times, launch):\n    return float(max(sum(times), len(times) * launch))\n"
        ),
        "You probably add the longer of launch and kernel": (
            "def end(times, launch):\n    return float(sum(max(time, launch) for time in times))\n"
        ),
        "You probably add the kernels only": "def end(times, launch):\n    return float(sum(times))\n",
        SMALLEST: "def end(times, launch):\n    return float(max(times, default=0.0) + launch)\n",
    },
    "stock/culprit": {
        "You probably take the rarest cause": """
def culprit(record):
    causes = [c.cause.subject for c in record.compiles if c.cause]
    return min(causes, key=causes.count) if causes else None
""",
        "You probably return a list": """
def culprit(record):
    causes = [c.cause.subject for c in record.compiles if c.cause]
    return max(causes, key=causes.count) if causes else ''
""",
        "a job may have no recompile at all": (
            "def culprit(record):\n    causes = [each.cause.subject for each in record.compiles if each.cause]\n"
            "    return sorted(causes, key=causes.count)[-1]\n"
        ),
        "You probably take the first cause": (
            "def culprit(record):\n"
            "    return next((each.cause.subject for each in record.compiles if each.cause), None)\n"
        ),
        "You probably take the last cause": (
            "def culprit(record):\n    causes = [each.cause.subject for each in record.compiles if each.cause]\n"
            "    return causes[-1] if causes else None\n"
        ),
        "You probably return the cause": (
            "def culprit(record):\n    return next((each.cause for each in record.compiles if each.cause), None)\n"
        ),
        "You probably return the pair": (
            "from collections import Counter\n\n\ndef culprit(record):\n"
            "    found = Counter(each.cause.subject for each in record.compiles if each.cause).most_common(1)\n"
            "    return found[0] if found else None\n"
        ),
        SMALLEST: "def culprit(record):\n    return record.compiles[0].id\n",
    },
}
