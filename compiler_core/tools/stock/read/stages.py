"""Maps the names of PyTorch's timed phases to the record's stages."""

from __future__ import annotations

from compiler_core.records import Stage

_STAGE_BY_PREFIX: dict[str, Stage] = {
    "entire_frame_compile": "capture",
    "compile_attempt": "capture",
    "bytecode_tracing": "capture",
    "build_guards": "guards",
    "gc": "guards",
    "aot_": "joint",
    "create_aot_dispatcher_function": "joint",
    "_recursive_joint_graph_passes": "joint",
    "pass.joint": "joint",
    "autograd_cache": "joint",
    "min_cut_rematerialization_partition": "partition",
    "_recursive_p": "lower",
    "pass.": "lower",
    "GraphLowering.run": "lower",
    "additional_fake_tensor_prop": "lower",
    "Scheduler.__init__": "fuse",
    "Scheduler.fused_nodes": "fuse",
    "GraphLowering.c": "codegen",
    "Scheduler.codegen": "codegen",
    "PythonWrapperCodegen": "codegen",
    "code_gen": "codegen",
    "fx_codegen": "codegen",
    "async_compile": "build",
    "compile_file": "build",
    "PyCodeCache": "build",
    "Triton": "build",
    "inductor_codecache": "build",
    "fx_graph_cache": "build",
}


def stage_of(name: str) -> Stage:
    """Returns the stage of the longest known prefix of `name`; ``backend`` for an unknown phase."""
    known = [prefix for prefix in _STAGE_BY_PREFIX if name.startswith(prefix)]
    return _STAGE_BY_PREFIX[max(known, key=len)] if known else "backend"
