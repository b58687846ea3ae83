"""The table of operators agrees with this PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compiler_core.support.opaque_ops import OPERATORS as OPAQUE_OPERATORS
from compiler_core.support.operators import (
    OPERATORS,
    Fact,
    facts,
    is_pointwise,
    like_argument,
    operators_with,
    overloads_of,
)

aten = torch.ops.aten


@pytest.mark.parametrize("name", OPERATORS)
def test_each_row_is_about_an_operator_of_this_pytorch(name: str) -> None:
    assert overloads_of(name)
    assert OPERATORS[name]


def test_no_row_of_an_overload_repeats_that_of_the_operator() -> None:
    for name, known in OPERATORS.items():
        operator = name.removeprefix("prims.").partition(".")[0]
        assert name.removeprefix("prims.") == operator or not OPERATORS.get(operator, Fact(0)) & known, name


def is_view(operator: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)


@pytest.mark.parametrize("fact", [Fact.CHEAP, Fact.ANY_LAYOUT, Fact.READS_ELEMENTS], ids=str)
def test_what_pytorch_tags_as_pointwise_has_no_row_that_says_the_same(fact: Fact) -> None:
    assert not list(filter(is_pointwise, operators_with(fact)))


def test_views_of_pytorch_have_no_row_that_calls_them_cheap() -> None:
    assert not list(filter(is_view, operators_with(Fact.CHEAP)))


def test_rows_of_views_are_views() -> None:
    rows = {*operators_with(Fact.SAME_START), *operators_with(Fact.VIEW_IN_ANY_LAYOUT), *operators_with(Fact.ALIAS)}
    # the first shares memory, the second does not; neither declares an alias
    assert {op for op in rows if not is_view(op)} == {aten._unsafe_view.default, aten.lift_fresh_copy.default}


def test_reductions_have_the_tag() -> None:
    tag = getattr(torch.Tag, "reduction", None)
    if tag is None:
        pytest.skip("this PyTorch does not have the tag")
    untagged = {op for op in operators_with(Fact.REDUCTION) if tag not in op.tags and not is_pointwise(op)}
    assert untagged <= {torch.ops.prims.sum.default}


FILLED = ("empty", "full", "ones", "zeros")
STRIDED = {"{}": ("empty_permuted", "empty_strided"), "new_{}": ("new_empty_strided",)}


def factories(pattern: str) -> list[Any]:
    """Returns the functional overloads of the operators that make tensors in one of three ways, but for those of named
    dimensions."""
    names = [*map(pattern.format, FILLED), *STRIDED.get(pattern, ())]
    found = (overload for name in names for overload in overloads_of(name))
    return [op for op in found if not op._schema.is_mutable and op._overloadname != "names"]


@pytest.mark.parametrize("pattern", ["{}", "{}_like", "new_{}"])
def test_operators_that_fill_a_new_tensor_have_the_same_costs(pattern: str) -> None:
    made = {op: facts(op) & (Fact.CHEAP | Fact.READS_METADATA) for op in factories(pattern)}
    expected = Fact.CHEAP if pattern == "{}" else Fact.CHEAP | Fact.READS_METADATA
    assert len(made) >= len(FILLED)
    assert {op for op, known in made.items() if known != expected} == set()


def test_no_schema_tells_of_written_statistics() -> None:
    assert not any(op._schema.is_mutable for op in operators_with(Fact.WRITES_STATISTICS))


@pytest.mark.parametrize(
    "fact", [Fact.DTYPE_OF_SELF, Fact.STRIDES_OF_SELF, Fact.CHANNELS_LAST_ON_CPU, Fact.CHANNELS_LAST_ON_CUDA], ids=str
)
def test_the_argument_that_a_result_is_like_is_a_tensor(fact: Fact) -> None:
    for operator in operators_with(fact):
        types = [str(argument.type) for argument in operator._schema.arguments]
        assert like_argument(operator, types) == "Tensor"


def test_a_gradient_that_ignores_a_tensor_takes_it_second() -> None:
    for operator in operators_with(Fact.IGNORES_SELF):
        assert operator._schema.arguments[1].name == "self"


def test_rows_of_an_overload_and_of_all_are_added() -> None:
    assert facts(aten.div.Tensor_mode) == Fact.DIVIDES | Fact.POINTWISE_STRIDES
    assert facts(aten.div.out) == facts(torch.sin) == facts("mm") == Fact(0)


def test_opaque_operators_that_check_values_are_there() -> None:
    checking = {p for p in OPAQUE_OPERATORS if any(Fact.CHECKS_VALUES in facts(getattr(p, o)) for o in p.overloads())}
    assert checking == {aten.one_hot, aten.istft}
