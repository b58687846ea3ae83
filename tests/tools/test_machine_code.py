"""Tests of machine code for devices that are not present: real compilers, no GPU."""

from __future__ import annotations

import platform
import re
import signal
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from compiler_core import config
from compiler_core.codegen.triton import module as triton_module
from compiler_core.errors import BuildError, TimedOut, UsageError
from compiler_core.records import Compile, Record, Span
from compiler_core.support import interrupts
from compiler_core.tools.machine_code import compiled_forms, line_map
from tests.cases.processes import is_alive

SOFTMAX = textwrap.dedent("""\
    import triton
    import triton.language as tl


    @triton.jit
    def _maximum(a, b):
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


    @triton.jit
    def softmax(x_ptr: "*fp32", out_ptr: "*fp32", XBLOCK: tl.constexpr = 1, RBLOCK: tl.constexpr = 512):
        i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
        j0 = tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + 512 * i0 + j0)
        amax = tl.reduce(x, 1, _maximum, keep_dims=True)
        exp = tl.exp(x - amax)
        sum_1 = tl.sum(exp, 1, keep_dims=True)
        div = tl.div_rn(exp, sum_1)
        tl.store(out_ptr + 512 * i0 + j0, div)


    @triton.jit
    def double(x_ptr: "*fp32", out_ptr: "*fp32", XBLOCK: tl.constexpr = 256):
        i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
        tl.store(out_ptr + i0, tl.load(x_ptr + i0) * 2.0)


    LAUNCHES = {
        "softmax": {"grid": 64, "num_warps": 4},
        "double": {"grid": 4, "num_warps": 4},
    }
""")

NATIVE = textwrap.dedent("""\
    #include <cmath>
    extern "C" void kernel(const float* __restrict x, float* __restrict out, long n) {
      for (long i = 0; i < n; i++) {
        float root = std::sqrt(x[i]);
        float third = root / 3.0f;
        out[i] = third;
      }
    }
""")


@pytest.fixture(autouse=True, scope="module")
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path_factory.mktemp("cutaway")))
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def line_of(source: str, text: str) -> int:
    (number,) = (n for n, line in enumerate(source.splitlines(), 1) if text in line)
    return number


def origins(stage: compiled_forms.CompiledForm, instruction: str) -> set[int]:
    """Returns the kernel lines of those lines of a form that match `instruction`."""
    pairs = zip(stage.text.splitlines(), stage.lines, strict=True)
    found = [lines for text, lines in pairs if re.search(instruction, text)]
    assert found, f"no {instruction} in {stage.name}"
    return {line for lines in found for line in lines}


@pytest.mark.parametrize(
    ("target", "last", "load", "exp", "reduce"),
    [
        ("sm_90", "sass", r"\bLDG", "MUFU.EX2", "FMNMX"),
        ("gfx942", "amdgcn", r"(buffer|global)_load", "v_exp_f32", "v_max_f32"),
    ],
)
def test_each_rung_maps_back_to_the_kernel(target: str, last: str, load: str, exp: str, reduce: str) -> None:
    forms = {stage.name: stage for stage in compiled_forms.compiled_forms(SOFTMAX, target)}
    assert list(forms)[:3] == ["ttir", "ttgir", "llir"]
    assert list(forms)[-1] == last
    loads = {line_of(SOFTMAX, "x = tl.load"), line_of(SOFTMAX, "* 2.0")}
    assert origins(forms["ttir"], r"tt\.load") == loads
    assert origins(forms["ttgir"], r"math\.exp") == {line_of(SOFTMAX, "tl.exp")}
    assert origins(forms[last], load) == loads
    assert origins(forms[last], exp) == {line_of(SOFTMAX, "tl.exp")}
    # the helper that combines two maxima is mapped to the line that reduces
    assert origins(forms["ttir"], "maximumf") == {line_of(SOFTMAX, "tl.reduce")}
    assert line_of(SOFTMAX, "tl.reduce") in origins(forms[last], reduce)
    # tl.sum is inlined from Triton's library
    assert origins(forms["ttir"], r"arith\.addf") == {line_of(SOFTMAX, "tl.sum")}
    for stage in forms.values():
        assert not re.search(r"\bloc\(|!dbg|\.debug", stage.text)
        assert str(config.cache_dir()) not in stage.text, "a record names no path of this machine"


def test_ptx_and_resources() -> None:
    forms = {stage.name: stage for stage in compiled_forms.compiled_forms(SOFTMAX, "sm_80")}
    assert ".target sm_80" in forms["ptx"].text
    assert origins(forms["ptx"], r"ld\.global") == {line_of(SOFTMAX, "x = tl.load"), line_of(SOFTMAX, "* 2.0")}
    assert origins(forms["ptx"], r"\bshfl") == {line_of(SOFTMAX, "tl.reduce"), line_of(SOFTMAX, "tl.sum")}
    sass = forms["sass"].text
    assert re.search(r"^// softmax: \d+ registers a thread, \d+ bytes of shared memory, 0 bytes spilled$", sass, re.M)
    assert "// double: " in sass


def test_a_hook_of_the_user_on_tritons_stages_is_called_and_may_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors here."""
    from triton import knobs

    seen = list[str]()

    def hook(*arguments: Any) -> Any:
        warnings.warn("given by Triton", DeprecationWarning, stacklevel=2)
        if not arguments:
            return "a key", "its hash"
        seen.extend(arguments[1])
        return None

    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", hook)
    kernel = triton_module.load(not_cached(1.375))["double"]
    assert "cubin" in triton_module.compile_kernel(kernel, triton_module.Target("cuda", 90, 32)).asm
    assert seen[-2:] == ["ptx", "cubin"]
    assert knobs.runtime.add_stages_inspection_hook is hook


def test_cpp_assembly() -> None:
    (stage,) = compiled_forms.compiled_forms(NATIVE, "cpu")
    assert stage.name == "asm"
    assert stage.text.startswith("kernel:")
    assert line_of(NATIVE, "sqrt(") in origins(stage, r"\bv?sqrt[ps]s"), "inlined from <cmath>"
    assert origins(stage, r"\bv?div[ps]s") == {line_of(NATIVE, "/ 3.0f")}
    assert not re.search(r"^\s*\.(cfi|loc|file|section|globl)", stage.text, re.MULTILINE)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compiler here is for another architecture")
@pytest.mark.parametrize(("level", "widest"), [(2, "xmm"), (3, "ymm"), (4, "[yz]mm")])
def test_assembly_for_other_levels_of_x86(level: int, widest: str) -> None:
    (stage,) = compiled_forms.compiled_forms(NATIVE, f"x86-64-v{level}")
    assert re.fullmatch(widest, max(re.findall(r"[xyz]mm", stage.text)))
    assert any(stage.lines)


def test_recorded_lines_are_linked(compile_: Compile) -> None:
    record = compile_._record
    assert record is not None
    for name, language, source, target in (
        ("forward.py", "triton", SOFTMAX, "sm_90"),
        ("forward.cpp", "cpp", NATIVE, "cpu"),
    ):
        lines = source.count("\n")
        spans = [*(Span(str(n), n, n) for n in range(1, lines + 1)), Span("kernel", 1, lines)]
        kernel = compile_.artifact("kernel", name, language, source, spans)  # type: ignore[arg-type]
        result = compiled_forms.record_machine_code(compile_, kernel, target)
        assert compiled_forms.record_machine_code(compile_, kernel, target) == result, "made once"
        wanted = kernel.item(str(line_of(source, "tl.exp" if language == "triton" else "sqrt(")))
        reached = record.linked(wanted)
        for artifact in result:
            assert artifact.pane == "machine"
            assert artifact.name.startswith(f"forward.{target}.")
            assert any(item.startswith(artifact.id + "#") for item in reached), artifact.name
            length = artifact.text.count("\n")
            assert all(1 <= s.first <= s.last <= length for s in artifact.spans)
    assert {e.stage for e in compile_.events} == {"build"}
    Record.from_json(record.to_json())


@pytest.fixture
def compile_() -> Compile:
    record = Record()
    return record.compile(record.frame("f", "f.py", 1, "root"))


def test_unknown_target_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"unknown target 'sm_9'; the targets are cpu, x86-64-v2, .*sm_75, .*gfx942"):
        compiled_forms.compiled_forms(SOFTMAX, "sm_9")


def test_target_of_the_other_language(compile_: Compile) -> None:
    kernel = compile_.artifact("kernel", "forward.cpp", "cpp", NATIVE)
    with pytest.raises(UsageError, match=r"forward\.cpp is a cpp kernel"):
        compiled_forms.record_machine_code(compile_, kernel, "sm_90")


def test_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="CXX"):
        compiled_forms.compiled_forms(NATIVE, "cpu")


def test_missing_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BuildError, match="pip install triton"):
        compiled_forms.compiled_forms(SOFTMAX + "\n# not imported before\n", "sm_90")


def test_kernel_that_does_not_compile() -> None:
    with pytest.raises(BuildError, match="cannot compile softmax for 90"):
        compiled_forms.compiled_forms(SOFTMAX.replace("tl.exp(x - amax)", "tl.no_such_function(x)"), "sm_90")


def replace_ptxas(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    """Lets Triton run a shell script as its assembler, except for ``--version``."""
    from triton import knobs

    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec {knobs.nvidia.ptxas.path} "$@";; esac\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(path))
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(path))


@pytest.fixture
def hanging_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An assembler that starts another process and hangs; returns the file with that process's id."""
    child = tmp_path / "child"
    replace_ptxas(monkeypatch, tmp_path / "ptxas", f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait")
    return child


def not_cached(number: float) -> str:
    return SOFTMAX.replace("tl.exp(x - amax)", f"tl.exp(x - amax) * {number}")


def test_an_assembler_that_hangs(hanging_ptxas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended with the processes that it started."""
    monkeypatch.setenv("CUTAWAY_COMPILE_TIMEOUT", "3")
    with pytest.raises(TimedOut, match="softmax for 90: ptxas did not end within 3 s"):
        compiled_forms.compiled_forms(not_cached(1.625), "sm_90")
    assert not is_alive(int(hanging_ptxas.read_text()))


def test_an_assembler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_ptxas(monkeypatch, tmp_path / "ptxas", 'echo "no space in registers" >&2; exit 1')
    with pytest.raises(BuildError, match="no space in registers"):
        compiled_forms.compiled_forms(not_cached(1.75), "sm_90")


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_while_threads_compile(hanging_ptxas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the assemblers, and the call that waits for the threads."""

    def interrupt() -> None:
        while not hanging_ptxas.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(triton_module, "current_target", lambda: triton_module.Target("cuda", 90, 32))
    kernels = [kernel for number in (1.125, 1.25) for kernel in triton_module.load(not_cached(number)).values()]
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt), interrupts.deferred_signals():
        triton_module.compile_all(kernels)
    interrupting.join()
    assert not is_alive(int(hanging_ptxas.read_text()))


def test_source_that_does_not_compile() -> None:
    with pytest.raises(BuildError, match="out_of_nowhere"):
        compiled_forms.compiled_forms(NATIVE.replace("third;", "out_of_nowhere;"), "cpu")


def test_llvm_follows_inlined_calls_to_the_kernel() -> None:
    text = textwrap.dedent("""\
        define void @k() !dbg !5 {
          %1 = fadd float %0, %0, !dbg !28
          ret void, !dbg !31
        }
        !1 = !DIFile(filename: "kernel.py", directory: "/tmp")
        !5 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 12)
        !24 = !DILocation(line: 293, column: 36, scope: !25, inlinedAt: !27)
        !25 = distinct !DILexicalBlockFile(scope: !5, file: !26, discriminator: 0)
        !26 = !DIFile(filename: "standard.py", directory: "/lib")
        !27 = !DILocation(line: 18, column: 18, scope: !5)
        !28 = !DILocation(line: 263, column: 15, scope: !25, inlinedAt: !24)
        !31 = !DILocation(line: 0, scope: !5)
    """)
    assert line_map.llvm(text, "kernel.py") == [
        ("define void @k() {", ()),
        ("  %1 = fadd float %0, %0", (18,)),
        ("  ret void", ()),
        ("}", ()),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "2 293 36 // standard.py:293:36 @[ kernel.py:17:24 ]",
            "2 263 15 // standard.py:263:15 @[ standard.py:293:36 @[ kernel.py:17:24 ] ]",
        ),
        (
            "2 293 36, function_name $L__info_string0, inlined_at 1 17 24 // standard.py:293:36",
            "2 263 15, function_name $L__info_string1, inlined_at 2 293 36 // standard.py:263:15",
        ),
    ],
    ids=["Triton 3.7", "Triton 3.8"],
)
def test_ptx_follows_inlined_calls_to_the_kernel(first: str, second: str) -> None:
    text = f"\t.loc 1 17 24 // kernel.py:17:24\n\t.loc {first}\n\tbar.sync \t0;\n\t.loc {second}\n\tadd.f32 %r1;\n"
    assert line_map.ptx(text, "kernel.py") == [("\tbar.sync \t0;", (17,)), ("\tadd.f32 %r1;", (17,))]
    assert line_map.inlined_callers(text, "kernel.py") == dict.fromkeys(
        (("standard.py", 293), ("standard.py", 263)), (17,)
    )
