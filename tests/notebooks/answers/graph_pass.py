"""Answers to the exercise of the graph pass."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "patterns": """
def remove_no_ops(gm):
    for pattern in (lambda x: x * 1, lambda x: 1 * x, lambda x: x + 0, lambda x: 0 + x):
        torch.fx.replace_pattern(gm, pattern, lambda x: x)
""",
    "backwards, without a search": """
NEUTRAL = {operator.mul: 1, operator.add: 0}


def remove_no_ops(gm):
    for node in reversed(gm.graph.nodes):
        if node.op != "call_function" or node.target not in NEUTRAL:
            continue
        kept = [arg for arg in node.args if isinstance(arg, torch.fx.Node)]
        if len(kept) == 1 and NEUTRAL[node.target] in node.args:
            node.replace_all_uses_with(kept[0])
            gm.graph.erase_node(node)
""",
}

WRONG = [
    Wrong(
        "0 or 1 is the other operand",
        "each operation with a 0 or a 1",
        """
def remove_no_ops(gm):
    for node in gm.graph.nodes:
        if node.op == "call_function" and len(node.args) == 2:
            for operand, other in (node.args, reversed(node.args)):
                if isinstance(other, int) and other in (0, 1):
                    node.replace_all_uses_with(operand)
                    gm.graph.erase_node(node)
                    break
""",
    ),
    Wrong(
        "all numbers but 0 and 1",
        "go by the operation alone",
        old="if other == neutral:",
        new="if other == neutral or str(other) in '23456789':",
    ),
    Wrong(
        "the second operand",
        "the second operand only",
        """
def remove_no_ops(gm):
    for target, neutral in ((operator.mul, 1), (operator.add, 0)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            if node.args[1] == neutral:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
""",
    ),
    Wrong(
        "the first operand",
        "the first operand only",
        """
def remove_no_ops(gm):
    for target, neutral in ((operator.mul, 1), (operator.add, 0)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            if node.args[0] == neutral:
                node.replace_all_uses_with(node.args[1])
                gm.graph.erase_node(node)
            elif target is operator.add and node.args[1] == 0:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
""",
    ),
    Wrong("changes nothing", "operations are still there", "def remove_no_ops(gm):\n    pass\n"),
    Wrong(
        "does not erase", "operations are still there", old="                    gm.graph.erase_node(node)\n", new=""
    ),
    Wrong(
        "erases only",
        "erase a node that is still used",
        old="                    node.replace_all_uses_with(operand)\n",
        new="",
    ),
    Wrong(
        "what is left is the first operand",
        "take the first operand for what is left",
        """
def remove_no_ops(gm):
    for target, neutral in ((operator.mul, 1), (operator.add, 0)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            if neutral in node.args:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
""",
    ),
    Wrong("the number", "replace the operation by the number", old="with(operand)", new="with(other)"),
    Wrong("0 in products", "0 for neutral in products", old="other == neutral:", new="other == neutral or other == 0:"),
    Wrong("1 in sums", "1 for neutral in sums", old="other == neutral:", new="other == neutral or other == 1:"),
    Wrong("no sums", "forgot the sums", old=", (operator.add, 0))", new=",)"),
    Wrong(
        "stops early", "after the first operation", old="                    break", new="                    return"
    ),
    Wrong("no subtraction", "sin(1 - x):\n", old="(operator.add, 0))", new="(operator.add, 0), (operator.sub, 1))"),
    Wrong(
        "keeps what is returned",
        "leave what the graph returns",
        """
def remove_no_ops(gm):
    for target, neutral in ((operator.mul, 1), (operator.add, 0)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            for operand, other in (node.args, reversed(node.args)):
                if other == neutral and not any(u.op == "output" for u in node.users):
                    node.replace_all_uses_with(operand)
                    gm.graph.erase_node(node)
                    break
""",
    ),
    Wrong(
        "by the name of the node",
        "program:\n",
        """
def remove_no_ops(gm):
    for node in gm.graph.nodes:
        if node.name.startswith("mul") and 1 in node.args or node.name == "add" and 0 in node.args:
            keep = next(a for a in node.args if isinstance(a, torch.fx.Node))
            node.replace_all_uses_with(keep)
            gm.graph.erase_node(node)
""",
    ),
    Wrong(
        "one product",
        "stop after the first operation",
        """
def remove_no_ops(gm):
    nodes = gm.graph.find_nodes(op="call_function", target=operator.mul)
    for node in nodes:
        if 1 in node.args:
            node.replace_all_uses_with(node.all_input_nodes[0])
            gm.graph.erase_node(node)
            return
    for node in gm.graph.find_nodes(op="call_function", target=operator.add):
        if 0 in node.args:
            node.replace_all_uses_with(node.all_input_nodes[0])
            gm.graph.erase_node(node)
""",
    ),
]
