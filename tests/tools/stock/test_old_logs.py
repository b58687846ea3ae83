"""A log as PyTorch 2.6 wrote it: stacks without the text of lines, one event of the profiler an entry."""

from __future__ import annotations

import json
from pathlib import Path

from compiler_core import read_logs

IDS = {"compiled_autograd_id": None, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_
        \n         # File: /data/model.py:3 in forward, code: return x.sin()
        sin: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None
        return (sin,)
        """
GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # _dynamo/output_graph.py:493 in init
| +- GLOBAL_STATE: ___check_global_state()
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x', framelocals_idx=0)
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, torch.float32, device=None, size=[4], stride=[1])  # return x.sin()  # model.py:3 in forward
"""  # noqa: E501


def entry(event: dict[str, object], payload: str | None = None, line: int = 22) -> str:
    head = f"V1206 15:24:45.403000 1667746 torch/_dynamo/utils.py:{line}] "
    if payload is None:
        return head + json.dumps(event) + "\n"
    text = payload.replace("\n", "\n\t")
    return head + json.dumps({**event, "has_payload": "d89a3716f835eda9884b375881c8c021"}) + f"\n\t{text}\n"


def phase(name: str, kind: str, microseconds: float) -> str:
    event = {"name": name, "ts": 1733527485402945.8 + microseconds, "args": {"compile_id": "0/0"}, "ph": kind,
             "cat": "dynamo_timed", "tid": 0, "pid": 0}  # fmt: skip
    return entry({"chromium_event": {}, **IDS}, json.dumps(event, indent=0), 1288)


def test_a_log_of_an_early_version_is_read(tmp_path: Path) -> None:
    stack = [{"line": 3, "name": "forward", "filename": 0}]
    parts = [
        phase("dynamo", "B", 0),
        entry({"str": ["/data/model.py", 0]}),
        entry({"dynamo_start": {"stack": stack}, **IDS}),
        phase("entire_frame_compile", "B", 10),
        entry({"dynamo_output_graph": {"sizes": {"l_x_": [4], "sin": [4]}}, **IDS}, GRAPH),
        entry({"dynamo_cpp_guards_str": {}, **IDS}, GUARDS),
        phase("entire_frame_compile", "E", 500_000),
        entry({"compilation_metrics": {"compile_id": "0/0", "co_name": "forward", "co_filename": "/data/model.py",
                                       "co_firstlineno": 2, "fail_type": None, "graph_op_count": 1}, **IDS}),
        phase("dynamo", "E", 500_010),
    ]  # fmt: skip
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_text("".join(parts))
    (record,) = read_logs(tmp_path)
    (compile_,) = record.compiles
    assert (record.title, record.notes, compile_.failures) == ("rank 0", [], [])
    assert (record.frames[0].name, record.frames[0].line, compile_.outcome) == ("forward", 3, "compiled")
    graph = compile_.find("captured").graph
    assert graph is not None
    assert [node.target for node in graph.nodes if node.op.startswith("call_")] == ["sin"]
    assert [guard.source for guard in compile_.guards if guard.kind == "TENSOR_MATCH"] == ["L['x']"]
    assert (
        record.text(next(edge.sources[0] for edge in compile_.edges if edge.made.endswith("#sin"))) == "return x.sin()"
    )
    assert compile_.duration_ns >= 490_000_000
