"""Tests of changes of the user's code that remove a problem: how code is rewritten, and what a trial accepts."""

from __future__ import annotations

from textwrap import dedent

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from compiler_core.errors import UsageError
from kernel_magics.display.page_requests import ChangeRefused
from kernel_magics.display.record_view import RecordView, Run
from kernel_magics.run.fixes.expressions import Modules
from kernel_magics.run.fixes.rewrites import rewritten
from tests.cases.branches import BRANCHES

MODULES = Modules("torch", "np", "math")


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ("if y.sum() > 1e-3:\n    y = y / 2  # halve", "y = torch.where(y.sum() > 1e-3, y / 2, y)"),
        ("if c.any():\n    y = a\nelse:\n    y = b", "y = torch.where(c.any(), a, b)"),
        ("if not y.sum():\n    y = a", "y = torch.where(~(y.sum() != 0), a, y)"),
        ("if y > 0 and y < 1:\n    y = a", None),  # `and` of tensors is another thing
        ("if y is None:\n    y = a", None),
        ("if y > 0:\n    y += 1", None),  # changes the tensor that others may have
        ("if y > 0:\n    y = a\n    z = b", None),
        ("if y.max().item() > 0:\n    return a\n# else\nreturn b", "return torch.where(y.max() > 0, a, b)"),
        ("z = (a if y.sum() > 0 else b) + 1  # one", "z = torch.where(y.sum() > 0, a, b) + 1  # one"),
        ('s = float(x.sum()) * f"{3}".count("3")', 's = x.sum() * f"{3}".count("3")'),
        ("s = x.cpu().numpy()\n# then\nk = 1\nt = torch.from_numpy(np.maximum(s, 2.50))",
         "s = x\n# then\nk = 1\nt = torch.maximum(s, 2.50)"),
        ("n = np.concatenate([a, b], axis=1)", "n = torch.cat([a, b], dim=1)"),
        ("n = np.fft.fft(a)", None),
        ("s = math.sqrt(x.norm().item())", "s = torch.sqrt(x.norm())"),
        ("print(x)\ny = x * 2  # two\nreturn (y + 1)", "y = x * 2  # two\nresult = y + 1\nprint(x)\nreturn result"),
        ("print(x)\nx = x * 2\nreturn x", None),  # it would print another x
        ("print(x)\nreturn x", None),
        ("y = x.sum().item(); z = y", None),
        ('log.warning("%s", x.sum().item())', None),  # it would log a tensor
    ],
)  # fmt: skip
def test_a_statement_is_rewritten(code: str, new: str | None) -> None:
    lines = ["def f(x):", *(f"    {line}" for line in code.splitlines()), "    # end"]
    made = rewritten("f.py", lines, 2, MODULES)
    assert (made and dedent("\n".join(made.edit.added))) == new
    if made:
        assert lines[made.edit.first - 1 :][: len(made.edit.removed)] == made.edit.removed


def test_gradients_do_not_flow_through_what_was_a_number() -> None:
    made = rewritten("f.py", ["s = x.norm().item()"], 1, Modules("torch", with_gradients=True))
    assert made
    assert made.edit.added == ["s = x.norm().detach()"]


FUNCTIONS = (
    """
import gc, math, sys
x = torch.linspace(-1, 1, 12).view(4, 3)
"""
    + BRANCHES
    + """def reader(x):
    scale = math.sqrt(x.abs().max().item())
    return {"scale": scale, "doubled": x * 2}
def logged(x):
    scale = math.sqrt(x.abs().max().item())
    print("scale", scale, file=sys.stderr)
    return x / scale
def noisy(x):
    y = x.sin()
    print("shape", y.shape)
    return (y * 2).relu()
class Scaled(torch.nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        n = math.sqrt(h.norm().item())
        return h / n
model = Scaled(3, 3)
def collected(x):
    gc.collect()
    y = x * 2
    gc.collect()
    return y + 1
def calls_collected(x):
    return collected(x.sin()).cos()
"""
)


def changes(shell: InteractiveShell, cell: str, options: str = "--backend eager") -> RecordView:
    """Runs a cell, whose functions are those of another cell; returns its view."""
    with capture_output():
        if "branch" not in shell.user_ns:
            shell.run_cell(FUNCTIONS, store_history=True).raise_error()
        shell.run_cell(f"%%compile {options}\n{cell}", store_history=True).raise_error()
    assert RecordView.latest is not None
    return RecordView.latest


def tried(view: RecordView, number: int = 0) -> Run:
    assert view.experiments is not None
    return view.experiments.run_changed_code(number, lambda text, share: None)


def totals(run: Run) -> dict[str, tuple[float | None, float | None]]:
    assert run.record.comparison is not None
    return {total.name: (total.before, total.after) for total in run.record.comparison.totals}


def test_changes_of_functions_methods_and_options_remove_problems(magics: InteractiveShell) -> None:
    branch = tried(changes(magics, "out = branch(x)"))
    assert (totals(branch)["graphs"], totals(branch)["graph breaks"]) == ((2, 1), (1, 0))
    assert branch.record.comparison
    assert branch.record.comparison.edit
    assert not branch.record.comparison.edit.in_cell
    method = tried(changes(magics, "model(x).sum().backward()"))
    assert totals(method)["graph breaks"] == (2, 1)
    assert totals(tried(changes(magics, "out = noisy(x)")))["graphs"] == (2, 1)
    often = tried(changes(magics, "out = calls_collected(x)"))
    assert totals(often)["graph breaks"] == (2, 1)
    sizes = tried(changes(magics, "def g(t):\n    return t.sin()\nfor t in (x, x[:3]):\n    z = g(t)"))
    assert totals(sizes)["recompiles"] == (1, 0)
    own = changes(magics, "def h(x):\n    if x.sum() > 1:\n        x = x * 2\n    return x\nout = h(x)")
    assert totals(tried(own))["graph breaks"] == (1, 0)
    assert magics.user_ns["model"].weight.grad is not None  # that of the cell's own run
    assert magics.user_ns["branch"].__code__.co_filename == magics.user_ns["noisy"].__code__.co_filename


def test_a_change_that_is_wrong_or_does_not_help_is_refused(magics: InteractiveShell) -> None:
    with pytest.raises(ChangeRefused, match="with the condition negated, it raises RuntimeError"):
        tried(changes(magics, "out = lopsided(x)"))
    with pytest.raises(ChangeRefused, match="the value of the cell differs"):
        tried(changes(magics, "reader(x)"))
    with pytest.raises(ChangeRefused, match="it prints something else"):
        tried(changes(magics, "out = logged(x)"))
    with pytest.raises(ChangeRefused, match="operations 1 would be compiled"):
        tried(changes(magics, "out = collected(torch.ones(2))"))
    with pytest.raises(UsageError, match="there is no change number 7"):
        tried(changes(magics, "out = branch(x)"), 7)
    assert changes(magics, "out = x.sin()").experiments.changes() == []  # type: ignore[union-attr]


@pytest.mark.usefixtures("fresh_stock")
def test_changes_of_what_stock_compiled(magics: InteractiveShell) -> None:
    run = tried(changes(magics, "out = branch(x)", "--engine torch --backend eager"))
    assert totals(run)["graph breaks"] == (1, 0)
    assert run.record.comparison
    assert run.record.comparison.values == {}
