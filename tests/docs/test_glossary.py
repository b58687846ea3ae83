"""docs/glossary.md, and the words that it replaced: in names and in prose."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.imports import FILES, ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
MODULES = (
    *("meeting", "bodies", "spaces", "companions", "glue", "outside", "aspects", "told", "happened", "ambient"),
    *("already", "later", "stepping", "shown", "entries", "ladder", "pages", "recipe", "clock", "reconstruct"),
)
"""Words that were names of modules and told an engineer from this field nothing."""
REFUSED = re.findall(r"^\| `([\w ]+)` \| ([\w, ]+) \|", GLOSSARY, re.MULTILINE)
NAMES = {word for word, where in REFUSED if "names" in where}
_IN_PROSE = "|".join(f"{word}s?" for word, where in REFUSED if "prose" in where)
PROSE = re.compile(rf"\b({_IN_PROSE})\b", re.IGNORECASE)
_ALL = [word for word, _ in REFUSED]
_ANY = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(_ALL)})|{'|'.join(map(str.capitalize, _ALL))}")
PYTHON = sorted(file for name in ("compiler_core", "kernel_magics", "tests") for file in (ROOT / name).rglob("*.py"))
BROWSER = sorted((ROOT / "extension" / "src").rglob("*.ts*"))
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *(ROOT / "extension").glob("*.md")])
OWN = {ROOT / "docs" / "glossary.md", Path(__file__)}
"""Files that name the words."""

_KEYWORDS = "const|let|function|class|interface|type"
_DECLARED = re.compile(rf"\b(?:{_KEYWORDS})\s+(\w+)|^\s*(?:readonly\s+)?(\w+)\??:", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)


@cache
def _read(file: Path) -> str:
    """Returns the text of a file, or nothing if it has none of the words."""
    text = file.read_text()
    return text if _ANY.search(text) else ""


def _names(file: Path) -> Iterator[str]:
    """Yields the names that a source file defines."""
    if file.suffix != ".py":
        yield from (name for pair in _DECLARED.findall(_COMMENT.sub("", _read(file))) for name in pair if name)
        return
    for node in ast.walk(ast.parse(_read(file))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def _prose(file: Path) -> str:
    """Returns the docstrings and comments of a source file, with messages if it is of our packages; or a page."""
    if file.suffix == ".md":
        return _read(file)
    if file.suffix != ".py":
        return "\n".join(_COMMENT.findall(_read(file)))
    tokens = tokenize.generate_tokens(io.StringIO(_read(file)).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    nodes = list(ast.walk(ast.parse(_read(file))))
    texts = nodes if file in FILES.values() else [node.value for node in nodes if isinstance(node, ast.Expr)]
    found = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    return "\n".join([*comments, *(text for text in found if " " in text)])


def parts_of(name: str) -> set[str]:
    """Returns the words in a name, in lower case and without a plural s."""
    words = re.split(r"_+|(?<=[a-z0-9])(?=[A-Z])", name)
    return {word.lower() for word in words} | {word.lower().removesuffix("s") for word in words}


def test_no_module_has_a_name_that_was_given_up() -> None:
    assert not [name for name in FILES if name.rpartition(".")[2] in MODULES]


def test_no_name_has_a_word_that_was_given_up() -> None:
    found = {(str(file.relative_to(ROOT)), name) for file in (*PYTHON, *BROWSER) for name in _names(file)}
    assert not sorted(pair for pair in found if parts_of(pair[1]) & NAMES)


def test_no_prose_has_a_word_that_was_given_up() -> None:
    files = {*PYTHON, *BROWSER, *PAGES} - OWN
    found = {str(file.relative_to(ROOT)): PROSE.findall(_prose(file)) for file in files}
    assert not {name: words for name, words in found.items() if words}


def test_the_check_finds_words() -> None:
    assert len(NAMES) > 10
    assert parts_of("_allTwins") & NAMES
    assert PROSE.search("what the parts came to")
    assert PROSE.search("Twins")
    assert not PROSE.search("twinkle")


@pytest.mark.parametrize("name", re.findall(r"`(compiler_core/[\w/]+)`", GLOSSARY))
def test_what_the_glossary_names_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_glossary_is_in_order() -> None:
    for words in (re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY, re.MULTILINE), [word for word, _ in REFUSED]):
        assert len(words) > 15
        assert words == sorted(words)
