"""The graph passes of a notebook: ``%%graph_pass`` adds one, and ``%%compile`` runs all of them."""

from __future__ import annotations

import ast
from typing import Any

from IPython.core.error import UsageError

from compiler_core.config import GraphPass
from compiler_core.errors import UsageError as WrongUse
from compiler_core.records import Record

_passes: dict[str, GraphPass] = {}


def registered() -> tuple[GraphPass, ...]:
    """Returns the passes, in the order in which they were added."""
    return tuple(_passes.values())


def add(shell: Any, name: str, at: Any, operator: str, cell: str) -> str:
    """Adds the last function that `cell`, which has run, defines; it replaces a pass of that name.

    Returns what to tell the user.

    Raises:
        UsageError: the cell defines no function, `at` is no graph at which passes run, or there is no such operator.
    """
    functions = [node.name for node in ast.parse(cell).body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise UsageError(
            "%%graph_pass: the cell defines no function; it takes a GraphModule and changes it:  def my_pass(gm): ..."
        )
    try:
        made = GraphPass(shell.user_ns[functions[-1]], at, name, operator)
        if operator:
            from compiler_core.tools.changes.user_changes import operator_of

            operator_of(operator)
    except WrongUse as error:
        raise UsageError(str(error)) from None
    _passes[name] = made
    return (
        f"Graph pass {name} {_what_it_does(made)} of the %%compile cells that run from now on.\n"
        f"%graph_pass --remove {name} removes it."
    )


def list_or_remove(name: str | None, removed: str | None, all_: bool) -> str:
    """Removes a pass, or all of them; returns the table of those that are left.

    Raises:
        UsageError: there is no pass of that name, or a name was given without ``--remove``.
    """
    if name:
        raise UsageError("%%graph_pass starts a cell that defines a pass; %graph_pass lists passes, or --remove NAME")
    if removed and removed not in _passes:
        raise UsageError(f"there is no graph pass {removed!r}; there are: {', '.join(_passes) or 'none'}")
    if removed:
        del _passes[removed]
    if all_:
        _passes.clear()
    return _table()


def _table() -> str:
    """Returns a line for each pass."""
    if not _passes:
        return "No graph passes.  A cell with %%graph_pass NAME --at captured adds one."
    return "\n".join(f"{each.name}: {_what_it_does(each)}" for each in _passes.values())


def _what_it_does(graph_pass: GraphPass) -> str:
    if graph_pass.at == "lowering":
        return f"lowers {graph_pass.operator} to loops in the graphs"
    return "decides on fusions" if graph_pass.at == "fusion" else f"changes the {graph_pass.at} graph"


def notes(record: Record, passes: tuple[GraphPass, ...]) -> list[str]:
    """Returns a note for each pass that changed no graph of a record."""
    events: dict[str, set[str]] = {}
    for compile_ in record.compiles:
        for event in compile_.events:
            events.setdefault(event.name, set()).add(event.detail)
    found = []
    for each in passes if record.compiles else ():
        details = events.get(f"pass {each.name}")
        if details is None:
            missing = f"no {each.at} graph" if each.at not in ("lowering", "fusion") else "no graph to make kernels of"
            found.append(f"Graph pass {each.name}: there was {missing} here, so it did not run.")
        elif details == {"changed nothing"}:
            found.append(f"Graph pass {each.name}: it changed nothing{_where(each)}.")
    return found


def _where(graph_pass: GraphPass) -> str:
    if graph_pass.at == "lowering":
        return f": no operation {graph_pass.operator} is left where graphs are lowered, or the loops are the same"
    return " in any fusion" if graph_pass.at == "fusion" else f" in any {graph_pass.at} graph"
