"""Licence notices: each bundled package has one, in the bundle, in NOTICES.txt and in the wheel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "extension/node_modules"
STATIC = ROOT / "kernel_magics/static"
NOT_BUNDLED = "@lumino/"
"""JupyterLab provides these packages to extensions."""

pytestmark = pytest.mark.skipif(not PACKAGES.is_dir(), reason="the npm packages of the extension are not installed")


def bundled() -> dict[str, str]:
    """Returns every package that the explorer depends on at run time, with its version."""
    found: dict[str, str] = {}
    work = list(json.loads((ROOT / "extension/package.json").read_text())["dependencies"])
    while work:
        name = work.pop()
        if name not in found and not name.startswith(NOT_BUNDLED):
            package = json.loads((PACKAGES / name / "package.json").read_text())
            found[name] = package["version"]
            work += package.get("dependencies", {})
    return found


def notices() -> dict[str, str]:
    """Returns the notice of each package, by name and version."""
    parts = (STATIC / "NOTICES.txt").read_text().split("-" * 80)[1:]
    return {part.strip().partition("\n")[0]: part.strip().partition("\n")[2].strip() for part in parts}


def test_every_package_in_the_bundle_has_a_notice() -> None:
    found = notices()
    assert {f"{name} {version}" for name, version in bundled().items()} == set(found)
    for name, text in found.items():
        assert "Copyright" in text, name
        assert any(words in text for words in ("Permission is hereby granted", "Redistribution and use")), name


def test_the_libraries_compiled_into_graphviz_are_named() -> None:
    build = json.loads((PACKAGES / "@viz-js/viz/lib/provenance.json").read_text())["predicate"]["buildDefinition"]
    sources = [each["uri"] for each in build["resolvedDependencies"]]
    text = (ROOT / "extension/notices/viz-js.txt").read_text()
    for source in sources:
        if "emsdk" in source:
            version = re.search(r"emsdk@([\d.]+)", source)
            assert version is not None
            assert f"Emscripten {version[1]}" in text
        else:
            name = Path(source).name.removesuffix(".tar.gz").replace("-", " ").capitalize()
            assert name in text
    assert next(s for s in sources if "graphviz" in s) in text  # the licence requires the source's address


def test_the_notices_are_in_the_bundle() -> None:
    script = (STATIC / "explorer.js").read_text()
    text = (STATIC / "NOTICES.txt").read_text()
    assert script.startswith(f"/*!\n{text}*/\n")


def test_the_notices_are_in_the_wheel(tmp_path: Path) -> None:
    if not (ROOT / "extension/labextension/package.json").is_file():
        pytest.skip("the extension is not built")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "kernel_magics/static/NOTICES.txt" in names
    assert any(name.endswith("labextensions/cutaway/static/NOTICES.txt") for name in names)
