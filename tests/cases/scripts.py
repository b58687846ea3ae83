"""Small scripts that tests run from their text."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

import torch


def namespace_of(script: str, filename: str, module: str = "script", **names: Any) -> dict[str, Any]:
    """Runs a script with ``torch`` and other `names`, as a module with the seed 0; returns its namespace."""
    linecache.cache[filename] = (len(script), None, script.splitlines(keepends=True), filename)
    made = types.ModuleType(module)
    sys.modules[module] = made  # dataclasses look there
    space: dict[str, Any] = vars(made)
    space.update(torch=torch, **names)
    torch.manual_seed(0)
    exec(compile(script, filename, "exec"), space)
    return space
