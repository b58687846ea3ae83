"""The readers of PyTorch's texts: edges of printed graphs, and reasons for recompiles in plain words."""

from __future__ import annotations

import pytest
import torch

import compiler_core
from compiler_core.records import Graph
from compiler_core.stock.read.graph_text import read_graph
from compiler_core.stock.read.guard_meaning import guard_meaning
from compiler_core.stock.read.recompile_reasons import read_recompile_reason

JOINT = """\
class inner_f(torch.nn.Module):
    def forward(
        self,
        primals,
        tangents,
    ):
        primals_1: "f32[4][1]cpu"  # PlainAOTInput(idx=0)
        tangents_1: "f32[4][1]cpu"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        cos: "f32[4][1]cpu" = torch.ops.aten.cos.default(primals_1)
        sin: "f32[4][1]cpu" = torch.ops.aten.sin.default(cos);  cos = None
        dim: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, sin);  tangents_1 = sin = None
        sin_1: "f32[4][1]cpu" = torch.ops.aten.sin.default(primals_1);  primals_1 = None
        sum_1: "f32[1][1]cpu" = torch.ops.aten.sum.dim_IntList(dim, dim = [0], mode = 'cos')
        view: "f32[1][1]cpu" = sin_1.reshape(sum_1.shape)
        return pytree.tree_unflatten([
            view,  # PlainAOTOutput(idx=0)
        ], self._out_spec)
"""


def test_edges_are_from_operands_only() -> None:
    graph = read_graph(JOINT).graph
    assert [node.key for node in graph.nodes][:3] == ["primals_1", "tangents_1", "cos"]
    assert graph.edges == [
        ["primals_1", "cos"],
        ["cos", "sin"],
        ["tangents_1", "dim"],
        ["sin", "dim"],
        ["primals_1", "sin_1"],
        ["dim", "sum_1"],
        ["sin_1", "view"],
        ["sum_1", "view"],
        ["view", "output"],
    ]


def test_edges_of_the_joint_graph_are_those_of_the_graph_itself() -> None:
    """Each node but the outputs has a user, and `sin` of the second cos does not read that of the first."""
    with compiler_core.record(engine="torch") as record:
        compiled = torch.compile(lambda x: torch.cos(torch.cos(x)), backend="aot_eager")
        compiled(torch.ones(4, requires_grad=True)).sum().backward()
    graph = record.compiles[0].find("joint").graph
    assert isinstance(graph, Graph)
    assert {node.key for node in graph.nodes} - {source for source, _ in graph.edges} == {"output"}
    assert ["sin", "sin_1"] not in graph.edges
    assert len(graph.edges) == 12


@pytest.mark.parametrize(
    ("reason", "kind", "source", "expected", "got"),
    [
        ("n == 2  # f(x, n)  # a.py:3 in f", "EQUALS_MATCH", "n", "2", "another value"),
        ("self.calls == 0", "EQUALS_MATCH", "self.calls", "0", "another value"),
        ("G['N'] == 3", "EQUALS_MATCH", "G['N']", "3", "another value"),
        ("___check_type_id(mod, 93), type=<class 'a.b.Linear'>", "TYPE_MATCH", "mod", "a Linear", "of another type"),
        ("Cache line invalidated because L['f'] got deallocated", "ID_MATCH", "L['f']", "the object at capture",
         "another object: that one was freed"),
        ("___check_obj_id(f.__code__, 9), type=<class 'code'>", "ID_MATCH", "f.__code__", "the object at capture",
         "another object"),
        ("len(k) == 1", "LENGTH", "k", "of length 1", "of another length"),
        ("not ___dict_contains('b', k)", "DICT_CONTAINS", "k", "without 'b'", "with it"),
        ("list(dict.keys(k))[0] == 'a'", "DICT_KEYS", "k", "with 'a' as key number 0", "with other keys"),
        ("GLOBAL_STATE changed: grad_mode ", "GLOBAL_STATE", "torch's global state", "grad mode as at capture",
         "another grad mode"),
        ("tensor 'x' rank mismatch. expected 1, actual 2", "TENSOR_MATCH", "x", "rank 1", "rank 2"),
        ("tensor 'x' size mismatch at index 0. expected 4, actual 5", "TENSOR_MATCH", "x", "size 4 in dimension 0",
         "size 5"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "TENSOR_MATCH", "x", "dtype torch.float32",
         "dtype torch.float64"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "TENSOR_MATCH", "x", "requires_grad False",
         "requires_grad True"),
        ("2 <= x.size()[0]", "CONDITION", "x.size()[0]", "x.size()[0] >= 2", "x.size()[0] is 0 or 1"),
        ("x.size()[0] <= 8", "CONDITION", "x.size()[0]", "x.size()[0] <= 8", "another size"),
        ("KeyError on kw['s']", "DICT_HAS", "kw", "with 's'", "without it"),
        ('Duplicate tensors found: ["a", "b"]', "ALL_DIFFERENT", "the pair a, b", "different tensors", "one tensor"),
        ("flag == True", "EQUALS_MATCH", "flag", "True", "False"),
        ("some thing that is new", "", "a condition", "some thing that is new", "false"),
    ],
)  # fmt: skip
def test_reasons_for_recompiles_are_plain_words(reason: str, kind: str, source: str, expected: str, got: str) -> None:
    cause = read_recompile_reason(f"0/0: {reason}\nUser stack trace:\n  File 1")
    assert cause is not None
    assert (cause.of, cause.kind, cause.source, cause.expected, cause.got) == ("0/0", kind, source, expected, got)


@pytest.mark.parametrize(
    ("kind", "code", "meaning"),
    [
        ("LAMBDA_GUARD", "abs(G['lr']) <= 1.7976931348623157e+308", "lr is finite"),
        ("LAMBDA_GUARD", "-1.7976931348623157e+308 <= G['lr'] <= 1.7976931348623157e+308", "lr is finite"),
        ("LAMBDA_GUARD", "2 <= L['x'].size()[1]", "size 1 of x is at least 2"),
        ("LAMBDA_GUARD", "L['x'].size()[0] == L['y'].size()[0]", "size 0 of x is size 0 of y"),
        ("TYPE_MATCH", "___check_type_id(L['n'], 93992), type=<class 'int'>", "n is an int"),
        (
            "ID_MATCH",
            "___check_obj_id(G['__import_torch_dot_nn_dot_functional'], 7), type=<class 'module'>",
            "torch.nn.functional is the same object as at capture (module)",
        ),
        (
            "TENSOR_MATCH",
            "check_tensor(L['self']._modules['up']._parameters['weight'], Parameter, DispatchKeySet(CPU), "
            "torch.float32, device=None, requires_grad=True, size=[None, 4], stride=[4, 1])",
            "self.up.weight is a float32 tensor of size any x 4 that requires a gradient",
        ),
        ("DICT_CONTAINS", "not ___dict_contains('forward', L['m'].__dict__)", "m has no own attribute forward"),
        ("DICT_CONTAINS", "___dict_contains('a', L['d'])", "d has the key 'a'"),
        ("EQUALS_MATCH", "L['n'] == 3", ""),
        ("ANOTHER", "what only a later PyTorch prints", ""),
    ],
)
def test_guards_in_plain_words(kind: str, code: str, meaning: str) -> None:
    assert guard_meaning(kind, code) == meaning
