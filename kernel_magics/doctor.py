"""Says what works here, and how to fix what does not: ``cutaway doctor`` or ``python -m kernel_magics.doctor``.

The checks of `compiler_core.tools.check`, then those of the notebook: packages, the core engine on these versions, the
explorer's browser code, JupyterLab's extensions, and the kernel that notebooks start.  With ``--json`` the findings
are one line of JSON.  The exit status is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_core.errors import BuildError
from compiler_core.tools import check
from compiler_core.tools.check import Finding

LAB_EXTENSIONS = {
    "cutaway": "marks beside the lines of cells, Panel",
    "anywidget": "explorers",
    "@jupyter-widgets/jupyterlab-manager": "explorers",
}
"""Extensions of JupyterLab that notebooks need, with what is missing without them."""
LAB_PACKAGES = {"@jupyter-widgets/jupyterlab-manager": "jupyterlab_widgets"}
"""The packages of those that have another name."""
INSTALL_AGAIN = "pip install --force-reinstall --no-deps"
CHECKED_BEFORE = ("torch", "triton")


def findings() -> Iterator[Finding]:
    """Runs all checks in order and yields what they find.

    Example::

        for each in findings():
            print(each.check, each.state, each.text, each.remedy)
    """
    notebook = (_packages, _core_engine, _browser_code, _lab_extensions, _lab_program, _kernel)
    return itertools.chain(check.findings(), check.run_checks(notebook))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the findings; returns the exit status, 1 if there is a problem."""
    parser = argparse.ArgumentParser("python -m kernel_magics.doctor", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, in one line")
    return run(parser.parse_args(arguments).json)


def run(as_json: bool = False) -> int:
    """Prints the findings as text or JSON; returns the exit status."""
    if not as_json:
        return check.print_findings(findings())
    found = list(findings())
    problems = sum(each.state == "PROBLEM" for each in found)
    sys.stdout.write(f"{json.dumps({'problems': problems, 'findings': [each._asdict() for each in found]})}\n")
    return 1 if problems else 0


def _packages() -> Iterator[Finding]:
    return check.packages(lambda name: name not in CHECKED_BEFORE)


def _core_engine() -> Iterator[Finding]:
    from kernel_magics.startup import version_trial

    if reason := version_trial.core_engine_problem():
        yield Finding(
            "PROBLEM",
            f"the core engine does not work with {version_trial.untested_versions()}: {reason}",
            f"use PyTorch {version_trial.TESTED_TORCH[-1]}, or %%compile --engine torch",
        )
    else:
        yield Finding(
            "ok", version_trial.version_notice() or f"core engine: tested with {version_trial.tested_versions()}"
        )


def _browser_code() -> Iterator[Finding]:
    from kernel_magics.display.assets import asset

    try:
        files = [asset(name) for name in ("explorer.js", "explorer.css")]
    except BuildError as error:
        yield Finding("PROBLEM", str(error).partition(": ")[0], _install_again(check.DISTRIBUTION))
    else:
        yield Finding("ok", f"explorer: {files[0].parent}, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")


def _lab_extensions() -> Iterator[Finding]:
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_federated_extensions, get_page_config

    folders = jupyter_path("labextensions")
    installed = get_federated_extensions(folders)
    disabled = set(get_page_config(folders).get("disabledExtensions", ()))
    for name, needed_for in LAB_EXTENSIONS.items():
        package = LAB_PACKAGES.get(name, name)
        shown = f"JupyterLab's extension {name} ({needed_for})"
        if name not in installed:
            yield Finding("PROBLEM", f"{shown} is not installed", _install_again(package))
        elif name in disabled:
            yield Finding("PROBLEM", f"{shown} is disabled", f"jupyter labextension enable {name}")
        elif name == check.DISTRIBUTION and (version := installed[name]["version"]) != _version(name):
            yield Finding(
                "PROBLEM",
                f"{shown} is of version {version}, but the package of {_version(name)}",
                f"remove {installed[name]['ext_path']}, then {_install_again(package)}",
            )
        else:
            yield Finding("ok", f"{shown}: {installed[name]['version']}")


def _lab_program() -> Iterator[Finding]:
    found = shutil.which("jupyter-lab")
    ours = Path(sys.executable).parent
    if found and Path(found).parent.resolve() != ours.resolve():
        yield Finding(
            "note",
            f"the command jupyter-lab is another environment's: {found}",
            f"start JupyterLab with `{sys.executable} -m jupyterlab`, or install cutaway there too",
        )


def _kernel() -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    remedy = f"{sys.executable} -m ipykernel install --sys-prefix"
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Finding("PROBLEM", "Jupyter has no kernel python3", remedy)
        return
    is_other = Path(program).is_absolute() and Path(program).parent.resolve() != Path(sys.executable).parent.resolve()
    if is_other:  # Jupyter takes a program without a folder from its own environment
        yield Finding("note", f"Jupyter's kernel python3 runs another Python: {program}", remedy)
    else:
        yield Finding("ok", f"Jupyter's kernel python3 runs {program}")


def _install_again(package: str) -> str:
    """Returns how to install a package again; Cutaway from its own wheel, since an index may have another package."""
    if package == check.DISTRIBUTION and (Path(__file__).parents[1] / "extension").is_dir():
        return "run `make lab` in the clone"
    return f"{INSTALL_AGAIN} {'cutaway-VERSION-py3-none-any.whl' if package == check.DISTRIBUTION else package}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
