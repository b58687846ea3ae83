"""FX graphs as artifacts of the record.

Every stage that creates FX nodes records where they come from:

    node.meta["origin"]  tuple of the ids of the items that the node was made from
    node.meta["rule"]    the rule that made it ("capture", "autograd", "decompose", "partition" ...)
    node.meta["item"]    the node's own item id, set by `record_graph`

A stage thus copies ``meta["item"]`` of the nodes that it reads into ``meta["origin"]`` of the nodes that it creates.
"""

from __future__ import annotations

import linecache
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.records import Artifact, Compile, Graph, Node, Pane, Span
from compiler_core.support import opaque_ops
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.interrupts import safe_point
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import FakeTensor, OpOverload, disable_current_modes, graph_module_loader

MAX_PRINTED_ELEMENTS = 16
"""Constants of more elements are not printed."""
_MODULE_OF_WORD = {"inf": "math", "nan": "math", "device": "torch"}
_WORD_PATTERN = re.compile(rf"\b({'|'.join(_MODULE_OF_WORD)})\b(?!=)")
_RANDOM_NAME_PATTERN = re.compile(
    "rand|drop|normal|bernoulli|multinomial|poisson|uniform|exponential|cauchy|geometric|gumbel|rrelu|fractional|lowrank"
)


class _GraphModule(fx.GraphModule):
    """Frees its generated sources when it dies; each time that it is compiled, it has another."""

    def recompile(self) -> Any:
        code = super().recompile()
        free_source_with(self)
        return code


def graph_module(root: Any, graph: fx.Graph, name: str = "GraphModule") -> fx.GraphModule:
    """Returns `graph` as a module whose generated sources are freed with it."""
    safe_point()
    return _GraphModule(root, graph, name)


def free_source_with(module: fx.GraphModule) -> None:
    """Frees a module's generated source when the module dies.  FX keeps the source of every graph, for tracebacks."""
    filename = type(module).forward.__code__.co_filename
    for sources in (graph_module_loader.eval_cache, linecache.cache):
        weakref.finalize(module, sources.pop, filename, None).atexit = False


def copy_graph(gm: fx.GraphModule, name: str = "GraphModule") -> fx.GraphModule:
    """Returns a copy with the same metadata, which may be changed."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, val_map={}))
    for node, copied in zip(gm.graph.nodes, graph.nodes, strict=True):
        copied.meta = dict(node.meta)
    return graph_module(gm, graph, name)


def draws_random_numbers(graph: fx.Graph) -> bool:
    """Returns whether an operation of `graph` may draw random numbers."""
    calls = [n for n in graph.nodes if n.op.startswith("call_")]
    return any(_may_draw(n) or opaque_ops.draws_random_numbers(n) for n in calls)


_CHANCES: dict[str, Callable[..., Any]] = {
    "attention": lambda query, key, value, attn_mask=None, dropout_p=0.0, *_, **others: dropout_p,
    "attention_forward": lambda *args, dropout_p=0.0, training=True, **others: (
        (*args, training)[13 if len(args) > 13 else -1] and (*args, dropout_p)[10 if len(args) > 10 else -1]
    ),
    "dropout": lambda input, p=0.5, training=True, inplace=False, train=True: training and train and p,
    "alpha_dropout": lambda input, p=0.5, training=False, inplace=False, train=False: (training or train) and p,
}
"""The probability with which functions drop elements, from their arguments; the keys are ends of their names."""


def _may_draw(node: fx.Node) -> bool:
    """Whether a function may draw random numbers: a dropout draws none with the probability 0 or in evaluation."""
    name = plain_name(node).removesuffix(".default")
    found = [chance for end, chance in _CHANCES.items() if name.endswith(end)]
    return bool(found[-1](*node.args, **node.kwargs)) if found else is_random_name(name)


def is_random_name(name: str) -> bool:
    """Returns whether an operator of this name may draw random numbers."""
    return _RANDOM_NAME_PATTERN.search(name) is not None


def add_origins(node: fx.Node, other: fx.Node) -> None:
    """Adds the origins of `other`, whose work `node` now does too, to those of `node`."""
    node.meta["origin"] = tuple(dict.fromkeys((*node.meta.get("origin", ()), *other.meta.get("origin", ()))))


def record_graph(compile_: Compile, pane: Pane, name: str, gm: fx.GraphModule) -> Artifact:
    """Adds `gm` to the record (as Python source, nodes and edges) and links its nodes to their origins."""
    text, spans = graph_text(gm.graph, name.rpartition(".")[2])
    nodes = [describe(node) for node in gm.graph.nodes]
    edges = [[source.name, node.name] for node in gm.graph.nodes for source in node.all_input_nodes]
    artifact = compile_.artifact(pane, name, "python", text, spans, Graph(nodes, edges))
    for node in gm.graph.nodes:
        node.meta["item"] = artifact.item(node.name)
        compile_.link(node.meta["item"], node.meta.get("origin", ()), node.meta.get("rule", pane))
    return artifact


def items_of(node: fx.Node) -> tuple[str, ...]:
    """Returns the node's own item id, if `record_graph` has recorded it."""
    return (node.meta["item"],) if "item" in node.meta else ()


def graph_text(graph: fx.Graph, name: str) -> tuple[str, list[Span]]:
    """Returns the graph as a Python function with one line per node, and the span of each node's line.

    The text runs as it stands, since it begins with the imports that it needs.  If the graph has constants too large to
    print, they are attributes of its first parameter, ``self``.
    """
    texts = [(n, node_text(n)) for n in graph.nodes]
    takes_self = any(n.op == "call_module" or " = self." in text for n, text in texts)
    lines = [*_imports(graph, texts), f"def {name}(", *(["    self,"] if takes_self else [])]
    spans = []
    for node, text in texts:
        if node.op == "placeholder":
            lines.append(f"    {text},")
            spans.append(Span(node.name, len(lines), len(lines)))
    lines.append("):")
    for node, text in texts:
        if node.op != "placeholder":
            lines.append("    " + text)
            spans.append(Span(node.name, len(lines), len(lines)))
    return "\n".join(lines) + "\n", spans


def node_text(node: fx.Node) -> str:
    """Returns one node as one Python statement; a placeholder as a parameter."""
    safe_point()
    if node.op == "placeholder":
        return f"{node.name}{_annotation(node)}"
    if node.op == "output":
        return f"return {_argument(node.args[0])}"
    if node.op == "get_attr":
        return f"{node.name}{_annotation(node)} = {_constant(node) or f'self.{node.target}'}"
    args = [_argument(a) for a in node.args]
    args += [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    if node.op == "call_method":
        call = f"{args[0]}.{node.target}({', '.join(args[1:])})"
    elif node.op == "call_module":
        call = f"self.{node.target}({', '.join(args)})"
    else:
        call = f"{target_name(node.target)}({', '.join(args)})"
    return f"{node.name}{_annotation(node)} = {call}"


def _imports(graph: fx.Graph, texts: Sequence[tuple[fx.Node, str]]) -> list[str]:
    """Returns the import statements for the names that the graph's text uses, and an empty line."""
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    named = (*targets, *map(opaque_ops.opaque_operator, graph.nodes))
    spaces = {t.namespace for t in named if isinstance(t, OpOverload)}
    modules = {_module(t) for t in targets if not isinstance(t, OpOverload)} - {""}
    words = {word for _, text in texts for word in _WORD_PATTERN.findall(text)}
    lines = [f"import {m}" for m in sorted(modules | {"torch"})]
    lines += [f"from {_MODULE_OF_WORD[word]} import {word}" for word in sorted(words)]
    return [*lines, *(f"{s} = torch.ops.{s}" for s in sorted(spaces)), ""]


def _module(target: Any) -> str:
    """Returns the module that a function's name begins with, or an empty string."""
    name = target_name(target).rpartition(".")[0]
    top = name.partition(".")[0]
    return name if name in sys.modules and top != "torch" else top


def _constant(node: fx.Node) -> str | None:
    return constant_text(getattr(node.graph.owning_module, str(node.target), None)) if node.op == "get_attr" else None


def graph_tensors(gm: fx.GraphModule) -> Iterator[torch.Tensor]:
    """Yields the fake tensors of a graph's nodes, in order.  They are in ``meta["val"]`` in our graphs and in
    ``meta["example_value"]`` in those of stock `torch.compile`."""
    for node in gm.graph.nodes:
        yield from tensors_in(node.meta.get("val", node.meta.get("example_value")))


def constant_text(held: Any) -> str | None:
    """Returns a constant of a graph as Python source if it is small, else None."""
    if not isinstance(held, torch.Tensor) or held.numel() > MAX_PRINTED_ELEMENTS or held.layout is not torch.strided:
        return None
    if isinstance(held, FakeTensor) or held.device.type != "cpu":
        return None
    with disable_current_modes():
        return f"torch.tensor({held.tolist()}, dtype={held.dtype})"


def plain_name(node: fx.Node) -> str:
    """Returns the name of the function or method that `node` calls, without its module."""
    return str(getattr(node.target, "__name__", node.target))


def target_name(target: Any) -> str:
    """Returns the name of an operator as users write it, e.g. ``aten.cos.default``."""
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload):
        return str(target)
    module = getattr(target, "__module__", None) or ""
    name = str(getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or repr(target))
    if "<locals>" in name:  # made by a function, and known in its module by the name that it was given
        name = target.__name__
    module = {"_operator": "operator", "torch._C._nn": "torch.nn.functional"}.get(module, module)
    name = name.removeprefix("_VariableFunctionsClass.")
    if module.startswith("torch._C") or name.startswith("TensorBase."):
        name = name.replace("TensorBase.", "Tensor.")
        return f"torch.{name}" if hasattr(torch, name.partition(".")[0]) else f"{module}.{name}"
    return f"{module}.{name}" if module not in ("", "builtins") else name


def describe(node: fx.Node) -> Node:
    """What the record keeps of a node."""
    safe_point()
    tensors = tensors_in(node.meta.get("val"))
    first = tensors[0] if tensors else None
    return Node(
        key=node.name,
        op=node.op,
        target=target_name(node.target),
        shape=None if first is None else [s if isinstance(s, int) else str(s) for s in first.shape],
        dtype=None if first is None else str(first.dtype).removeprefix("torch."),
        device=None if first is None else str(first.device),
        bytes=sum(map(tensor_bytes, tensors)) if tensors else None,
        module=node.meta.get("module"),
        role=node.meta.get("role") or _role(node, first),
        place=node.meta.get("place", ""),
    )


def _role(node: fx.Node, tensor: torch.Tensor | None) -> str | None:
    """Returns what a node is for whose stage has not said it."""
    if "read" in node.meta:
        return "read"
    return "parameter" if node.op == "placeholder" and isinstance(tensor, torch.nn.Parameter) else None


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes of a (fake) tensor's elements.  Symbolic sizes count with their hints."""
    return int(hint(tensor.numel())) * tensor.element_size()


_SHORT = {"float": "f", "bfloat": "bf", "complex": "c", "int": "i", "uint": "u"}


def tensor_type(tensor: torch.Tensor) -> str:
    """Returns dtype and shape as PyTorch prints them, e.g. ``f32[4, 4]``."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    letters = dtype.rstrip("0123456789")
    short = _SHORT.get(letters, letters) + dtype[len(letters) :]
    return f"{short}[{', '.join(map(str, tensor.shape))}]"


def _annotation(node: fx.Node) -> str:
    value = node.meta.get("val")
    if is_symbolic(value):
        return f': "Sym({value})"'
    return f': "{tensor_type(value)}"' if isinstance(value, torch.Tensor) else ""


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple):
        inner = ", ".join(map(_argument, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_argument(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({_argument(value.start)}, {_argument(value.stop)}, {_argument(value.step)})"
    if callable(value):
        return target_name(value)
    return repr(value)


def dependencies(graph: fx.Graph, names: Collection[str]) -> dict[fx.Node, set[str]]:
    """Returns, for each node, which of the nodes called `names` it depends on; a node depends on itself."""
    found: dict[fx.Node, set[str]] = {}
    for node in graph.nodes:
        found[node] = {node.name} if node.name in names else set()
        found[node].update(*(found[n] for n in node.all_input_nodes))
    return found


def descendants(start: Iterable[fx.Node]) -> set[fx.Node]:
    """Returns `start` and all nodes that are computed from it."""
    return _closure(start, lambda node: [u for u in node.users if u.op != "output"])


def ancestors(start: Iterable[fx.Node]) -> set[fx.Node]:
    """Returns `start` and all nodes that it is computed from."""
    return _closure(start, lambda node: node.all_input_nodes)


def _closure(start: Iterable[fx.Node], step: Callable[[fx.Node], list[fx.Node]]) -> set[fx.Node]:
    seen = set(start)
    work = list(seen)
    while work:
        for node in step(work.pop()):
            if node not in seen:
                seen.add(node)
                work.append(node)
    return seen


def returned_graph(result: Any) -> fx.GraphModule | None:
    """Returns the graph module that a backend returned, as it is or as its method ``forward``."""
    module = getattr(result, "__self__", result)
    return module if isinstance(module, fx.GraphModule) else None


def node_signature(node: fx.Node) -> str:
    """Returns a node as text, which is the same for its copy in a copy of the graph."""
    return repr((node.name, node.op, str(node.target), node.args, node.kwargs))


def differs(after: fx.GraphModule, before: fx.GraphModule) -> bool:
    """Returns whether two graphs differ in their nodes, or in the objects that they hold."""
    nodes, others = after.graph.nodes, before.graph.nodes
    return len(nodes) != len(others) or any(
        node_signature(node) != node_signature(other) or _held(after, node) is not _held(before, other)
        for node, other in zip(nodes, others, strict=True)
    )


def _held(gm: fx.GraphModule, node: fx.Node) -> Any:
    """Returns the tensor or module of `gm` that a node reads or calls, or None."""
    if node.op not in ("get_attr", "call_module"):
        return None
    held: Any = gm
    for name in str(node.target).split("."):
        held = getattr(held, name, None)
    return held
