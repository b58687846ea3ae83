"""The command `cutaway doctor`: each fault of a notebook is found, with its remedy."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import jupyter_client.kernelspec  # noqa: F401  # before a fixture replaces what it takes from jupyter_core
import jupyter_core.paths
import jupyterlab_server.config  # noqa: F401
import pytest
import torch

from compiler_core.tools import check
from compiler_core.tools.check import Finding
from kernel_magics import doctor
from kernel_magics.command.main import main
from kernel_magics.display import assets
from kernel_magics.startup import version_trial
from tests import warm_python

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ROOT / "docs/faults.md").read_text()


def only(found: Iterator[Finding]) -> Finding:
    """Returns the one finding that is not ok."""
    (found_one,) = [each for each in found if each.state != "ok"]
    return found_one


def words(text: str) -> str:
    """Returns words that a message must have; docs/faults.md lists them."""
    assert text in DOCUMENTED
    return text


def doctored(*arguments: str, **environment: str) -> tuple[int, str]:
    done = warm_python.run(["-m", "kernel_magics.doctor", *arguments], env=os.environ | environment)
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_machine_without_faults(tmp_path: Path) -> None:
    status, output = doctored(CUTAWAY_CACHE_DIR=str(tmp_path))
    assert status == 0, output
    assert output.endswith("no problems\n")
    tested = f"core engine: tested with {version_trial.tested_versions()}"  # each, not the pair
    assert f"ok      {tested}" in output
    for shown in ("Python 3", "torch 2", "ipykernel", "ipywidgets", "jupyterlab", "explorer", "extension anywidget"):
        assert f"ok      {shown}" in output or f"ok      JupyterLab's {shown}" in output, shown


def test_json_has_the_same_findings_and_the_exit_status(tmp_path: Path) -> None:
    status, output = doctored("--json", CUTAWAY_CACHE_DIR=str(tmp_path), CXX="/bin/false")
    (line,) = output.splitlines()
    result = json.loads(line)
    assert status == result["problems"] == 1
    (problem,) = [each for each in result["findings"] if each["state"] == "PROBLEM"]
    assert problem["check"] == "compiler"
    assert "/bin/false" in problem["text"]
    assert "CXX" in problem["remedy"]
    names = {each["check"] for each in result["findings"]}
    assert {"versions", "cache", "gpu", "packages", "browser_code", "lab_extensions", "kernel"} <= names


def test_the_command_runs_the_same_checks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Finding("PROBLEM", "no tea", "make some", "tea")
    monkeypatch.setattr(doctor, "findings", lambda: iter([problem]))
    assert main(["doctor"]) == doctor.main([]) == 1
    assert capsys.readouterr().out == 2 * "PROBLEM no tea\n        -> make some\nproblems: 1\n"
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"problems": 1, "findings": [problem._asdict()]}


def test_without_pytorch_the_other_checks_still_run(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "CUTAWAY_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "kernel_magics.doctor", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)["findings"]
    assert any("PyTorch cannot be imported: libtorch.so" in each["text"] for each in found)
    assert any(each["check"] == "lab_extensions" and each["state"] == "ok" for each in found)


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.2.9", "5.0.1", None])
def test_packages_of_other_versions(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version

    def other(name: str) -> str:
        if name == "jupyterlab" and version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version if name == "jupyterlab" and version else installed(name)

    monkeypatch.setattr(importlib.metadata, "version", other)
    finding = only(check.run_checks([doctor._packages]))
    assert (finding.state, finding.check) == ("PROBLEM", "packages")
    assert words("Cutaway needs" if version else "is not installed") in finding.text
    assert finding.remedy == 'pip install "jupyterlab<5,>=4.3"'


@pytest.mark.parametrize("version", ["3.10.14", "3.15.0"])
def test_another_python(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "python_version", lambda: version)
    assert f"Python {version}: Cutaway needs" in only(check._versions()).text


def test_versions_with_which_the_core_engine_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_trial, "versions", lambda: ("3.11.7", "9.9.1"))
    monkeypatch.setattr(version_trial, "core_engine_problem", lambda: "no opcode")
    finding = only(doctor._core_engine())
    assert finding.text == "the core engine does not work with PyTorch 9.9.1: no opcode"
    assert "--engine torch" in finding.remedy


def test_a_gpu_that_pytorch_cannot_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def is_available() -> bool:
        warnings.warn("the driver is too old\nsee the manual", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(check, "DRIVERS", (tmp_path / "no",))
    assert "no GPU" in only(check._gpu()).text
    monkeypatch.setattr(check, "DRIVERS", (tmp_path,))
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert "built for CPUs only" in only(check._gpu()).text
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    finding = only(check._gpu())
    assert finding.text == "PyTorch cannot use the GPU: the driver is too old"
    assert "CUDA_VISIBLE_DEVICES" in finding.remedy


# ---- the browser ---------------------------------------------------------------------------------


def test_no_browser_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "STATIC", tmp_path)
    finding = only(doctor._browser_code())
    assert words("is not built") in finding.text
    assert "make lab" in finding.remedy
    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "kernel_magics/doctor.py"))  # as a wheel installs it
    assert only(doctor._browser_code()).remedy.startswith(f"{doctor.INSTALL_AGAIN} cutaway-")


def test_a_check_that_cannot_run_says_why() -> None:
    def _shapes() -> Iterator[Finding]:
        import a_module_that_is_missing  # type: ignore[import-not-found]  # noqa: F401

        yield Finding("ok", "")

    def _tea() -> Iterator[Finding]:
        yield Finding("ok", "green")
        raise KeyError("pot")

    found = list(check.run_checks([_shapes, _tea]))
    assert [(each.check, each.state) for each in found] == [("shapes", "PROBLEM"), ("tea", "ok"), ("tea", "PROBLEM")]
    assert found[0].remedy == "pip install a_module_that_is_missing"
    assert found[2].text == "tea: not checked (KeyError: 'pot')"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes folders of JupyterLab that have these extensions, and only those."""
    monkeypatch.setattr(jupyter_core.paths, "jupyter_path", lambda *_: [str(tmp_path / "labextensions")])
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))

    def make(**versions: str) -> None:
        for name in doctor.LAB_EXTENSIONS:
            folder = tmp_path / "labextensions" / name
            folder.mkdir(parents=True)
            version = versions.get(name, importlib.metadata.version(doctor.LAB_PACKAGES.get(name, name)))
            data = {"name": name, "version": version, "jupyterlab": {"_build": {"load": "static/x.js"}}}
            if version:
                (folder / "package.json").write_text(json.dumps(data))

    return make


@pytest.mark.parametrize("name", doctor.LAB_EXTENSIONS)
def test_a_missing_lab_extension(
    name: str, lab: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab(**{name: ""})
    monkeypatch.setattr(doctor, "__file__", str(tmp_path / "kernel_magics/doctor.py"))  # as a wheel installs it
    finding = only(doctor._lab_extensions())
    assert f"extension {name} " in finding.text
    assert words("is not installed") in finding.text
    assert finding.remedy.startswith(f"{doctor.INSTALL_AGAIN} {doctor.LAB_PACKAGES.get(name, name)}")


def test_a_disabled_lab_extension(lab: Callable[..., None], tmp_path: Path) -> None:
    lab()
    page = tmp_path / "config/labconfig/page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text('{"disabledExtensions": {"cutaway": true}}')
    finding = only(doctor._lab_extensions())
    assert words("is disabled") in finding.text
    assert finding.remedy == f"{words('jupyter labextension enable')} cutaway"


def test_a_lab_extension_of_another_version(lab: Callable[..., None]) -> None:
    lab(cutaway="0.0.1")
    finding = only(doctor._lab_extensions())
    assert finding.state == "PROBLEM"
    assert f"{words('is of version')} 0.0.1" in finding.text


def test_jupyterlab_of_another_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "jupyter-lab"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = only(doctor._lab_program())
    assert words("is another environment's") in finding.text
    assert "-m jupyterlab" in finding.remedy


def test_a_kernel_that_runs_another_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = tmp_path / "kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [f"{tmp_path}/python", "-m", "ipykernel"], "display_name": "", "language": ""}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    finding = only(doctor._kernel())
    assert words("runs another Python") in finding.text
    assert words("ipykernel install --sys-prefix") in finding.remedy
