"""Files that people and sites look for in a repository: the citation, issue templates, the code of conduct."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from kernel_magics.command.main import parser
from tests.docs.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["abstract"] == PROJECT["description"]


@pytest.mark.parametrize("file", ["package.json", "package-lock.json"])
def test_the_browser_part_has_the_version_of_the_package(file: str) -> None:
    assert json.loads((ROOT / "extension" / file).read_text())["version"] == PROJECT["version"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates_are_forms(template: Path) -> None:
    form = yaml.safe_load(template.read_text())
    assert form["name"]
    assert form["description"]
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert all(each["attributes"]["label"] for each in fields)
    assert len({each["id"] for each in fields}) == len(fields)


def test_a_bug_report_asks_for_the_doctor_s_output() -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE/bug_report.yml").read_text()
    (command,) = set(re.findall(r"cutaway (\w+)", text))
    assert command == "doctor"
    assert parser().parse_args([command])


def test_the_code_of_conduct_names_its_source_and_where_to_report() -> None:
    text = (ROOT / "CODE_OF_CONDUCT.md").read_text()
    assert "Contributor Covenant, version 2.1" in text
    assert "SECURITY.md#reporting" in text
    assert "\n## Reporting\n" in (ROOT / "SECURITY.md").read_text()


def test_workflows_pin_actions_to_commits() -> None:
    used = re.findall(r"uses: (.*)", "".join(file.read_text() for file in (ROOT / ".github/workflows").glob("*.yml")))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", each)] == []


def test_the_readme_installs_the_wheel_of_this_version() -> None:
    wheels = re.findall(r"cutaway-[\w.]+-py3-none-any\.whl", (ROOT / "README.md").read_text())
    assert set(wheels) == {f"cutaway-{PROJECT['version']}-py3-none-any.whl"}


def test_files_of_test_runs_are_not_in_the_repository() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("this is not a checkout")
    assert [name for name in tracked.stdout.split("\0") if not re.fullmatch(r"[\w./-]*", name, re.ASCII)] == []
