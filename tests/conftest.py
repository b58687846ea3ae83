"""What all tests share: fixed seeds, one kernel cache, a real IPython."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests import kept_kernels, warm_python
from tests.own_process import ADDRESS, OwnProcesses, Served
from tests.watchdog import Watched

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SEED = 20261121
MAX_WAIT_S = 120

# Before PyTorch is imported: a thread that waits for others sleeps, and leaves its core to the other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Inductor would build a library for each instruction set, in each new cache, to see whether the compiler knows it.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# Nothing here checks IRIs in JSON: jsonschema, which nbformat uses, would make the grammars in three seconds.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


@pytest.hookimpl(trylast=True)  # after pytest-timeout has read its options
def pytest_configure(config: pytest.Config) -> None:
    """A watchdog ends this process if it stands still; tests that could end it have separate processes."""
    config.pluginmanager.register(Watched(config))
    if address := os.environ.pop(ADDRESS, ""):
        config.pluginmanager.register(Served(config, address), "served")
    else:
        config.pluginmanager.register(OwnProcesses())
        if "PYTEST_XDIST_WORKER" in os.environ:
            warm_python.share(config._tmp_path_factory.getbasetemp().parent)  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files come first: those that are left for the end are short, so that all workers end together."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """In CI no module is compiled to bytecode yet: the first worker does that, and the others wait for it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if not worker or "CI" not in os.environ:
        return (yield)
    is_done = session.config._tmp_path_factory.getbasetemp().parent / "collected"  # type: ignore[attr-defined]
    if worker == "gw0":
        try:
            return (yield)
        finally:
            is_done.touch()
    end = time.monotonic() + MAX_WAIT_S
    while not is_done.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return (yield)


gc.disable()  # until all tests are collected: imports make millions of objects that stay


def pytest_collection_finish() -> None:
    """Garbage collections skip the objects that imports made, which are most of all.  To time its guards, stock empties
    the processor's cache in each compile, which takes 20 ms: not here."""
    if guards := sys.modules.get("torch._dynamo.guards"):
        guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[attr-defined]
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """They skip what the tests of a file have imported and left behind, too, and what a test has that collects garbage
    itself: else each collection in a later test would be slower."""
    before = _full_collections()
    yield
    if nextitem is None or nextitem.path != item.path or _full_collections() != before:
        gc.collect()
        gc.freeze()


def _full_collections() -> int:
    count: int = gc.get_stats()[-1]["collections"]
    return count


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """One cache for all workers: a test run neither reads nor fills the user's, but has the kernels of earlier runs."""
    folder = tmp_path_factory.getbasetemp()
    if pytestconfig.pluginmanager.has_plugin("served"):
        folder = folder.parent  # the worker's
    shared = folder.parent if folder.name.startswith("popen-") else folder  # of all workers
    (shared / "cache").mkdir(mode=0o700, exist_ok=True)
    os.environ["CUTAWAY_CACHE_DIR"] = str(shared / "cache")
    kernels = shared / "cache" / "cutaway" / "cpp"
    kept_kernels.take(kernels)
    yield
    kept_kernels.keep(kernels)


@pytest.fixture(scope="session", autouse=True)
def _checked_kernels() -> Iterator[None]:
    """Every Triton kernel that a test has made is looked at, also where nothing compiles it."""
    from compiler_core.codegen.triton import printer as triton
    from compiler_core.tools.triton_names import check_names

    generate = triton.generate

    def checked(*args: Any, **options: Any) -> Any:
        code = generate(*args, **options)
        check_names(code.text)
        return code

    with mock.patch.object(triton, "generate", checked):
        yield


@pytest.fixture(scope="session", autouse=True)
def _names_of_stock() -> Iterator[None]:
    """Stock removes no names from namespaces when the process ends: of those that are gone, it would print KeyError.

    The tracebacks that it makes at graph breaks keep its code alive after a reset."""
    yield
    if utils := sys.modules.get("torch._dynamo.utils"):
        for hooks in utils.CleanupManager.instance.values.values():
            hooks.clear()


def _settings() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """PyTorch's settings of the process, each with the function that sets it: later tests depend on them."""
    import torch

    return {
        "gradients": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "default device": (torch.get_default_device(), lambda _: torch.set_default_device(None)),
        "deterministic algorithms": (torch.get_deterministic_debug_mode(), torch.set_deterministic_debug_mode),
        "precision of products": (torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.autograd.set_detect_anomaly),
        "autocast": (torch.is_autocast_enabled("cpu"), partial(torch.set_autocast_enabled, "cpu")),
    }


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """The same random numbers in every run of a test, nothing kept of what earlier tests compiled, and the settings as
    they were for the next one."""
    from compiler_core.tools.testing.observed_run import seed_all

    seed_all(SEED)
    if compiled := sys.modules.get("compiler_core.api.compiled"):
        compiled.forget_deleted()
    before = _settings()
    yield
    if changed := _set_again(before):
        pytest.fail(f"the test left changed {'; '.join(changed)}")


@pytest.fixture
def settings() -> Iterator[None]:
    """The test may change PyTorch's settings."""
    before = _settings()
    yield
    _set_again(before)


def _set_again(before: dict[str, tuple[Any, Callable[[Any], Any]]]) -> list[str]:
    """Sets what has changed to what it was, and returns what has changed."""
    changed = []
    for name, (value, _) in _settings().items():
        was, restore = before[name]
        if value != was:
            restore(was)
            changed.append(f"{name}: {value}, was {was}")
    return changed


@pytest.fixture(scope="session")
def _ipython() -> Iterator[InteractiveShell]:
    """The IPython of this process, without history and colours."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    gc.freeze()  # IPython collects at each reset, which PyTorch's modules would make slow
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(_ipython: InteractiveShell) -> Iterator[InteractiveShell]:
    """A real IPython as good as new: no names, no extension, cell number 1."""
    yield _ipython
    if _ipython.extension_manager and "kernel_magics" in _ipython.extension_manager.loaded:
        from kernel_magics.run import edits

        _ipython.run_line_magic("graph_pass", "--remove-all")
        edits.revert(None)
        _ipython.run_line_magic("unload_ext", "kernel_magics")
    _ipython.set_custom_exc((), None)
    _ipython.compile.reset_compiler_flags()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()  # its names in the shell's namespace, which it removes with its code: KeyError if they are gone
    _ipython.reset()
    gc.freeze()  # modules that the test imported; what could be collected was collected by the reset


@pytest.fixture
def magics(shell: InteractiveShell) -> InteractiveShell:
    """An IPython in which a person has loaded the magics and imported torch."""
    import torch

    shell.run_line_magic("load_ext", "kernel_magics")
    shell.user_ns["torch"] = torch
    return shell


@pytest.fixture(scope="module")
def warm_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jupyter's kernels start in processes that are forked from one in which PyTorch is imported already."""
    with mock.patch.dict(os.environ, warm_python.kernel_spec(tmp_path_factory.mktemp("warm"), "python3")):
        yield


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Also in a process that was started in the background, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fresh_stock() -> Iterator[None]:
    """Stock `torch.compile` knows nothing before the test, and nothing after it."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
