"""Source that writes the new values of mutated inputs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.autograd.joint import InputMutation, JointGraph, output_nodes
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source.lines import SourceLines
from compiler_core.codegen.wrapper.values import tuple_text


def write_input(lines: SourceLines, depth: int, joint: JointGraph, mutation: InputMutation) -> None:
    """Writes the new value of one input to it."""
    target, value = _target(joint, mutation), joint.outputs[mutation.output]
    resize = f".resize_({value}.shape)" if mutation.resized else ""
    lines.add(depth, f"{target}{resize}.copy_({value})")


def write_inputs(lines: SourceLines, depth: int, parts: Partitioned, mutations: Sequence[InputMutation]) -> None:
    """Writes the new values of several inputs, those of one dtype and device in one call: a network with batch norm
    has some sixty."""
    joint, nodes = parts.joint, output_nodes(parts.forward.graph)
    groups: dict[Any, list[InputMutation]] = {}
    for mutation in mutations:
        value = nodes[mutation.output].meta["val"]
        separate = mutation.primal if mutation.resized else None
        groups.setdefault((value.dtype, value.device, separate), []).append(mutation)
    for group in groups.values():
        if len(group) == 1:
            write_input(lines, depth, joint, group[0])
        else:
            targets = ", ".join(_target(joint, m) for m in group)
            values = ", ".join(joint.outputs[m.output] for m in group)
            lines.add(depth, f"torch._foreach_copy_([{targets}], [{values}])")


def count_kernel_writes(
    lines: SourceLines, depth: int, joint: JointGraph, mutations: Sequence[InputMutation], written: Sequence[str]
) -> list[InputMutation]:
    """Counts the writes of kernels to the inputs `written` in their versions; returns the other mutations."""
    done = [m for m in mutations if joint.primals[m.primal] in written]
    if counted := [m for m in done if not m.uncounted]:
        names = tuple_text(joint.primals[m.primal] for m in counted)
        lines.add(depth, f"torch.autograd.graph.increment_version({names})  # kernels wrote to them")
    return [m for m in mutations if m not in done]


def _target(joint: JointGraph, mutation: InputMutation) -> str:
    """Returns what is written to: writes to ``.data`` are not counted in the version."""
    name = joint.primals[mutation.primal]
    return f"{name}.data" if mutation.uncounted else name
