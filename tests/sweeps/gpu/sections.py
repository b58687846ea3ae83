"""The sections that are compared with eager on a device: the corpus, networks, random programs, operators."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from tests.sweeps.gpu.pool import CRASHED, DIFFERS, OK, SKIPPED

ROOT = Path(__file__).resolve().parents[3]
DEFAULT = "default"
"""The default backend."""

Facts = dict[str, Any]
Check = Callable[[], Facts]
"""Raises AssertionError for a difference from eager; returns further facts about the case."""


class Events(Protocol):
    def send(self, **event: Any) -> None: ...


class Section:
    """A section: items, each with several cases."""

    case_seconds = 60.0
    slice_seconds = 20.0
    case_bytes = 1 << 30
    """The device memory of a worker: there are no more workers than fit."""

    def items(self, only: str) -> list[str]:
        """Returns the items whose names contain `only`, in the order in which to run them."""
        raise NotImplementedError

    def cases(self, item: str, device: str) -> Iterator[tuple[str, Check]]:
        raise NotImplementedError

    def run(self, item: str, start: int, until: float, device: str, events: Events) -> int | None:
        """Runs the cases from the `start`-th on; returns the number of the first that was not run, or None."""
        for number, (name, check) in enumerate(self.cases(item, device)):
            if number < start:
                continue
            if number > start and time.monotonic() > until:
                return number
            events.send(at=name, number=number)
            verdict, detail, facts = _tried(check)
            events.send(case=name, verdict=verdict, detail=detail, facts=facts)
            if verdict != OK and "CUDA error" in detail:
                return number + 1  # what runs after it in this process fails, too
        return None


def _tried(check: Check) -> tuple[str, str, Facts]:
    try:
        return OK, "", check()
    except AssertionError as error:
        return DIFFERS, str(error)[:3000], {}
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {error}"[:3000], {}


def _backend(name: str) -> str | None:
    return None if name == DEFAULT else name


# ---------------------------------------------------------------- the corpus


class Corpus(Section):
    """tests/programs, with tensors on the device, and with the backend of each test or kernels."""

    def items(self, only: str) -> list[str]:
        files = sorted((ROOT / "tests" / "programs").rglob("test_*.py"), key=lambda f: -f.stat().st_size)
        found = [f"{b}:{f.name}" for b in ("own", DEFAULT) for f in files if only in f"{b}:{f.name}"]
        return [item for item in found if item != f"{DEFAULT}:test_cuda.py"]  # its tests choose backends and devices

    def run(self, item: str, start: int, until: float, device: str, events: Events) -> int | None:
        import pytest

        from tests.programs import conftest

        backend, _, file = item.partition(":")
        plugin = _Plugin(f"{backend}:", device, start, until, events)
        with conftest.elsewhere(device, backend == DEFAULT):
            pytest.main(
                [str(next((ROOT / "tests" / "programs").rglob(file))), "-c", "/dev/null", "--rootdir", str(ROOT), "-q",
                 "-p", "no:cacheprovider", "-p", "no:xdist", "--import-mode=importlib", "-W", "ignore"],
                plugins=[plugin],
            )  # fmt: skip
        return plugin.at


def _shortened(report: str) -> str:
    """Returns a long report's errors and its end."""
    errors = "\n".join(line for line in report.splitlines() if line.startswith("E "))
    return report if len(report) <= 3000 else f"{errors[:1500]}\n...\n{report[-1500:]}"


class _Plugin:
    """A pytest plugin that turns reports into events."""

    def __init__(self, prefix: str, device: str, start: int, until: float, events: Events) -> None:
        self.at: int | None = None
        self._device = device
        self._prefix, self._start, self._until, self._events = prefix, start, until, events
        self._number = start - 1
        self._verdict, self._detail = OK, ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        del items[: self._start]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._events.send(case=self._prefix + report.nodeid, verdict=CRASHED, detail=str(report.longrepr)[-3000:])

    def pytest_runtest_protocol(self, item: Any) -> None:
        torch.set_default_device(self._device)  # a program may have set another
        self._number += 1
        self._verdict, self._detail = OK, ""
        self._events.send(at=self._name(item.nodeid), number=self._number)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self._verdict, self._detail = SKIPPED, str(report.longrepr)[-300:]
        elif report.failed:
            self._verdict = DIFFERS if "AssertionError" in str(report.longrepr) else CRASHED
            self._detail = _shortened(str(report.longrepr))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._events.send(case=self._name(nodeid), verdict=self._verdict, detail=self._detail)

    def pytest_runtest_teardown(self, item: Any, nextitem: Any) -> None:
        late = time.monotonic() > self._until or "CUDA error" in self._detail
        if nextitem is not None and late:
            self.at = self._number + 1
            item.session.shouldstop = "its time is up"

    def _name(self, nodeid: str) -> str:
        return self._prefix + nodeid.rpartition("/")[2]


# ---------------------------------------------------------------- operators


class Operators(Section):
    """PyTorch's operator database: every sample of every operator, forward and backward."""

    def __init__(self, backend: str) -> None:
        self._backend = backend

    def items(self, only: str) -> list[str]:
        from tests.sweeps import operator_sweep

        names = [name for name in operator_sweep.names() if only in name]
        random.Random(0).shuffle(names)  # what is left at the end is no part of the alphabet
        return names

    def cases(self, item: str, device: str) -> Iterator[tuple[str, Check]]:
        from tests.sweeps import operator_sweep

        for case in operator_sweep.cases_of(item, device) if item in operator_sweep.names(device) else ():

            def check(case: operator_sweep.Case = case) -> Facts:
                result = operator_sweep.run(case, _backend(self._backend))
                assert result.verdict not in ("wrong", "crashed"), f"{result.verdict}: {result.reason}"
                return {result.verdict: result.reason} if result.verdict != "equal" else {}

            yield f"{self._backend}:{case.name}", check


# ---------------------------------------------------------------- layouts


class Layouts(Section):
    """The layouts of the results of operators and of their gradients, for arguments of all layouts."""

    def items(self, only: str) -> list[str]:
        from tests.sweeps import layouts

        return [name for name in layouts.names() if only in name]

    def cases(self, item: str, device: str) -> Iterator[tuple[str, Check]]:
        from tests.sweeps import layouts

        def check() -> Facts:
            different = layouts.differences_of(item, device)
            assert not different, "\n".join(f"{name}: {text}" for name, text in different.items())
            return {}

        yield f"layouts:{item}", check


# ---------------------------------------------------------------- random programs


class Programs(Section):
    """Random programs on tensors, the same in each run."""

    case_seconds = 150.0  # some have thousands of results

    def items(self, only: str) -> list[str]:
        return [f"program {number}" for number in range(100_000) if only in f"program {number}"]

    def cases(self, item: str, device: str) -> Iterator[tuple[str, Check]]:
        from tests.sweeps.fuzz import run, tensor_parts
        from tests.sweeps.fuzz.tensor_programs import written

        def check() -> Facts:
            with tensor_parts.on(device):
                source = written(random.Random(int(item.removeprefix("program "))))
                try:
                    run.check(source, None)
                except run.Invalid as error:
                    return {"eager raises": f"{error}\n{source}"}
                except Exception as error:
                    message = f"{error}\n{source}"
                    if not isinstance(error, AssertionError):
                        raise RuntimeError(f"{type(error).__name__}: {message}") from error
                    if stock := _difference_of_stock(source, str(error)):
                        return {"differs as stock does": f"{message}\nstock: {stock}"}
                    raise AssertionError(message) from error
            return {}

        yield item, check


def _difference_of_stock(source: str, ours: str) -> str:
    """Returns how the program, compiled by stock torch.compile, differs from eager in what ours differs in; an empty
    text if it does not."""
    from torch._inductor import config

    from tests.sweeps.fuzz import run, within_noise

    part = re.search(r"\.[a-z_]+(\[\d+\](?=[:\[]))?", ours)
    module = run.load(source)
    try:
        with config.patch(fallback_random=True):
            within_noise.compare(module, torch.compile(module.program), only=part[0] if part else "")
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]
    finally:
        torch._dynamo.reset()
    return ""


# ---------------------------------------------------------------- networks


class Networks(Section):
    """A training step of architectures of timm and torchvision, in the layouts of float32 or in channels_last."""

    def __init__(self, channels_last: bool = False) -> None:
        self._channels_last = channels_last

    case_seconds = 200.0
    case_bytes = 9 << 30

    def items(self, only: str) -> list[str]:
        from tests.sweeps.gpu import networks

        return [name for name in networks.names() if only in name]

    def cases(self, item: str, device: str) -> Iterator[tuple[str, Check]]:
        from tests.sweeps.gpu import networks

        check = networks.check_channels_last if self._channels_last else networks.check
        yield item, lambda: check(item, device)


SECTIONS: dict[str, Section] = {
    "corpus": Corpus(),
    "networks": Networks(),
    "networks-channels_last": Networks(channels_last=True),
    "programs": Programs(),
    "operators-aot_eager": Operators("aot_eager"),
    "operators-default": Operators(DEFAULT),
    "layouts": Layouts(),
}
SHARES: dict[str, float] = {
    "corpus": 2.0,
    "networks": 2.5,
    "networks-channels_last": 1.5,
    "programs": 1.0,
    "operators-aot_eager": 1.5,
    "operators-default": 2.5,
    "layouts": 1.0,
}
"""Returns the seconds of each section if all use their share; unused time goes to later sections."""


def budgets(names: Sequence[str], seconds: float) -> Iterator[tuple[str, Callable[[float], float]]]:
    """Each section, and the seconds that it gets of what is left."""
    for number, name in enumerate(names):
        share = SHARES[name] / sum(SHARES[n] for n in names[number:])
        yield name, lambda left, share=share: left * share  # type: ignore[misc]
