# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Calls of loggers: those whose level is off do not break the graph, until it is on."""

import logging

import pytest
import torch
import torch.nn as nn

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import break_kinds, same_as_eager

LOG = logging.getLogger("tests.a_model")


class Chatty(logging.Logger):
    def isEnabledFor(self, level):
        return level > logging.DEBUG


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.logger = LOG.getChild("inner")
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        self.logger.info(f"shape {x.shape}", extra={"a": 1})
        return self.linear(x)


MODEL = Model()


@same_as_eager(graphs=1, breaks=[], compiles=1, grad=True)
def test_levels_that_are_off(x):
    LOG.debug("shape %s", x.shape)
    y = x.sin()
    LOG.info("mean %s", y.mean(), stacklevel=2)
    LOG.debug("value %s", y)
    return MODEL(y)


HEARD = []


class Kept(logging.Handler):
    def emit(self, record):
        HEARD.append(record.getMessage())


def logger(name, level):
    """Returns a logger whose messages are in `HEARD`."""
    log = logging.getLogger(f"tests.{name}")
    log.handlers[:], log.propagate, log.disabled = [Kept()], False, False
    log.setLevel(level)
    return log


@pytest.mark.parametrize("how", ["level", "disable", "disabled"])
def test_a_level_that_is_turned_on_later(how):
    log = logger("quiet", logging.WARNING if how == "level" else logging.INFO)

    def program(x):
        log.info("shape %s", tuple(x.shape))
        return x + 1

    def turn(on):
        if how == "level":
            log.setLevel(logging.INFO if on else logging.WARNING)
        elif how == "disable":
            logging.disable(logging.NOTSET if on else logging.INFO)
        else:
            log.disabled = not on

    run = compiler_core.compile(program, backend="eager", strict=True)
    try:
        for on in (False, True, False, True):
            HEARD.clear()
            turn(on)
            assert run(torch.ones(2)).sum() == 4
            assert HEARD == ["shape (2,)"] * on
    finally:
        logging.disable(logging.NOTSET)
    first, second = [each for each in record_of(run).compiles if each.frame == 0]
    assert [len(first.breaks), len(second.breaks)] == [0, 1]


def test_loggers_that_decide_themselves():
    log = Chatty("chatty", logging.ERROR)

    def program(x):
        log.debug("a")
        return x + 1

    run = compiler_core.compile(program, backend="eager", strict=True)
    run(torch.ones(2))
    assert break_kinds(record_of(run)) == ["print"]


def test_another_logger_in_the_same_place():
    HEARD.clear()
    quiet, loud = logger("quiet", logging.ERROR), logger("loud", logging.DEBUG)

    def program(x, log):
        log.debug("here")
        return x + 1

    run = compiler_core.compile(program, backend="eager", strict=True)
    for log in (quiet, loud, quiet, loud):
        run(torch.ones(2), log)
    assert HEARD == ["here", "here"]
