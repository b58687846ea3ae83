"""Names of the arguments of a module of PyTorch's own that was compiled itself.

Dynamo compiles a function ``inner(*args, **kwargs)`` around the call of such a module, ``fn``.  The parameters are
those of ``forward`` in PyTorch's source, which is beside the file of that function.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from compiler_core.records import Guard
from compiler_core.records.capture import AROUND_CALL

_CLASS = re.compile(r"_*check_type_id\(L\['fn'\], \d+\), type=<class '([\w.<>]+)'>")
_ARGUMENT = re.compile(r"\b(args\[\d+\]|kwargs\['\w+'\]|fn\b(?:\.__self__)?(?=[.\[]))")


def called_class(guards: Iterable[Guard]) -> str:
    """Returns the class of the module that is called, with its module of Python; empty if it is not known."""
    found = next(filter(None, (_CLASS.match(guard.code) for guard in guards if guard.source == "L['fn']")), None)
    return found[1] if found else ""


def argument_names(
    filename: str, module: str, name: str, lines_of_file: Callable[[str], Sequence[str]]
) -> dict[str, str]:
    """Returns the names of ``args[0]`` and so on, as ``forward`` of a class has them; those that are known.

    Args:
        filename: the file of the function around the call.
        module, name: the module of Python, without ``torch.``, and the name of the class.
        lines_of_file: returns the lines of a file.
    """
    file = filename[: -len(AROUND_CALL)] + "torch/" + module.replace(".", "/") + ".py"
    try:
        tree = ast.parse("".join(lines_of_file(file)))
    except (SyntaxError, ValueError):
        return {}
    forward = _forward({node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}, name)
    parameters = [each.arg for each in [*forward.args.posonlyargs, *forward.args.args]][1:] if forward else []
    return {f"args[{i}]": parameter for i, parameter in enumerate(parameters)}


def arguments_of_call(line: str) -> dict[str, str]:
    """Returns the names of ``args[0]`` and so on from the user's line that makes the call, where only one can be meant.

    The text of a log has no more than the line.  The call has an argument by position, as ``sum`` in ``net(x).sum()``
    has not.
    """
    try:
        tree = ast.parse(line.strip())
    except (SyntaxError, ValueError):
        return {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    if len(calls) != 1:
        return {}
    simple = (ast.Name, ast.Attribute, ast.Subscript)
    given = itertools.takewhile(lambda each: not isinstance(each, ast.Starred), calls[0].args)
    return {f"args[{i}]": ast.unparse(each) for i, each in enumerate(given) if isinstance(each, simple)}


def parameter_names(lines: Sequence[str], names: Collection[str], lineno: int) -> dict[str, str]:
    """Returns the names of ``args[0]`` and so on, as a function has them that a decorator calls with ``*args``.

    Args:
        lines: those of the file.
        names: one of them is that of the function.
        lineno: one of its lines.
    """
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names and node.lineno <= lineno <= (node.end_lineno or 0):
            parameters = [*node.args.posonlyargs, *node.args.args]
            return {f"args[{i}]": parameter.arg for i, parameter in enumerate(parameters)}
    return {}


def _forward(classes: dict[str, ast.ClassDef], name: str) -> ast.FunctionDef | None:
    """Returns the last definition of ``forward`` in a class or in its bases of the same file."""
    if name not in classes:
        return None
    found = [node for node in classes[name].body if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    bases = (_forward(classes, base.id) for base in classes[name].bases if isinstance(base, ast.Name))
    return found[-1] if found else next(filter(None, bases), None)


def with_arguments(text: str, names: dict[str, str]) -> str:
    """Returns a text with the names of arguments: ``input`` for ``args[0]``, ``mask`` for ``kwargs['mask']``."""

    def shown(found: re.Match[str]) -> str:
        if found[0].startswith("fn"):
            return "self"
        return found[0][len("kwargs['") : -len("']")] if found[0][0] == "k" else names.get(found[0], found[0])

    return _ARGUMENT.sub(shown, text)
