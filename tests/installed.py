"""Checks an installed wheel:  python tests/installed.py, with the Python of an environment that has only the wheel."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import torch

import compiler_core
import kernel_magics


def main() -> None:
    for package in (compiler_core, kernel_magics):
        folder = Path(str(package.__file__)).parent
        assert "site-packages" in folder.parts, f"{folder} is not an installed package"
        assert (folder / "py.typed").exists()
    files = {str(file) for file in importlib.metadata.files("cutaway") or ()}
    for wanted in ("kernel_magics/static/explorer.js", "kernel_magics/static/NOTICES.txt"):
        assert wanted in files, f"the wheel has no {wanted}"
    assert "kernel_magics/notebooks/workshop/01_frames.ipynb" in files
    assert any(f.endswith("share/jupyter/labextensions/cutaway/package.json") for f in files)
    subprocess.run([Path(sys.prefix) / "bin" / "cutaway", "--help"], check=True, stdout=subprocess.DEVNULL)
    x = torch.randn(100, requires_grad=True)
    with compiler_core.record() as record:
        result = compiler_core.compile(lambda x: (x.sin() * 2).sum(), strict=True)(x)
    result.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert [c.outcome for c in record.compiles] == ["compiled"]
    print(f"cutaway {importlib.metadata.version('cutaway')} works in {sys.prefix}")


if __name__ == "__main__":
    main()
