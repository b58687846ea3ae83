"""Tests of runs: consecutive C++ kernels that one C function calls, and where their buffers lie."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import compiler_core
from compiler_core.codegen.wrapper import runs
from compiler_core.codegen.wrapper.runs import MAX_MORE_BYTES, MAX_STACK_BYTES
from compiler_core.records import Compile
from compiler_core.tools import replay
from tests.cases.kernel_programs import check, compiled
from tests.sampling import pairs

X = torch.randn(64, 64)


def rows_and_columns(x: torch.Tensor) -> torch.Tensor:
    for dim in (0, 1, 0, 1, 0):
        x = x.softmax(dim).cumsum(1 - dim)
    return x


def calls(compile_: Compile, name: str = "forward.launch") -> list[str]:
    """Returns the kernels and runs that a wrapper calls."""
    return re.findall(r"\b(forward_\d\w*)\(", compile_.find(name).text)


def places(compile_: Compile) -> dict[str, tuple[str, int]]:
    """Returns the memory and the first byte of each buffer within a run, from the text of the kernels."""
    lines = re.findall(r"\* const tmp_(\w+) = .*\(char\*\)(\w+) \+ (\d+)\);", compile_.find("forward.cpp").text)
    return {name: (re.sub(r"^out_", "", of), int(offset)) for name, of, offset in lines}


def step_of_first_store(compile_: Compile, result: str) -> int:
    text = re.split(r'(?=^extern "C" \w+ forward_\d+_to_)', compile_.find("forward.cpp").text, flags=re.MULTILINE)
    called = re.findall(rf"^  (?:if \()?(\w+)\(.*\bout_{result}\b.*;$", "".join(text[1:]), re.MULTILINE)
    return min(int(kernel.key.partition(".")[2]) for kernel in compile_.kernels if kernel.name in called)


def assert_apart(compile_: Compile) -> None:
    """Asserts that buffers that are in use at the same time do not overlap, and are where the record says."""
    (plan,) = compile_.memory
    buffers = {b.name: b for b in plan.buffers}
    found = places(compile_)
    assert {n: of for n, (of, _) in found.items()} == {b.name: b.within for b in plan.buffers if b.within}
    for name, (of, offset) in found.items():
        assert offset % 64 == 0
        one = buffers[name]
        assert offset + one.bytes <= buffers[of].bytes
        assert one.last is not None
        if not of.endswith("_workspace"):
            assert one.last < step_of_first_store(compile_, of), "what lies in a result is dead when that is written"
        for other, (other_of, start) in found.items():
            two = buffers[other]
            assert two.last is not None
            if other != name and other_of == of and one.first <= two.last and two.first <= one.last:
                assert offset + one.bytes <= start or start + two.bytes <= offset, (name, other)


def test_a_program_is_one_call() -> None:
    compile_ = check(rows_and_columns, X)
    kernels = [kernel.name for kernel in compile_.kernels]
    assert len(kernels) > 4
    assert calls(compile_) == [f"{kernels[0]}_to_{len(kernels) - 1}"]
    assert calls(compile_, "forward.wrapper") == kernels, "the wrapper for tools has each kernel"
    assert_apart(compile_)
    assert compile_.find("forward.launch").text.count(" = empty") == 2, "the result and the workspace"


def test_small_workspaces_are_on_the_stack() -> None:
    compile_ = check(rows_and_columns, X[:16, :16].contiguous())
    assert "alignas(64) char forward_0_to_" in compile_.find("forward.cpp").text
    assert compile_.find("forward.launch").text.count(" = empty") == 1
    assert_apart(compile_)


def test_what_lies_in_a_result_is_not_longer() -> None:
    """Both take one line of 64 bytes, but the memory of the result ends with its last element."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return rows_and_columns(x)[:, 1:].softmax(1).cumsum(0).contiguous()

    compile_ = check(program, X[:3, :4].contiguous())
    assert len(calls(compile_)) == 1
    assert_apart(compile_)


def test_results_own_their_memory_and_no_more() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = x.softmax(0).cumsum(1)
        second = first.softmax(1).cumsum(0)
        return first, second, second.sum(0)

    run, compile_ = compiled(program, X)
    assert len(calls(compile_)) == 1
    results = run([X])
    assert [t.untyped_storage().nbytes() for t in results] == [t.nbytes for t in results]
    assert len({t.untyped_storage().data_ptr() for t in results}) == len(results)
    kept = [t.clone() for t in results]
    run([-X])
    assert all(map(torch.equal, results, kept))


def test_what_pytorch_computes_divides_runs() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.softmax(0).cumsum(1)
        x = (x @ x).sort(0).values
        return x.softmax(1).cumsum(0).softmax(0).cumsum(1)

    compile_ = check(program, X, tolerances=[1e-4])
    assert len([name for name in calls(compile_) if "_to_" in name]) == 2


@pytest.mark.parametrize("sizes", ["symbolic", "long"])
def test_kernels_that_stay_by_themselves(sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of symbolic sizes, and those that would take long together: an interrupt waits for a run."""
    if sizes == "long":
        monkeypatch.setattr(runs, "MAX_OPERATIONS", 1)
    with compiler_core.record() as record:
        run = compiler_core.compile(rows_and_columns, dynamic=sizes == "symbolic", backend="cpp", strict=True)
        torch.testing.assert_close(run(X), rows_and_columns(X))
    names = [artifact.name for artifact in record.artifacts]
    assert "forward.wrapper" in names
    assert "forward.launch" not in names


def test_an_index_out_of_range_is_eagers_error() -> None:
    def program(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)[rows].cumsum(1).softmax(0)

    rows = torch.tensor([1, 2, 70])
    run = compiler_core.compile(program, backend="cpp", strict=True)
    with compiler_core.record() as record:
        torch.testing.assert_close(run(X, rows % 64), program(X, rows % 64))
    assert len(calls(record.compiles[0])) == 1
    with pytest.raises(IndexError) as ours:
        run(X, rows)
    with pytest.raises(IndexError) as eager:
        program(X, rows)
    assert str(ours.value) == str(eager.value)


def test_inputs_are_updated_in_place() -> None:
    def program(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        y = x.cumsum(0).softmax(1)
        total.add_(y.sum())
        return y.cumsum(1) * total

    ours, eager = torch.ones(()), torch.ones(())
    run = compiler_core.compile(program, backend="cpp", strict=True)
    for _ in range(2):
        torch.testing.assert_close(run(X, ours), program(X, eager))
        torch.testing.assert_close(ours, eager)
    assert ours._version == eager._version


def test_buffers_of_other_types_share_no_place() -> None:
    """A compiler may take a store of one type to be apart from a load of another."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            order = x.double().cumsum(0)
            x = order.float().softmax(1).half().cumsum(1).float()
        return x

    compile_ = check(program, X, tolerances=[1e-2])
    found = places(compile_)
    text = compile_.find("forward.cpp").text
    kinds = {name: kind for kind, name in re.findall(r"(\w+)\* const tmp_(\w+) =", text)}
    sizes = {b.name: b.bytes for b in compile_.memory[0].buffers}
    assert len(set(kinds.values())) > 1
    for one, (of, start) in found.items():
        for other, (also, at) in found.items():
            if of == also and kinds[one] != kinds[other]:
                assert start + sizes[one] <= at or at + sizes[other] <= start


@pytest.mark.parametrize(("seed", "size"), pairs(range(8), [5, 64], 4))
def test_random_programs_need_no_more_memory(seed: int, size: int) -> None:
    program, x = random_program(random.Random(seed)), X[:size, :size].contiguous()
    compile_ = check(program, x, tolerances=[1e-3] * 9)
    if any(artifact.name == "forward.launch" for artifact in compile_.artifacts):
        assert_apart(compile_)
        (plan,) = compile_.memory
        by_kernel = memory_by_kernel(program, x)
        assert plan.peak <= by_kernel + MAX_STACK_BYTES + MAX_MORE_BYTES


def random_program(rng: random.Random) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Returns a program of scans and reductions, whose kernels cannot fuse, of several shapes and types."""
    kinds = "scan sum wide narrow product".split()
    choices = [(rng.choice(kinds), rng.randrange(4), rng.randrange(2)) for _ in range(9)]
    returned = [rng.random() < 0.3 for _ in choices]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, results = [x], []
        for (kind, back, dim), is_result in zip(choices, returned, strict=True):
            y = values[-1 - back % len(values)]
            match kind:
                case "scan":
                    y = y.softmax(dim).cumsum(1 - dim)
                case "sum":
                    y = y - y.sum(dim, keepdim=True).cumsum(1 - dim)
                case "wide":
                    y = torch.cat([y.cumsum(0), y.softmax(1)]).cumsum(1)[: len(y)] + 0
                case "narrow":
                    y = y.double().cumsum(dim).float().softmax(1 - dim)
                case "product":
                    y = (y @ y.t() / 99).cumsum(dim)[:, : y.shape[1]] + 0
            values.append(y)
            results += [y] if is_result else []
        return (*results, values[-1])

    return program


def memory_by_kernel(program: Callable[..., object], x: torch.Tensor) -> int:
    """Returns the peak of a program whose kernels are called one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MAX_OPERATIONS", 0)
        return compiled(program, x)[1].memory[0].peak


def test_threads_share_no_workspace() -> None:
    inputs = [torch.randn(80, 80) for _ in range(4)]
    run = compiler_core.compile(rows_and_columns, backend="cpp", strict=True)
    expected = [run(x) for x in inputs]

    def works(at: int) -> bool:
        return all(torch.equal(run(inputs[at]), expected[at]) for _ in range(300))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(works, range(4)))


def test_tools_see_each_kernel_and_the_time_of_the_run() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(rows_and_columns, backend="cpp", strict=True)(X)
    compiler_core.measure(record)
    (compile_,) = record.compiles
    assert all(kernel.time_ns for kernel in compile_.kernels)
    assert [time.graph for time in compile_.graph_times if time.form == "compiled"] == ["forward"]
    wrapper = compile_.find("forward.wrapper")
    assert replay.launched(compile_, wrapper).name == "forward.launch"
    seen: list[str] = []
    replay.load(compile_, wrapper, lambda kernel: seen.append(kernel.name), lambda *_: None).run()
    assert seen == [kernel.name for kernel in compile_.kernels]


def test_lines_of_a_run_lead_to_their_kernels() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(rows_and_columns, backend="cpp", strict=True)(X)
    (compile_,) = record.compiles
    source, launch = compile_.find("forward.cpp"), compile_.find("forward.launch")
    name = calls(compile_)[0]
    lines = source.text.splitlines()
    start = next(n for n, line in enumerate(lines) if f" {name}(" in line)
    at = next(n for n, line in enumerate(lines, 1) if n > start + 1 and "forward_1(" in line)
    assert compile_.find("forward.loops").item("forward_1") in record.linked(source.item(str(at)))
    call = next(n for n, line in enumerate(launch.text.splitlines(), 1) if f"{name}(" in line)
    for kernel in compile_.kernels:
        assert kernel.item
        assert launch.item(str(call)) in record.linked(kernel.item)
