"""All private names of PyTorch are read in one place, which says what a version lacks."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from compiler_core import torch_private
from tests.docs.imports import FILES

PUBLIC = ("torch._assert", "torch._foreach_", "torch.ops.")
"""What PyTorch documents in spite of its name, and operators, which are looked up by name."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules of ours, by name."""
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in FILES.items()}


def _private_names(tree: ast.Module) -> Iterator[str]:
    """Yields the private names of PyTorch that a module reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            if name.startswith("torch.") and re.search(r"\._(?!_)", name) and not name.startswith(PUBLIC):
                yield name


def test_this_pytorch_lacks_none() -> None:
    assert torch_private.missing() == []


def test_no_other_module_reads_one(modules: dict[str, ast.Module]) -> None:
    found = {name: set(_private_names(tree)) for name, tree in modules.items() if name != torch_private.__name__}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_table_has_what_is_read(modules: dict[str, ast.Module]) -> None:
    """Each row is imported somewhere, and so is each member of a module."""
    used: set[str] = set()
    members: dict[str, set[str]] = defaultdict(set)
    for tree in modules.values():
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == torch_private.__name__]
        ours = {each.asname or each.name: each.name for node in imports for each in node.names}
        used.update(ours.values())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                members[ours.get(node.value.id, "")].add(node.attr)
    assert used == set(torch_private.NAMES)
    of_pytorch = {name for name in used if isinstance(getattr(torch_private, name), ModuleType)}
    read = {name: {each for each in members[name] if not each.startswith("__")} for name in of_pytorch}
    assert {name: " ".join(sorted(each)) for name, each in read.items() if each} == torch_private.MEMBERS


def test_the_types_are_those_of_the_table() -> None:
    """What type checkers import here is what the table finds."""
    tree = ast.parse(Path(str(torch_private.__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    typed = {name.asname or name.name: f"{node.module}.{name.name}" for node in imports for name in node.names}
    assert len(typed) > 40
    found = {name: torch_private.find(place) for name, place in typed.items()}
    assert {name for name, value in found.items() if getattr(torch_private, name) is not value} == set()


def test_a_missing_name(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("torch._C._no_such_function", "torch._no_such_module.function")
    monkeypatch.setitem(torch_private.NAMES, "no_such_function", places)
    monkeypatch.setitem(torch_private.MEMBERS, "C_guards", "NoSuchGuard")
    assert torch_private.missing() == ["torch._C._dynamo.guards.NoSuchGuard", " or ".join(places)]
    with pytest.raises(ImportError, match=r"^PyTorch \S+ has no .*_no_such_function"):
        torch_private.no_such_function
    with pytest.raises(AttributeError, match="no_such_row"):
        torch_private.no_such_row


def test_a_name_that_we_can_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_private.NAMES, "no_such_function", ("torch._C._no_such_function", None))
    assert torch_private.no_such_function is None
    monkeypatch.delitem(vars(torch_private), "no_such_function")
    monkeypatch.setitem(torch_private.NAMES, "no_such_function", ("torch._C._no_such_function", "torch.cos"))
    assert torch_private.no_such_function is __import__("torch").cos
    monkeypatch.delitem(vars(torch_private), "no_such_function")
