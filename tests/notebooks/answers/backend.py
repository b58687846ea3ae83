"""Answers to the exercise of the backend."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "an interpreter of torch.fx": """
class Noting(torch.fx.Interpreter):
    def run_node(self, node):
        if node.op.startswith("call"):
            noted.append(node.name)
        return super().run_node(node)


def backend(gm, example_inputs):
    return Noting(gm).run
""",
    "closures, made once": """
def backend(gm, example_inputs):
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]

    def value_of(node, values):
        if node not in values:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: value_of(each, values))
            noted.append(node.name)
            if node.op == "call_method":
                values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                values[node] = node.target(*args, **kwargs)
        return values[node]

    def call(*inputs):
        values = dict(zip(placeholders, inputs, strict=True))
        (output,) = gm.graph.find_nodes(op="output")
        return torch.fx.node.map_arg(output.args[0], lambda each: value_of(each, values))

    return call
""",
}

WRONG = [
    Wrong(
        "notes what is called", "note the node, or what it calls", old="append(node.name)", new="append(node.target)"
    ),
    Wrong("notes the node", "note the node, or what it calls", old="append(node.name)", new="append(node)"),
    Wrong(
        "empties the notes",
        "empty `noted` in each call",
        old="values, left = {}",
        new="values, left = noted.clear() or {}",
    ),
    Wrong("all operands of the output", "all operands of `output`", old="return args[0]", new="return args"),
    Wrong(
        "inputs as one list",
        "the inputs as one list",
        "def backend(gm, example_inputs):\n    return lambda inputs: gm.forward(*inputs)\n",
    ),
    Wrong(
        "returns the result",
        "run the graph when it is compiled",
        "def backend(gm, example_inputs):\n    return gm.forward(*example_inputs)\n",
    ),
    Wrong(
        "notes names and returns forward",
        "noted all names first",
        """
def backend(gm, example_inputs):
    def call(*inputs):
        noted.extend(node.name for node in gm.graph.nodes if node.op.startswith("call"))
        return gm.forward(*inputs)

    return call
""",
    ),
    Wrong(
        "returns forward", "let the graph run itself. Go", "def backend(gm, example_inputs):\n    return gm.forward\n"
    ),
    Wrong(
        "runs when it is compiled",
        "computed with the example inputs",
        """
def backend(gm, example_inputs):
    result = gm.forward(*example_inputs)

    def call(*inputs):
        noted.extend(node.name for node in gm.graph.nodes if node.op.startswith("call"))
        return result

    return call
""",
    ),
    Wrong(
        "the inputs of the first call",
        "from one call to the next",
        """
def backend(gm, example_inputs):
    left = list(example_inputs)

    def call(*inputs):
        values = {}
        for node in gm.graph.nodes:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.get)
            if node.op == "placeholder":
                values[node] = left.pop(0)
            elif node.op == "output":
                return args[0]
            else:
                noted.append(node.name)
                values[node] = torch.fx.Interpreter(gm).run_node if False else (
                    node.target(*args, **kwargs) if node.op == "call_function"
                    else getattr(args[0], node.target)(*args[1:], **kwargs)
                )

    return call
""",
    ),
    Wrong(
        "notes all nodes",
        "note inputs or the output",
        old='            if node.op == "placeholder":',
        new='            noted.append(node.name)\n            if node.op == "placeholder":',
    ),
    Wrong("no keywords", "given by name", old=", **kwargs)", new=")"),
    Wrong(
        "nodes at the top only",
        "inside of a tuple",
        old="args = torch.fx.node.map_arg(node.args, values.get)",
        new="args = [values.get(each, each) if isinstance(each, torch.fx.Node) else each for each in node.args]",
    ),
    Wrong(
        "the last value", "value of the last operation", old="return args[0]", new="return list(values.values())[-1]"
    ),
    Wrong("the object twice", "give it its object twice", old="else args[1:]", new="else args"),
    Wrong(
        "never notes methods",
        "note the calls of functions only",
        old="noted.append(node.name)",
        new='noted.extend([node.name] * (node.op == "call_function"))',
    ),
    Wrong("inputs from the end", "a - b:\n", old="left.pop(0)", new="left.pop()"),
    Wrong(
        "the first row",
        "take one result out",
        """
def backend(gm, example_inputs):
    class I(torch.fx.Interpreter):
        def run_node(self, n):
            if n.op.startswith("call"): noted.append(n.name)
            return super().run_node(n)
    return lambda *inputs: I(gm).run(*inputs)[0]
""",
    ),
    Wrong(
        "the last operation first",
        "note in another order",
        """
def backend(gm, example_inputs):
    class I(torch.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if n.op.startswith("call"): noted.insert(0, n.name)
            return result
    return I(gm).run
""",
    ),
    Wrong(
        "each name once",
        "empty `noted` in each call",
        """
def backend(gm, example_inputs):
    class I(torch.fx.Interpreter):
        def run_node(self, n):
            if n.op.startswith("call") and n.name not in noted:
                noted.append(n.name)
            return super().run_node(n)
    return I(gm).run
""",
    ),
]
