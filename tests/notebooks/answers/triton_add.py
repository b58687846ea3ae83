"""Answers to the exercise of the sum of two vectors in Triton."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "a filling": """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    mask = lane < n - start
    left = tl.load(x + start + lane, mask=mask, other=0.0)
    right = tl.load(y + start + lane, mask=mask, other=0.0)
    tl.store(out + start + lane, left + right, mask=mask)
""",
    "a block in steps": """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    for lane in range(BLOCK):
        at = tl.program_id(0) * BLOCK + lane
        if at < n:
            tl.store(out + at, tl.load(x + at) + tl.load(y + at))
""",
}

WRONG = [
    Wrong(
        "no mask",
        "left out the mask",
        "@triton.jit\ndef add(x, y, out, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at) + tl.load(y + at))\n",
    ),
    Wrong(
        "loads past the end",
        "masked the store only",
        "@triton.jit\ndef add(x, y, out, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at) + tl.load(y + at), mask=at < n)\n",
    ),
    Wrong(
        "one load without a mask", "masked the store only", old="tl.load(y + at, mask=inside)", new="tl.load(y + at)"
    ),
    Wrong("less or equal", "compare with `<=`", old="at < n", new="at <= n"),
    Wrong("stores past the end", "masked the loads only", old="total, mask=inside", new="total"),
    Wrong(
        "full blocks only",
        "a block that is not full",
        old="inside = at < n",
        new="inside = (at < n) & ((tl.program_id(0) + 1) * BLOCK <= n)",
    ),
    Wrong("one less", "leave out the last element", old="at < n", new="at < n - 1"),
    Wrong("a difference", "4 elements, blocks of 4:\n", old=") + tl.load", new=") - tl.load"),
    Wrong("x twice", "4 elements, blocks of 4:\n", old="tl.load(y", new="tl.load(x"),
    Wrong(
        "a mask of the block",
        "compare the place in the block",
        """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * BLOCK + lane
    m = lane < n
    tl.store(out + at, tl.load(x + at, mask=m) + tl.load(y + at, mask=m), mask=m)
""",
    ),
    Wrong(
        "begins again",
        "begin again at 0",
        """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) % n
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))
""",
    ),
    Wrong(
        "one block",
        "all instances work on the first block",
        """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    m = at < n
    tl.store(out + at, tl.load(x + at, mask=m) + tl.load(y + at, mask=m), mask=m)
""",
    ),
    Wrong(
        "stores to x",
        "store to an operand",
        """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.store(x + at, tl.load(x + at, mask=m) + tl.load(y + at, mask=m), mask=m)
""",
    ),
]
