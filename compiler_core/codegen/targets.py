"""The devices for which kernels can be compiled to machine code without having one."""

from __future__ import annotations

from compiler_core.errors import UsageError

CPU_TARGETS = {"cpu": "native", **{level: level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}}
"""The CPU targets, and their names in C++ compilers."""
WARP_SIZES = {
    **dict.fromkeys(("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"), 32),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), 64),
    **dict.fromkeys(("gfx1100", "gfx1201"), 32),
}
"""The GPU targets, and the number of threads in a warp of each."""


def targets() -> list[str]:
    """Returns the names of all targets."""
    return [*CPU_TARGETS, *WARP_SIZES]


def check_target(target: str) -> None:
    """Raises UsageError if `target` is not one of `targets()`."""
    if target not in targets():
        raise UsageError(f"unknown target {target!r}; the targets are {', '.join(targets())}")
