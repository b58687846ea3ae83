"""Answers to the exercise of the copy in Triton."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "pointers": """
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    start = BLOCK * tl.program_id(axis=0)
    pointers = x + start + tl.arange(0, BLOCK)
    values = tl.load(pointers)
    tl.store(out + start + tl.arange(0, BLOCK), values)
""",
    "with a mask": """
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.program_id(0) * BLOCK
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)
""",
}

WRONG = [
    Wrong(
        "no store",
        "The result is not written",
        "@triton.jit\ndef copy(x, out, n, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n    values = tl.load(x + at)\n",
    ),
    Wrong(
        "all elements at once, in each instance",
        "let all instances work on the first block",
        "@triton.jit\ndef copy(x, out, n, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n    tl.store(out + at, tl.load(x + at))\n",
    ),
    Wrong(
        "the wrong way",
        "out for the operand",
        old="tl.store(out + at, tl.load(x + at))",
        new="tl.store(x + at, tl.load(out + at))",
    ),
    Wrong(
        "instances apart by one",
        "at the number of its instance",
        old="tl.program_id(0) * BLOCK",
        new="tl.program_id(0)",
    ),
    Wrong(
        "instances apart by n", "multiply by the wrong size", old="tl.program_id(0) * BLOCK", new="tl.program_id(0) * n"
    ),
    Wrong(
        "from one", "count the instances from 1", old="tl.program_id(0) * BLOCK", new="(tl.program_id(0) + 1) * BLOCK"
    ),
    Wrong("the wrong axis", "let all instances work on the first block", old="program_id(0)", new="program_id(1)"),
    Wrong("one further", "past its end", old="tl.load(x + at)", new="tl.load(x + at + 1)"),
    Wrong("reversed", "4 elements in 1 block of 4:\n", old="tl.store(out + at,", new="tl.store(out + n - 1 - at,"),
    Wrong(
        "all blocks in each instance",
        "copy all blocks in each instance",
        """
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at))
""",
    ),
    Wrong(
        "no arange",
        "store one element in each instance",
        """
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    tl.store(out + at, tl.load(x + at))
""",
    ),
]
