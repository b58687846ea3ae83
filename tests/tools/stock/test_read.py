"""The readers of PyTorch's texts: edges of printed graphs, and reasons for recompiles in plain words."""

from __future__ import annotations

import pytest
import torch

import compiler_core
from compiler_core.records import Graph
from compiler_core.tools.stock.read.graph_text import read_graph
from compiler_core.tools.stock.read.guard_meaning import guard_meaning
from compiler_core.tools.stock.read.recompile_reasons import read_recompile_reasons

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
    ("reason", "kind", "name", "aspect", "expected", "got"),
    [
        ("n == 2  # f(x, n)  # a.py:3 in f", "EQUALS_MATCH", "n", "value", "2", ""),
        ("self.calls == 0", "EQUALS_MATCH", "self.calls", "value", "0", ""),
        ("G['N'] == 3", "EQUALS_MATCH", "N", "value", "3", ""),
        ("dict(type(c).__mro__[1].__dict__)['scale'] == 3", "EQUALS_MATCH", "type(c).scale", "value", "3", ""),
        ("___check_type_id(mod, 93), type=<class 'a.b.Linear'>", "TYPE_MATCH", "mod", "class", "Linear", ""),
        ("Cache line invalidated because L['f'] got deallocated", "ID_MATCH", "f", "identity", "one that was freed",
         "another object"),
        ("___check_obj_id(f.__code__, 9), type=<class 'code'>", "ID_MATCH", "f", "identity", "the object at capture",
         "another object"),
        ("len(k) == 1", "LENGTH", "k", "length", "1", ""),
        ("not ___dict_contains('b', k)", "DICT_CONTAINS", "k", "key", "absent", "present"),
        ("not ___dict_contains('b', L['o'].__dict__)", "DICT_CONTAINS", "o", "attribute", "absent", "present"),
        ("list(dict.keys(k))[0] == 'a'", "DICT_KEYS", "k", "keys", "'a' as key number 0", "other keys"),
        ("set.__contains__(k, 'a')", "SET_CONTAINS", "k", "items", "some with 'a'", "others, without 'a'"),
        ("not hasattr(G['o'], 'scale')", "NO_ATTRIBUTE", "o", "attribute", "absent", "present"),
        ("hasattr(L['o'], 'scale') == True", "NO_ATTRIBUTE", "o", "attribute", "present", "absent"),
        ("GLOBAL_STATE changed: grad_mode ", "GLOBAL_STATE", "torch's global state", "setting", "", ""),
        ("tensor 'x' rank mismatch. expected 1, actual 2", "TENSOR_MATCH", "x", "rank", "1", "2"),
        ("tensor 'x' size mismatch at index 0. expected 4, actual 5", "TENSOR_MATCH", "x", "size", "4", "5"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "TENSOR_MATCH", "x", "dtype", "torch.float32",
         "torch.float64"),
        ("tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), actual DispatchKeySet(Meta)",
         "TENSOR_MATCH", "x", "device", "cpu", "meta"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "TENSOR_MATCH", "x", "requires_grad", "False",
         "True"),
        ("2 <= x.size()[0]", "CONDITION", "x", "size", "at least 2", "0 or 1"),
        ("x.size()[0] == 4", "CONDITION", "x", "size", "4", ""),
        ("x.size()[0] <= 8", "CONDITION", "size 0 of x", "relation", "x.size(0) <= 8", ""),
        ("7 <= L['x'].size()[0]", "CONDITION", "size 0 of x", "relation", "x.size(0) >= 7", ""),
        ("KeyError on kw['s']", "DICT_HAS", "kw", "key", "present", "absent"),
        ('Duplicate tensors found: ["a", "b"]', "ALL_DIFFERENT", "a", "aliasing", "two objects", "one object"),
        ("flag == True", "EQUALS_MATCH", "flag", "value", "True", "False"),
        ("some thing that is new", "", "", "relation", "some thing that is new", ""),
    ],
)  # fmt: skip
def test_reasons_for_recompiles_are_facts(
    reason: str, kind: str, name: str, aspect: str, expected: str, got: str
) -> None:
    (entry,) = read_recompile_reasons(f"0/0: {reason}\nUser stack trace:\n  File 1")
    (failed,) = entry.failed
    facts = (failed.kind, failed.name, failed.aspect, failed.expected, failed.got)
    assert (entry.compile, *facts) == ("0/0", kind, name, aspect, expected, got)


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
