"""Tries an edited wrapper beside the original, on random inputs like the recorded ones.

Both run in a separate process (`wrapper_run`).  The wrapper is ours, or Inductor's output code, which has its kernels
in its text.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import torch

from compiler_core.records import Artifact, Compile
from compiler_core.tools import replay
from compiler_core.tools.editing import wrapper_run
from compiler_core.tools.editing.kernel_trial import SECONDS, Trial, run_apart, text_change, tolerance

BUILD_SECONDS = 120
"""Further seconds for building Inductor's kernels."""


def is_inductor(text: str) -> bool:
    """Whether a wrapper is Inductor's output code."""
    return "async_compile" in text


def try_wrapper(compile_: Compile, wrapper: Artifact, original: str, text: str) -> Trial:
    """Runs the edited `text` of a wrapper beside `original`.

    Raises:
        UsageError: the record has no text of the kernels that it calls.
    """
    trial = Trial(wrapper.name, change=text_change(original, text))
    direction = wrapper.name.partition(".")[0]
    try:
        compile(text, "<wrapper>", "exec")
    except SyntaxError as error:
        trial.fault = f"it is not Python: line {error.lineno}: {error.msg}"
        return trial
    ours = not is_inductor(original)
    returned = re.findall(r"^ +return [\[(](.*?),?\s*[\])]$", original.partition("def get_args")[0], re.MULTILINE)
    job = {
        "texts": [original, text],
        "kernels": replay.sources(compile_, direction) if ours else None,
        "function": f"run_{direction}" if ours else "call",
        "names": [each.strip() for each in returned[-1].split(",")] if returned else [],
        "seconds": SECONDS if ours else SECONDS + BUILD_SECONDS,
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.json").write_text(json.dumps(job))
        for line in run_apart(["-m", wrapper_run.__name__, folder], trial, "a kernel accesses"):
            _note(trial, line)
    return trial


def _note(trial: Trial, line: dict[str, Any]) -> None:
    if "seconds" in line:
        trial.set_times(line["seconds"])
    if "fault" in line:
        trial.fault = line["fault"] if line.get("which", 1) else f"the original cannot be run alone: {line['fault']}"
    for name, error in line.get("errors", {}).items():
        trial.errors[name] = error
        if error is None or error > tolerance(getattr(torch, line["dtypes"][name])):
            trial.wrong.append(name)
