"""Tests with the mark `own_process` run in a process beside their worker, which a watchdog ends if it stands still.

They make process groups, forks, signals or threads in native code: what they leave behind, and what ends them, concerns
no other test.  One process runs the marked tests of a file.  It is forked from a warm one (`warm_python.py`), gets the
names of tests one by one, and sends their reports back.  `conftest.py` registers one of the plugins in each process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_python

MARK = "own_process"
ADDRESS = "CUTAWAY_TEST_REPORTS"
"""The environment variable with the address of the worker's socket."""
SHOWN = 30_000
"""So many characters are shown of what a process printed that ended before its test did."""


class OwnProcesses:
    """The plugin of the worker."""

    def __init__(self) -> None:
        self._running: _Process | None = None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """The limit is the other process's, and is watched there."""
        return True if _is_marked(item) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not _is_marked(item):
            return None
        following = nextitem if nextitem is not None and nextitem.path == item.path and _is_marked(nextitem) else None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        try:
            if self._running is None:
                self._running = _Process(item)
            for report in self._running.run(item, following):
                item.ihook.pytest_runtest_logreport(report=report)
        except _Ended as error:
            failed = pytest.TestReport(item.nodeid, item.location, {}, "failed", str(error), "call")
            item.ihook.pytest_runtest_logreport(report=failed)
            self._close()
        except BaseException:
            self._close()
            raise
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if following is None:
            self._close()
        # the test before this one has left here what both share
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker(MARK) is not None


class _Ended(Exception):
    """The process ended before its test."""


class _Process:
    """The process that runs tests of one file."""

    def __init__(self, item: pytest.Item) -> None:
        config = item.config
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        base = config._tmp_path_factory.mktemp(MARK)  # type: ignore[attr-defined]
        # the warm process has imported a library that is a plugin, too
        options = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        options += ["-m", "", "-p", "no:cacheprovider", f"--basetemp={base}", "--color=no"]
        if limit := getattr(config, "_env_timeout", None):
            options.append(f"--timeout={limit}")
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._outputs = [folder / "stdout", folder / "stderr"]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen()
            self._process = warm_python.start(
                ["-m", "pytest", str(item.path), *options],
                outputs=self._outputs,
                env=env | {ADDRESS: str(folder / "socket"), warm_python.SOCKET: warm_python.address()},
                cwd=config.rootpath,
            )
            listener.settimeout(1)
            while True:
                with contextlib.suppress(TimeoutError):
                    self._connection, _ = listener.accept()
                    break
                if self._process.has_ended():
                    raise _Ended(self._printed())
        self._replies = self._connection.makefile()

    def run(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[pytest.TestReport]:
        """Runs a test, of which the fixtures stay that the following one shares."""
        try:
            self._connection.sendall(json.dumps([item.nodeid, following and following.nodeid]).encode() + b"\n")
            for line in self._replies:
                if not (reply := json.loads(line)):
                    return
                yield item.config.hook.pytest_report_from_serializable(config=item.config, data=reply)
        except OSError:
            pass
        raise _Ended(self._printed())

    def _printed(self) -> str:
        status = self._process.wait()
        text = "".join(path.read_text(errors="replace") for path in self._outputs)
        return f"The process of this test ended with status {status}.  It printed:\n{text[-SHOWN:]}"

    def close(self) -> None:
        """Lets the process end, as pytest does."""
        self._replies.close()
        self._connection.close()
        self._process.wait()
        self._folder.cleanup()


class Served:
    """The plugin of a process that runs marked tests for a worker."""

    def __init__(self, config: pytest.Config, address: str) -> None:
        self._config = config
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with self._connection.makefile() as orders:
            for line in orders:
                nodeid, following = json.loads(line)
                item = items[nodeid]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=items.get(following))
                self._send(None)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def _send(self, reply: Any) -> None:
        self._connection.sendall(json.dumps(reply).encode() + b"\n")
