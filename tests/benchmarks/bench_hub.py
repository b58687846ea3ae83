"""Measures a class on one machine: people who start JupyterLab on a JupyterHub and run a lesson, all at once.

    python -m tests.benchmarks.bench_hub --users 10 --lesson 03_guards

It needs packages that no extra has: `pip install jupyterhub` and `npm install configurable-http-proxy`, with the proxy
on the PATH.  Prints for each person the seconds until JupyterLab is ready, of the first cell that runs, and of the
lesson, and the memory of server and kernel (PSS: pages that processes share are counted once).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import websocket

ROOT = Path(__file__).parents[2]
PORT = 8765
HUB = f"http://127.0.0.1:{PORT}"
CONFIG = """
c.JupyterHub.bind_url = "{hub}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/{{username}}"
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
scopes = ["admin:users", "admin:servers", "access:servers", "tokens"]
c.JupyterHub.load_roles = [{{"name": "bench", "services": ["bench"], "scopes": scopes}}]
c.Spawner.args = ["--allow-root", "--ServerApp.disable_check_xsrf=True"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.Spawner.environment = {environment}
c.JupyterHub.concurrent_spawn_limit = 100
"""


@dataclass
class Person:
    name: str
    ready: float = 0.0
    first_cell: float = 0.0
    lesson: float = 0.0
    error: str = ""


class Hub:
    """A JupyterHub in a folder, until `close`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.last_error = ""
        self.token = secrets.token_hex(16)
        installed = ROOT / ".venv"  # where `make` puts the extension, if this is another environment
        environment = {
            "JUPYTER_PATH": f"{installed}/share/jupyter",
            "JUPYTER_CONFIG_PATH": f"{installed}/etc/jupyter",
            **environment,
        }
        config = CONFIG.format(hub=HUB, token=self.token, environment=environment, folder=folder)
        (folder / "jupyterhub_config.py").write_text(config)
        with (folder / "hub.log").open("w") as log:
            command = [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"]
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        _until(lambda: self.call("GET", "/hub/api/") is not None, "the hub does not answer")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
        """Returns the answer to a request; None if there is none yet."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {token or self.token}"}
        request = urllib.request.Request(HUB + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            self.last_error = f"{path}: {error}"
            return None
        except (urllib.error.URLError, ConnectionError):
            return None
        return json.loads(text) if text.startswith((b"{", b"[")) else text

    def close(self) -> None:
        for child in reversed(_tree(self.process.pid)):
            os.kill(child, 15)
        self.process.wait()


def take_lesson(hub: Hub, person: Person, cells: list[str], barrier: threading.Barrier) -> None:
    """Starts a person's server, opens JupyterLab, and runs all cells."""
    try:
        began = time.monotonic()
        user = f"/hub/api/users/{person.name}"
        hub.call("POST", user, {})
        hub.call("POST", f"{user}/server", {})
        _until(lambda: hub.call("GET", f"/user/{person.name}/lab") is not None, "JupyterLab does not answer")
        person.ready = time.monotonic() - began
        barrier.wait()
        began = time.monotonic()
        token = hub.call("POST", f"{user}/tokens", {})["token"]
        kernels = f"/user/{person.name}/api/kernels"
        kernel = _until(lambda: hub.call("POST", kernels, {}, token), "no kernel starts")["id"]
        address = f"ws://127.0.0.1:{PORT}/user/{person.name}/api/kernels/{kernel}/channels"
        socket = websocket.create_connection(
            address, timeout=600, header=[f"Authorization: token {token}"], suppress_origin=True
        )
        for number, cell in enumerate(cells):
            _execute(socket, cell)
            if number == 0:
                person.first_cell = time.monotonic() - began
        person.lesson = time.monotonic() - began
    except Exception as error:
        person.error = f"{type(error).__name__}: {error} ({hub.last_error})"
        barrier.abort()


def _execute(socket: websocket.WebSocket, cell: str) -> None:
    id_ = uuid.uuid4().hex
    header = {"msg_id": id_, "msg_type": "execute_request", "username": "", "session": "bench", "version": "5.3"}
    content = {"code": cell, "silent": False, "store_history": True, "allow_stdin": True, "stop_on_error": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    socket.send(json.dumps({**message, "buffers": []}))
    while True:
        text = socket.recv()
        answer = json.loads(text) if isinstance(text, str) else {"parent_header": {}}
        if answer["parent_header"].get("msg_id") == id_ and answer["msg_type"] == "execute_reply":
            return


def _until(call: Callable[[], Any], message: str) -> Any:
    """Calls a function until it returns something, and returns that."""
    end = time.monotonic() + 300
    while not (result := call()):
        if time.monotonic() > end:
            raise TimeoutError(message)
        time.sleep(0.2)
    return result


def _tree(process: int) -> list[int]:
    children = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(entry.parent.name))
    found = [process]
    for each in found:
        found += children[each]
    return found


def memory(process: int) -> dict[str, list[float]]:
    """Returns the MB of each process below the hub, by its kind."""
    found: dict[str, list[float]] = {"hub and proxy": [0.0], "server": [], "kernel": []}
    for each in _tree(process):
        try:
            command = Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ")
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
        if "ipykernel" in command:
            found["kernel"].append(pss)
        elif "singleuser" in command:
            found["server"].append(pss)
        else:
            found["hub and proxy"][0] += pss
    return found


def take_lessons(people: list[Person], cells: list[str], environment: dict[str, str]) -> dict[str, list[float]]:
    """Has all people take the lesson at once, on a new hub; returns the memory at the end."""
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(Path(folder), environment)
        try:
            barrier = threading.Barrier(len(people))
            threads = [threading.Thread(target=take_lesson, args=(hub, each, cells, barrier)) for each in people]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return memory(hub.process.pid)
        finally:
            hub.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--lesson", default="03_guards", help="a notebook of notebooks/workshop")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the kernels")
    parser.add_argument("--shared-cache", action="store_true", help="read the kernels that a first person built")
    options = parser.parse_args()
    notebook = nbformat.read(ROOT / "notebooks" / "workshop" / f"{options.lesson}.ipynb", as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    people = [Person(f"person-{number}") for number in range(options.users)]
    environment = {"OMP_NUM_THREADS": str(options.threads)} if options.threads else {}
    with tempfile.TemporaryDirectory() as cache:
        if options.shared_cache:
            take_lessons([Person("teacher")], cells, environment | {"CUTAWAY_CACHE_DIR": cache})
            environment["CUTAWAY_CACHE_READ_FROM"] = cache
        found = take_lessons(people, cells, environment)
    for each in people:
        if each.error:
            print(f"{each.name}: {each.error}")
    for what, values in {
        "until JupyterLab is ready, s": [each.ready for each in people],
        "kernel and first cell, s": [each.first_cell for each in people],
        f"lesson {options.lesson}, s": [each.lesson for each in people],
        **{f"memory of {kind}, MB": values for kind, values in found.items()},
    }.items():
        low, middle, high = min(values, default=0), statistics.median(values or [0]), max(values, default=0)
        print(f"{what:40} {low:8.1f} to {high:8.1f}, median {middle:8.1f}, sum {sum(values):9.1f}")


if __name__ == "__main__":
    main()
