"""%%compile --engine torch in a real IPython."""

from __future__ import annotations

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics

# Dynamo takes names out of a namespace that the next test has emptied
pytestmark = [
    pytest.mark.usefixtures("fresh_stock"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CELL = """
def f(x):
    y = x.cos()
    print("here")
    return y + 1
out = f(torch.ones(4))
out * 2
"""


def test_a_cell_through_stock(magics: InteractiveShell) -> None:
    with capture_output() as output:
        result = magics.run_cell("%%compile --engine torch --backend aot_eager" + CELL, store_history=True)
    result.raise_error()
    torch.testing.assert_close(result.result, (torch.ones(4).cos() + 1) * 2)
    torch.testing.assert_close(magics.user_ns["out"], torch.ones(4).cos() + 1)
    assert output.stdout.splitlines().count("here") == 1
    assert "1 graph break" in output.stdout
    record = kernel_magics.last_record()
    assert record.engine == "torch"
    assert record.options == {"backend": "aot_eager"}
    assert 'print("here")' in {b.stack[-1].text for c in record.compiles for b in c.breaks}, [
        (b.kind, b.stack) for c in record.compiles for b in c.breaks
    ]
    assert not [f for c in record.compiles for f in c.failures]


def test_an_expression_through_stock(magics: InteractiveShell) -> None:
    magics.user_ns["x"] = torch.ones(4)
    with capture_output():
        result = magics.run_cell("%compile --engine torch --backend eager x.cos() + 1")
    torch.testing.assert_close(result.result, torch.ones(4).cos() + 1)
    assert kernel_magics.last_record().compiles[0].outcome == "compiled"


def test_exceptions_are_the_cells_own(magics: InteractiveShell) -> None:
    with capture_output() as output:
        result = magics.run_cell("%%compile --engine torch --backend eager\nx = torch.ones(3)\ny = x.cos()\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "_dynamo" not in output.stdout
    torch.testing.assert_close(magics.user_ns["y"], torch.ones(3).cos())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--engine torch --backend nope", "torch.compile has no backend 'nope'; its backends are"),
        ("--engine torch --target cpu", "--target is not an option of the torch engine"),
        ("--mode max-autotune", "--mode of the core engine is one of default, reduce-overhead"),
        ("--engine torch --options nope", "neither the name of a dict nor JSON"),
        ("--engine torch --options [1]", "must be a dict, not a list"),
    ],
)
def test_wrong_options_are_an_error_and_nothing_runs(magics: InteractiveShell, line: str, message: str) -> None:
    with capture_output() as output:
        magics.run_cell(f"%%compile {line}\nran = True")
    assert message in output.stderr
    assert "ran" not in magics.user_ns


def test_names_of_the_cell_are_bound_as_in_a_plain_cell(magics: InteractiveShell) -> None:
    with capture_output():
        result = magics.run_cell(
            "%%compile --engine torch --backend eager\nx = torch.ones(3)\ny = x.cos()\nif False:\n    z = 1\ny.sum()"
        )
    result.raise_error()
    compiles = kernel_magics.last_record().compiles
    assert {c.outcome for c in compiles} == {"compiled"}
    torch.testing.assert_close(magics.user_ns["y"], torch.ones(3).cos())
    assert "z" not in magics.user_ns
