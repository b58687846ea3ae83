"""PTX that reads bits which nothing sets is found, and not launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton.toolchain import reads_of_undefined_bits, without_assembly_locations
from compiler_core.tools.machine_code import compiled_forms

# of Triton 3.6: %r82 is an offset whose upper half nothing sets
OFFSET = """
	mul.lo.s16 	%rs26, %rs25, 100;
	sub.s16 	%rs27, %rs8, %rs26;
	mov.b32 	%r82, {%rs27, %rs28};
	mul.wide.u32 	%rd65, %r82, 4;
	add.s64 	%rd66, %rd43, %rd65;
	@%p2 ld.global.b32 { %r2 }, [ %rd66 + 0 ];
"""
# four quotients in a register, of which nothing sets the first; the second is read
FOUR = """
	sub.s16 	%rs18, %rs5, %rs13;
	mov.b32 	%r225, {%rs19, %rs18};
	cvt.u64.u32 	%rd130, %r225;
	shl.b64 	%rd129, %rd128, 32;
	or.b64 	%rd131, %rd130, %rd129;
	shr.u64 	%rd133, %rd131, 16;
	cvt.u16.u64 	%rs30, %rd133;
	mul.wide.u16 	%r300, %rs30, 4;
"""
QUOTIENTS = """
import triton
import triton.language as tl

@triton.jit
def quotients(x_ptr: "*fp32", y_ptr: "*i1", BLOCK_I: tl.constexpr = 2, BLOCK_J: tl.constexpr = 512):
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)[:, None]
    j = tl.arange(0, BLOCK_J)[None, :]
    j_mask = j < 400
    j0 = j // 100
    j1 = j % 100
    later = tl.load(x_ptr + 100*i + 5000*j0 + j1 + 1, mask=j_mask & (100*i + j1 + 1 < 5000))
    earlier = tl.load(x_ptr + 100*i + 5000*j0 + j1 - 4999, mask=j_mask & (100*i + j1 - 4999 >= 0))
    rolled = tl.where(100*i + j1 < 4999, later, earlier) != 0
    tl.store(y_ptr + i, tl.min(tl.where(j_mask, rolled, True).to(tl.int32), 1, keep_dims=True) != 0)

LAUNCHES = {"quotients": {"grid": 25, "num_warps": 2}}
"""


def test_an_offset_with_an_undefined_half_is_found() -> None:
    assert reads_of_undefined_bits(OFFSET) == ["mul.wide.u32 %rd65, %r82, 4"]


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("mov.b32 	%r82, {%rs27, %rs28};", "mov.b32 	%r82, {%rs27, %rs26};"),
        ("mul.wide.u32 	%rd65, %r82, 4;", "shr.u32 	%r98, %r82, 16;"),
        ("mul.wide.u32 	%rd65, %r82, 4;", "mov.b32 	{%rs40, %rs41}, %r82;"),
        ("mul.wide.u32 	%rd65, %r82, 4;", "{ .reg .b16 tmp; mov.b32 {%rs40, tmp}, %r82; }"),
        ("mul.wide.u32 	%rd65, %r82, 4;", "sub.rn.f16x2 	%r83, %r82, %r82;"),
        ("mul.lo.s16 	%rs26, %rs25, 100;", "@%p2 ld.global.v2.b16 { %rs28, %rs26 }, [ %rd1 + 0 ];"),
    ],
)
def test_other_reads_are_right(line: str, replacement: str) -> None:
    assert line in OFFSET
    assert not reads_of_undefined_bits(OFFSET.replace(line, replacement))


@pytest.mark.parametrize(
    ("line", "replacement", "found"),
    [
        ("", "", ""),
        ("%rd131, 16", "%rd131, 15", "mul.wide.u16 %r300, %rs30, 4"),
        ("cvt.u16.u64 	%rs30, %rd133;", "mov.b64 {%rs29, %rs30, %rs31, %rs32}, %rd131;", ""),
        ("cvt.u16.u64 	%rs30, %rd133;", "mov.b64 {%rs30, %rs29}, %rd131;", "mul.wide.u16 %r300, %rs30, 4"),
        ("shr.u64 	%rd133, %rd131, 16;", "and.b64 %rd133, %rd131, 4294901760;", ""),
        ("shr.u64 	%rd133, %rd131, 16;", "and.b64 %rd133, %rd131, 1;", "mul.wide.u16 %r300, %rs30, 4"),
        ("shr.u64 	%rd133, %rd131, 16;", "add.s64 %rd133, %rd131, 16;", "add.s64 %rd133, %rd131, 16"),
        ("mul.wide.u16 	%r300, %rs30, 4;", "ex2.approx.f32 %r300, %r225;", "ex2.approx.f32 %r300, %r225"),
        ("cvt.u64.u32 	%rd130, %r225;", "prmt.b32 %r226, %r225, 0, 0x3232U; cvt.u64.u32 %rd130, %r226;", ""),
    ],
)
def test_moved_bits_are_followed(line: str, replacement: str, found: str) -> None:
    assert line in FOUR
    assert reads_of_undefined_bits(FOUR.replace(line, replacement)) == [found] * bool(found)


def test_no_compiled_kernel_reads_undefined_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two warps, Triton 3.6 makes code for this kernel that does."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = triton_module.load(QUOTIENTS)["quotients"]
    compiled = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90"))
    assert "ld.global" in compiled.asm["ptx"]
    assert not reads_of_undefined_bits(compiled.asm["ptx"])


def test_lines_of_inline_assembly_are_not_lines_of_the_kernel() -> None:
    """As Triton 3.8 writes a load in line 25."""
    begin, end = "\t.loc\t1 25 28\n\t// begin inline asm\n", "\n\t// end inline asm\n\tadd.f32 %r3, %r1, %r1;\n"
    load = "\tmov.u32 %r1, 0x0;\n{}\tld.global.b32 { %r1 }, [ %rd1 + 0 ];\n"
    after = "\t.loc\t1 26 5 // kernel.py:26:5\n\tret;\n"
    text = begin + "\t.loc\t1 25 28\n" + load.replace("{}", "\t.loc\t1 26 28\n") + end + after
    assert without_assembly_locations(text) == begin + load.replace("{}", "") + end + after
