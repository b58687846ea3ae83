"""Starts JupyterLab on a loopback port, and drives notebooks and explorers in it as a user does."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, Locator, Page, Position, expect

from tests import warm_python
from tests.limits import HANG_S

KERNEL = "warm"
"""The kernel of notebooks that are made for tests (`warm_python.kernel_spec`); that of the tour starts as any other."""
RUN_MS = 1000 * HANG_S
WAIT_MS = 120_000
"""How long a test waits for what it expects of the page: only a test that fails takes as long."""
POLL_S = 0.05

expect.set_options(timeout=WAIT_MS)


# Position in a line of code at which it is clicked: near its start, since its middle may be scrolled out of view.
INSIDE: Position = {"x": 12, "y": 6}

# Without news and update dialogs, which would cover what is tested.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
"""The notebook of the tab that is shown."""

KERNEL_IS_READY = """async () => {
    const context = window.jupyterapp?.shell?.currentWidget?.sessionContext;
    if (!context) return false;
    await context.ready;
    const kernel = context.session?.kernel;
    if (!kernel) return false;
    await kernel.info;
    return kernel.status === "idle" && kernel.connectionStatus === "connected";
}"""

EVALUATE = """async (expression) => {
    const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
    const request = { code: "", user_expressions: { value: expression }, store_history: false };
    const { value } = (await kernel.requestExecute(request).done).content.user_expressions;
    return value.status === "ok" ? value.data["text/plain"] : `!${value.ename}: ${value.evalue}`;
}"""

# Returns the text of lines without the marks at their ends.
TEXTS = """(lines) => lines.map((line) =>
    [...line.childNodes].filter((part) => !part.classList?.contains("cutaway-marks"))
        .map((part) => part.textContent).join(""))"""

CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => ({
    id: cell.model.id,
    count: cell.model.executionCount ?? null,
    outputs: cell.model.outputs?.toJSON() ?? [],
}))"""


# The place of a cell, counted from 1; 0 if there is none.
PLACE = """(id) =>
    (window.jupyterapp.shell.currentWidget?.content?.widgets?.findIndex((cell) => cell.model.id === id) ?? -1) + 1"""


@dataclass
class Server:
    """A running Jupyter server."""

    url: str
    token: str
    root: Path

    def get(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.url}/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=HANG_S) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def end_kernels(self) -> None:
        """Ends all kernels; notebooks stay open without one."""
        for session in self.get("api/sessions"):
            self.get(f"api/sessions/{session['id']}", "DELETE")

    def notebook(self, name: str, cells: dict[str, str]) -> str:
        """Writes a new notebook with code cells, given by id; returns its name."""
        result = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source, id=id_) for id_, source in cells.items()],
            metadata={"kernelspec": {"name": KERNEL, "display_name": "Python 3"}},
        )
        nbformat.write(result, self.root / name)
        return name


@contextlib.contextmanager
def jupyter(folder: Path) -> Iterator[Server]:
    """Runs a server with separate folders and settings, which serves ``folder/notebooks``."""
    root = folder / "notebooks"
    root.mkdir()
    for name, setting in SETTINGS.items():
        file = folder / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(setting))
    server = Server(f"http://127.0.0.1:{_free_port()}", secrets.token_hex(16), root)
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(_command(server), stdout=log, stderr=log, env=_environment(folder), cwd=root)
        try:
            _await_start(server, process, folder / "server.log")
            yield server
        finally:
            with contextlib.suppress(OSError):
                server.get("api/shutdown", "POST")
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(server: Server) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ip=127.0.0.1"),
        *(f"--port={server.url.rpartition(':')[2]}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={server.token}", f"--ServerApp.root_dir={server.root}"),
        # defines window.jupyterapp, with which the tests run commands and query the kernel's state
        *("--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"),
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def _environment(folder: Path) -> dict[str, str]:
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    folders_of_jupyter = {name: str(folder / place) for name, place in folders.items()}
    return os.environ | folders_of_jupyter | warm_python.kernel_spec(folder / "warm", KERNEL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_start(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + HANG_S
    while True:
        try:
            server.get("api/status")
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-3000:]}") from error
            time.sleep(0.1)
        else:
            return


def expect_value(read: Callable[[], object], wanted: object) -> None:
    """Waits until `read()`, which looks at the page or asks the kernel, is `wanted`.

    For what `expect(...)` of Playwright cannot say.  An ``assert`` looks once, and the page may not be so far yet.
    """
    until = time.monotonic() + WAIT_MS / 1000
    while (found := read()) != wanted:
        assert time.monotonic() < until, f"it is {found!r}, not {wanted!r}"
        time.sleep(POLL_S)


class Notebook:
    """A notebook that is open in JupyterLab, or in Notebook 7 if `path` is ``notebooks``."""

    def __init__(self, page: Page, server: Server, name: str, path: str = "lab/tree") -> None:
        self.page = page
        self.server = server
        self.name = name
        self.path = path

    def open(self) -> Notebook:
        """Opens the notebook, in the JupyterLab that the page shows, and waits until its kernel is ready."""
        if self.path == "lab/tree":
            self.command("docmanager:open", path=self.name)
            self.wait_until_current()
        else:
            self.visit()
        return self.wait()

    def wait_until_current(self) -> None:
        self.page.wait_for_function(
            "(name) => window.jupyterapp.shell.currentWidget?.context?.path === name", arg=self.name
        )

    def visit(self) -> Notebook:
        """Loads the page of the notebook, whose kernel may be busy."""
        reset = "reset&" if self.path == "lab/tree" else ""
        self.page.goto(f"{self.server.url}/{self.path}/{self.name}?{reset}token={self.server.token}")
        self.page.wait_for_selector(f"{PANEL} .jp-CodeCell")
        return self

    def wait(self) -> Notebook:
        """Waits until the notebook is open and its kernel ready."""
        self.page.wait_for_selector(f"{PANEL} .jp-CodeCell")
        self.page.wait_for_function(KERNEL_IS_READY, timeout=RUN_MS)
        return self

    @contextlib.contextmanager
    def beside(self, name: str) -> Iterator[Notebook]:
        """Another notebook, in another tab of JupyterLab, or in another page with Notebook 7."""
        if self.path == "lab/tree":
            own = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.id")
            yield Notebook(self.page, self.server, name).open()
            self.page.evaluate("() => window.jupyterapp.shell.currentWidget.dispose()")
            self.page.evaluate("(own) => window.jupyterapp.shell.activateById(own)", own)
            self.wait_until_current()
        else:
            page = self.page.context.new_page()
            yield Notebook(page, self.server, name, self.path).open()
            page.close()

    def command(self, name: str, **arguments: object) -> None:
        command = "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }"
        self.page.evaluate(command, [name, arguments])

    def run_all(self) -> None:
        """Runs all cells, to the end or to the first one that raises, and waits."""
        self.start_all()
        self.page.wait_for_function("() => window.ended", timeout=RUN_MS)
        self.page.wait_for_function(KERNEL_IS_READY, timeout=RUN_MS)

    def start_all(self) -> None:
        """Runs all cells without waiting."""
        self.page.evaluate(
            """() => {
                window.ended = false;
                const end = () => { window.ended = true; };
                window.jupyterapp.commands.execute("notebook:run-all-cells").then(end, end);
            }"""
        )

    def start(self, id_: str) -> None:
        """Runs one cell without waiting; `ended` of the page says whether it has ended."""
        self.page.evaluate(
            """(id) => {
                const { content } = window.jupyterapp.shell.currentWidget;
                content.activeCellIndex = content.widgets.findIndex((cell) => cell.model.id === id);
                content.deselectAll();
                window.ended = false;
                const end = () => { window.ended = true; };
                window.jupyterapp.commands.execute("notebook:run-cell").then(end, end);
            }""",
            id_,
        )

    def run(self, id_: str) -> None:
        """Runs one cell and waits."""
        self.page.evaluate(
            """async (id) => {
                const { content } = window.jupyterapp.shell.currentWidget;
                content.activeCellIndex = content.widgets.findIndex((cell) => cell.model.id === id);
                content.deselectAll();
                await window.jupyterapp.commands.execute("notebook:run-cell");
            }""",
            id_,
        )

    def python(self, expression: str) -> Any:
        """Returns the value of an expression in the kernel."""
        text = self.page.evaluate(EVALUATE, expression)
        assert not text.startswith("!"), text
        return ast.literal_eval(text)

    def expect_python(self, expression: str, value: object) -> None:
        """Waits until an expression has this value: a click reaches the kernel later than a request."""
        expect_value(lambda: self.python(expression), value)

    def cell(self, id_: str) -> dict[str, Any]:
        """Returns the id, execution count and outputs of a cell."""
        cells: list[dict[str, Any]] = self.page.evaluate(CELLS)
        return next(cell for cell in cells if cell["id"] == id_)

    def errors(self) -> list[str]:
        """Returns the exceptions that cells raised."""
        outputs = [output for cell in self.page.evaluate(CELLS) for output in cell["outputs"]]
        return [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]

    def output_text(self, id_: str) -> str:
        """Returns the text that a cell wrote, including its traceback, without colours."""
        outputs = self.cell(id_)["outputs"]
        text = "".join(_text(o) for o in outputs)
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def element(self, id_: str) -> Locator:
        """Returns a cell on the page, once the notebook has it."""
        place = self.page.wait_for_function(PLACE, arg=id_).json_value()
        return self.page.locator(f"{PANEL} .jp-Cell").nth(place - 1)

    def explorer(self, id_: str) -> Explorer:
        """Returns the explorer in the output of a cell, and scrolls to it."""
        root = self.element(id_).locator(".cutaway")
        root.wait_for()
        root.scroll_into_view_if_needed()
        return Explorer(root)


def _text(output: dict[str, Any]) -> str:
    text = output.get("text") or output.get("traceback") or ""
    return text if isinstance(text, str) else "\n".join(text)


@contextlib.contextmanager
def open_report(browser: Browser, report: Path, **options: Any) -> Iterator[Page]:
    """Opens a report in a new browser context, with empty storage; an error on the page fails the test."""
    context = browser.new_context(viewport={"width": 1600, "height": 900}, **options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(report.as_uri())
    yield page
    assert errors == []
    context.close()


class Explorer:
    """An explorer on a page; panes are counted from 0."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.tree = root.locator("[role=tree]")  # hidden where there is one compile, or little room
        self.stages = root.locator(".stages")

    def row(self, text: str) -> Locator:
        """Returns the rows of the tree that contain `text`."""
        return self.tree.get_by_role("treeitem").filter(has_text=text)

    def pane(self, at: int) -> Locator:
        return self.root.locator("section.pane").nth(at)

    def show(self, at: int, kind: str) -> Locator:
        """Chooses what pane `at` shows; the pane must exist."""
        self.pane(at).get_by_label("What this pane shows").select_option(kind)
        return self.pane(at)

    def add_pane(self) -> None:
        self.root.get_by_role("button", name="+ pane").click()

    def line(self, at: int, text: str) -> Locator:
        """Returns the first line in a pane that contains `text`."""
        return self.pane(at).locator(".cm-line").filter(has_text=text).first

    def click_line(self, at: int, text: str) -> None:
        line = self.line(at, text)
        line.evaluate("e => { e.closest('.cm-scroller').scrollLeft = 0 }")  # so that INSIDE is visible
        line.click(position=INSIDE)

    def node(self, at: int, name: str) -> Locator:
        """Returns a node of a drawn graph."""
        operation = f'.node-elements > [aria-label*=", {name} = "]'
        graph_input = f'.node-elements > [aria-label^="{name} "][aria-label*=", input"]'
        return self.pane(at).locator(f"{operation}, {graph_input}")

    def expect_pinned(self, at: int, *lines: str) -> None:
        """Waits until these are the lines of a pane that are pinned or linked to a pinned item."""
        expect_value(lambda: self.pinned_lines(at), list(lines))

    def pinned_lines(self, at: int) -> list[str]:
        found: list[str] = self.pane(at).locator(".cm-line.pin-linked, .cm-line.pinned").evaluate_all(TEXTS)
        return [text.strip() for text in found]

    def expect_pinned_nodes(self, at: int, *names: str) -> None:
        """Waits until nodes of a drawn graph, these among them, are pinned or linked to a pinned item."""
        expect_value(lambda: set(names) - self.pinned_nodes(at), set())

    def pinned_nodes(self, at: int) -> set[str]:
        nodes = self.pane(at).locator(".node-elements > .pin-linked, .node-elements > .pinned")
        labels: list[str] = nodes.evaluate_all("(nodes) => nodes.map((node) => node.ariaLabel ?? '')")
        return {found[1] if (found := re.search(r", (\w+) = ", label)) else label.split()[0] for label in labels}


def line_of(mark: Locator) -> Locator:
    """Returns the line of an editor in which a mark is."""
    return mark.locator("xpath=ancestor::*[contains(@class, 'cm-line')]")
