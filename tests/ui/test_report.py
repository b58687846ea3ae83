"""The HTML report: one file, opened from disk, without a kernel and without network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, Route, expect

import kernel_magics
from compiler_core.api import compile as api
from compiler_core.tools import recording
from kernel_magics.display.assets import asset
from kernel_magics.display.packing import pack
from kernel_magics.display.report import write_report
from tests.sampling import sample
from tests.ui.drive import Explorer, expect_value

Screenshot = Callable[[Page, str], None]


def function(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"].cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * inputs["y"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = api.compile(function)
    with recording.record("the report's test") as record:
        for size in (10, 8):
            compiled({name: torch.randn(size, requires_grad=True) for name in "xy"}).sum().backward()
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(params=sample(["light", "dark"], 2))
def report_page(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[tuple[Page, list[str]]]:
    """The report's page, and the list of errors on it and requests to the network."""
    context = browser.new_context(viewport={"width": 1600, "height": 900}, color_scheme=request.param)
    errors: list[str] = []

    def refuse(route: Route) -> None:
        if route.request.url == report.as_uri():
            route.continue_()
        else:
            errors.append(f"asked for {route.request.url}")
            route.abort()

    context.route(re.compile("^(?!blob:|data:)"), refuse)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(report.as_uri())
    yield page, errors
    context.close()


def test_the_report_works_offline(
    report_page: tuple[Page, list[str]], screenshot: Screenshot, request: pytest.FixtureRequest
) -> None:
    page, errors = report_page
    explorer = Explorer(page.locator(".cutaway"))
    expect(explorer.tree).to_contain_text("not reached")
    explorer.node(1, "mean").click()
    expect(explorer.line(0, "x.mean()")).to_have_class(re.compile("pin-linked"))
    explorer.add_pane()
    explorer.show(2, "kernel")
    explorer.click_line(0, ".cos().cos()")
    expect(explorer.line(2, "::cosf(v0)")).to_have_class(re.compile("pin-linked"))
    screenshot(page, f"report_{request.node.callspec.id}")
    page.keyboard.press("Escape")
    expect(page.locator(".pinned, .pin-linked")).to_have_count(0)
    assert errors == []


# As marimo shows widgets: in a shadow root, with the styles in it.
IN_SHADOW_ROOT = """async ([script, css, record]) => {
    const root = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
    const style = root.appendChild(document.createElement("style"));
    style.textContent = css;
    const host = root.appendChild(document.createElement("div"));
    const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    module.open(host, record);
}"""


def test_texts_have_their_styles_in_a_shadow_root(browser: Browser) -> None:
    with recording.record("shadow") as record:
        api.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
    page = browser.new_page()
    script, css = (asset(name).read_text("utf-8") for name in ("explorer.js", "explorer.css"))
    page.evaluate(IN_SHADOW_ROOT, [script, css, pack(record)])
    scroller = page.locator(".cutaway .cm-scroller").first
    expect(scroller).to_have_css("display", "flex")  # set by CodeMirror's own styles
    page.close()


# The page of a viewer that knows anywidget and nothing else of ours, such as VS Code or Colab: its model has only the
# traits that the kernel has sent.
IN_ANYWIDGET = """async ([script, css, state]) => {
    document.head.appendChild(document.createElement("style")).textContent = css;
    const listeners = {};
    window.sent = [];
    const model = {
        get: (name) => state[name],
        set: (name, value) => { state[name] = value; (listeners[`change:${name}`] ?? []).forEach((each) => each()); },
        save_changes: () => window.sent.push(structuredClone({ selection: state.selection })),
        send: (message) => window.sent.push(message),
        on: (event, listener) => { (listeners[event] ??= []).push(listener); },
        off: (event, listener) => { listeners[event] = (listeners[event] ?? []).filter((each) => each !== listener); },
    };
    const host = document.body.appendChild(document.createElement("div"));
    const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    window.end = await module.default.render({ model, el: host, experimental: {} });
}"""


def test_the_widget_needs_nothing_of_jupyterlab(browser: Browser) -> None:
    with recording.record("a widget") as record:
        api.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
    explorer = kernel_magics.Explorer(record)
    state = {name: value for name, value in explorer.get_state().items() if not name.startswith("_")}
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.evaluate(IN_ANYWIDGET, [explorer._esm, explorer._css, json.loads(json.dumps(state, default=str))])
    shown = Explorer(page.locator(".cutaway"))
    shown.click_line(0, "x.cos()")
    expect_value(lambda: page.evaluate("window.sent.at(-1)?.selection?.length"), 1)
    page.evaluate("window.end()")
    expect(shown.root).to_have_count(0)
    assert errors == []
    page.close()
