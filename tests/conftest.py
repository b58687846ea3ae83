"""What all tests share: fixed seeds, a cache of their own, a real IPython."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SEED = 20261121


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels are built anew: a test run neither reads nor fills the person's cache."""
    os.environ["CUTAWAY_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same random numbers in every run of a test that uses torch."""
    import torch

    torch.manual_seed(SEED)


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """A new IPython in this process, without history and colours."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    yield shell
    shell.reset()
    InteractiveShell.clear_instance()
