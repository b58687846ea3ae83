"""Conditions of guards are read and written by their syntax."""

from __future__ import annotations

from compiler_core.tools.questions.conditions import condition_text, is_of_all_compiles

SIZE = "L['x'].size()[0]"
TEXTS = {
    f"{SIZE} != (-1)": "x.size(0) != -1",
    f"4 <= {SIZE}": "x.size(0) >= 4",
    f"0 <= {SIZE} <= 12": "0 <= x.size(0) <= 12",
    f"(2 * {SIZE}) % 3 == L['n']": "2 * x.size(0) % 3 == n",
    "no expression at L['x']": "no expression at x",
}
OF_ALL = [
    f"{SIZE} >= 2", f"2 <= {SIZE}", "abs(L['n']) <= 2147483648", "abs(L['f']) <= 1.7976931348623157e+308",
    "L['f'] <= 1.79769313486232e+308", "not math.isnan(L['f'])", "not torch.isinf(L['f'])",
]  # fmt: skip


def test_conditions_are_written_as_a_user_would() -> None:
    assert {code: condition_text(code, "L['x']", "x") for code in TEXTS} == TEXTS


def test_what_all_compiles_need_is_no_condition() -> None:
    assert [code for code in OF_ALL if not is_of_all_compiles(code, [SIZE])] == []
    assert [code for code in TEXTS if is_of_all_compiles(code, [SIZE])] == []
    assert not is_of_all_compiles("2 <= L['y'].size()[0]", [SIZE])
