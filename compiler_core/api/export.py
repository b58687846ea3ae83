"""Exports the one graph of a call as a module with the call's own signature.

The compiled call runs once with a backend that keeps the graph and the tensors that go in and come out.  Comparing them
with the arguments, the module's parameters and the result says what each input and output of the graph is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.api.compile import compile
from compiler_core.api.compiled import new_record, recording
from compiler_core.errors import UsageError
from compiler_core.support.fx_graphs import graph_module
from compiler_core.torch_private import PyTreeCodeGen, PyTreeInfo, pytree


def export(fn: Any, *args: Any, **kwargs: Any) -> fx.GraphModule:
    """Returns the one graph of `fn` for these arguments, as a module that is called as `fn` is.

    Its parameters and buffers are those of `fn`, under the same names, and not copies.  Other tensors that the graph
    reads are attributes ``_constant_0`` ...  It holds for arguments like these only: a call with other shapes, dtypes
    or numbers raises ValueError.

    Args:
        fn: anything that `compile` accepts.
        args, kwargs: the arguments of one call, which is run.

    Raises:
        FullGraphError: `fn` has a graph break for these arguments.
        UsageError: the call does something that no graph does (it sets attributes of the module, or returns other
            objects than tensors and plain values), it has no tensor operations, or `fn` cannot be compiled.

    Example::

        exported = compiler_core.export(model, torch.randn(8, 3))
        exported.print_readable()
        exported(torch.randn(8, 3))
    """
    run = _Run()
    module = fn if isinstance(fn, torch.nn.Module) else None
    before = _plain_attributes(module)
    with recording(new_record("export")):
        result = compile(fn, backend=run.backend, fullgraph=True, dynamic=False, strict=True)(*args, **kwargs)
    if run.graph is None:
        raise UsageError("nothing to export: the call has no tensor operations")
    changed = [name for name, value in _plain_attributes(module).items() if name not in before or before[name] != value]
    if changed:
        raise UsageError(f"the call sets {', '.join(changed)} of the module, which a graph cannot do")
    return _Exporter(module, run).export(_argument_names(fn, args, kwargs), (args, kwargs), result)


class _Run:
    """The graph of a call, and the tensors of its run."""

    def __init__(self) -> None:
        self.graph: fx.GraphModule | None = None
        self.inputs: Sequence[Any] = ()
        self.outputs: Sequence[Any] = ()

    def backend(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graph = gm

        def run(*inputs: Any) -> Any:
            self.inputs, self.outputs = inputs, gm.forward(*inputs)
            return self.outputs

        return run


class _Exporter:
    """Builds the module."""

    def __init__(self, module: torch.nn.Module | None, run: _Run) -> None:
        assert run.graph is not None
        self._captured, self._run = run.graph, run
        named = [] if module is None else [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]
        self._names = {id(tensor): name for name, tensor in reversed(named)}
        self._attributes: dict[str, Any] = {}
        self._graph = fx.Graph()

    def export(self, names: Sequence[str], arguments: Any, result: Any) -> fx.GraphModule:
        leaves, in_spec = pytree.tree_flatten(arguments)
        taken = [self._graph.placeholder(f"{name}") for name in _leaf_names(names, arguments)]
        known = {id(leaf): node for leaf, node in zip(leaves, taken, strict=True) if isinstance(leaf, torch.Tensor)}
        for node, value in zip(self._captured.graph.find_nodes(op="placeholder"), self._run.inputs, strict=True):
            if id(value) not in known:
                known[id(value)] = self._attribute(node.name, value)
        nodes = self._copy_operations(known)
        outputs = self._captured.graph.output_node().args[0]
        made = zip(self._run.outputs, outputs, strict=True)  # type: ignore[arg-type]
        known |= {id(value): nodes[node] for value, node in made if isinstance(value, torch.Tensor)}
        flat, out_spec = pytree.tree_flatten(result)
        self._graph.output([self._returned(leaf, known) for leaf in flat])
        self._graph.set_codegen(PyTreeCodeGen(PyTreeInfo(list(names), in_spec, out_spec)))
        self._graph.eliminate_dead_code(lambda node: node.op != "get_attr")
        exported = graph_module({**self._attributes, **_constants(self._captured)}, self._graph, "Exported")
        exported.register_forward_pre_hook(_ArgumentCheck(leaves, in_spec, [n.name for n in taken]), with_kwargs=True)
        return exported

    def _attribute(self, name: str, tensor: Any) -> fx.Node:
        """Returns a node that reads a parameter, a buffer, or a constant."""
        target = self._names.get(id(tensor)) or f"_constant_{len(self._attributes)}"
        self._attributes[target] = tensor
        return self._graph.create_node("get_attr", target, name=name)

    def _copy_operations(self, known: dict[int, fx.Node]) -> dict[fx.Node, fx.Node]:
        placeholders = self._captured.graph.find_nodes(op="placeholder")
        nodes = {n: known[id(value)] for n, value in zip(placeholders, self._run.inputs, strict=True)}
        for node in self._captured.graph.nodes:
            if node.op not in ("placeholder", "output"):
                nodes[node] = self._graph.node_copy(node, nodes.__getitem__)
        return nodes

    def _returned(self, leaf: Any, known: dict[int, fx.Node]) -> Any:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) in known:
                return known[id(leaf)]
            if id(leaf) in self._names:
                return self._attribute("returned", leaf)
            raise UsageError(
                "the call returns a tensor that its graph does not compute, such as a view made afterwards"
            )
        if leaf is None or isinstance(leaf, (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)):
            return leaf
        raise UsageError(f"the call returns a {type(leaf).__name__}; a graph returns tensors and plain values only")


class _ArgumentCheck:
    """Raises ValueError for arguments that the graph does not hold for."""

    def __init__(self, leaves: Sequence[Any], spec: pytree.TreeSpec, names: Sequence[str]) -> None:
        self._wanted = [_described(leaf) for leaf in leaves]
        self._spec, self._names = spec, names

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._spec:
            raise ValueError(f"the graph was exported for arguments of the structure {self._spec}, not {spec}")
        for name, wanted, leaf in zip(self._names, self._wanted, leaves, strict=True):
            if _described(leaf) != wanted:
                raise ValueError(f"the graph was exported for {name} = {wanted}, not {_described(leaf)}")


def _described(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device.type}"
    return repr(leaf)


def _constants(gm: fx.GraphModule) -> dict[str, Any]:
    """Returns the tensors that a captured graph holds itself."""
    return {str(n.target): getattr(gm, str(n.target)) for n in gm.graph.find_nodes(op="get_attr")}


# ---------------------------------------------------------------- arguments


def _argument_names(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """Returns the names of the positional arguments, then of the others."""
    function = fn.forward if isinstance(fn, torch.nn.Module) else fn
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [p.name for p in positional[: len(args)]]
    names += [f"arg{i}" for i in range(len(names), len(args))]  # of *args
    return [*names, *kwargs]


def _leaf_names(names: Sequence[str], arguments: tuple[Sequence[Any], dict[str, Any]]) -> list[str]:
    """Returns a name for each leaf of the arguments."""
    args, kwargs = arguments
    found = []
    for name, value in zip(names, (*args, *kwargs.values()), strict=True):
        count = len(pytree.tree_leaves(value))
        single = count == 1 and pytree.tree_is_leaf(value)
        found += [name] if single else [f"{name}_{i}" for i in range(count)]
    return found


# ---------------------------------------------------------------- effects


def _plain_attributes(module: torch.nn.Module | None) -> dict[str, Any]:
    """Returns the attributes of a module and its submodules that are plain values, by their paths."""
    plain = (bool, int, float, complex, str, type(None))
    modules = {} if module is None else dict(module.named_modules())
    return {
        f"{path}.{name}".lstrip("."): value
        for path, each in modules.items()
        for name, value in vars(each).items()
        if isinstance(value, plain)
    }
