# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which does odd things)
"""Objects end where the program drops them, also after a graph break: files are written, ``__del__`` is called."""

from __future__ import annotations

import gc
import gzip
import os
import pathlib
import tempfile
import weakref

import pytest
import torch

import compiler_core
from compiler_core.tools.testing import same_as_eager

LOG, GIVEN = [], []
FILE = pathlib.Path(tempfile.gettempdir()) / f"cutaway_dropped_objects_{os.getpid()}.txt"


@pytest.fixture(autouse=True)
def no_file():
    yield
    FILE.unlink(missing_ok=True)


class Plain:
    pass


class Ending:
    def __init__(self, n=0):
        self.n = n

    def __del__(self):
        LOG.append(self.n)

    def number(self):
        return self.n


def written_file(x):
    y = x + 1
    open(FILE, "w").write("text")
    return y * len(FILE.read_text())


def written_file_of_a_path(x):
    y = x + 1
    FILE.open(mode="w").write("longer text")
    return y * len(open(FILE).read())


def rebound(x):
    made = Ending(1)
    y = x + 1
    made = Ending(2)
    return y * len(LOG), made.n


def never_named(x):
    y = x + 1
    return y * Ending(5).number() * len(LOG)


def made_by_a_function(x):
    def make():
        made = Ending(3)
        return made

    made = make()
    y = x + 1
    made = None
    return y * len(LOG)


def in_a_tuple(x):
    def make():
        made = Ending(3)
        return 1, made

    _, made = make()
    y = x + 1
    made = None
    return y * len(LOG)


def global_variable(x):
    global made_here
    made_here = Ending(6)
    y = x + 1
    made_here = None
    return y * len(LOG)


def compressed_file(x):
    y = x + 1
    gzip.open(FILE, "wt").write("text")
    return y * len(gzip.open(FILE, "rt").read())


def dropped_by_a_function(x):
    def log(y):
        Ending(4)
        return y + 1

    return log(x) * 2 * len(LOG)


def deleted(x):
    given = GIVEN.pop()
    y = x + 1
    print(end="")
    del given
    return y * len(LOG)


def finalized(x):
    made = Plain()
    weakref.finalize(made, LOG.append, 1)
    y = x + 1
    del made
    return y * len(LOG)


def weakly_referred_to(x):
    made, reference = Plain(), None
    reference = weakref.ref(made)
    y = x + 1
    print(end="")
    made = None
    return y * (1 + (reference() is None))


def weakly_referred_to_tensor(x):
    y = x + 1
    reference = weakref.ref(y)
    z = y * 2
    print(end="")
    del y
    return z * (1 + (reference() is None))


def weak_values(x):
    values, made = weakref.WeakValueDictionary(), Plain()
    values["a"] = made
    y = x + len(values)
    print(end="")
    del made
    return y * (len(values) + 1)


def temporary_folder(x):
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name)
    y = x + path.exists()
    del folder
    return y * (2 + path.exists())


PROGRAMS = [
    *(written_file, written_file_of_a_path, rebound, never_named, made_by_a_function, dropped_by_a_function),
    *(
        deleted,
        in_a_tuple,
        global_variable,
        compressed_file,
        finalized,
        weakly_referred_to,
        weakly_referred_to_tensor,
        weak_values,
        temporary_folder,
    ),
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_an_object_ends_where_the_program_drops_it(program):
    def calls(called):
        GIVEN.clear(), LOG.clear(), FILE.unlink(missing_ok=True)
        found = []
        for _ in range(3):
            GIVEN.append(Ending(7))
            found += [str(called(torch.ones(2))), list(LOG)]
        return found

    try:
        gc.disable()  # which would also free what a cycle keeps alive
        assert calls(compiler_core.compile(program, backend="eager")) == calls(program)
    finally:
        gc.enable(), GIVEN.clear()


@same_as_eager(graphs=4, breaks=None)
def test_a_frame_that_keeps_its_objects_is_compiled(x):
    kept = Ending(1)
    x = x + 1
    with open(FILE, "w") as file:
        x = x * 2
    x = x * 3
    try:
        raise ValueError("text")
    except ValueError as error:
        print(error)
    return x * 2, kept.n
