"""Answers to the exercise of the softmax in Triton."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "a filling later": """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    exists = column < columns
    values = tl.load(x + row * stride + column, mask=exists, other=0.0)
    largest = tl.max(tl.where(exists, values, float("-inf")), axis=0)
    powers = tl.where(exists, tl.exp(values - largest), 0.0)
    tl.store(out + row * columns + column, powers / tl.sum(powers, axis=0), mask=exists)
""",
    "the logarithm of the sum": """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * stride + column, mask=column < columns, other=-float("inf"))
    shifted = values - tl.max(values, 0)
    result = tl.exp(shifted - tl.log(tl.sum(tl.exp(shifted), 0)))
    tl.store(out + tl.program_id(0) * columns + column, result, mask=column < columns)
""",
}

WRONG = [
    Wrong(
        "exp of the values",
        "`exp` of the values themselves",
        """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    powers = tl.exp(tl.load(x + tl.program_id(0) * stride + column, mask=inside, other=float("-inf")))
    tl.store(out + tl.program_id(0) * columns + column, powers / tl.sum(powers, 0), mask=inside)
""",
    ),
    Wrong(
        "the largest of 0 and the row",
        "fill masked lanes with 0 for the maximum",
        """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + tl.program_id(0) * stride + column, mask=inside, other=0.0)
    powers = tl.where(inside, tl.exp(values - tl.max(values, 0)), 0.0)
    tl.store(out + tl.program_id(0) * columns + column, powers / tl.sum(powers, 0), mask=inside)
""",
    ),
    Wrong("loads past the end", "forgot a mask", old=', mask=inside, other=float("-inf")', new=""),
    Wrong("no filling", "masked lanes without a value", old=', other=float("-inf")', new=""),
    Wrong("0 as the filling", "fill masked lanes with 0. Then", old='float("-inf")', new="0.0"),
    Wrong("no division", "not divided by the sum", old=" / tl.sum(powers, 0)", new=""),
    Wrong("the rows of x", "rows of `x` `columns` apart", old="row * stride", new="row * columns"),
    Wrong("the rows of out", "rows of `out` `stride` apart", old="out + row * columns", new="out + row * stride"),
    Wrong("no mask of the store", "forgot a mask", old="tl.sum(powers, 0), mask=inside", new="tl.sum(powers, 0)"),
    Wrong("the smallest", "something else than the largest", old="tl.max(values", new="tl.min(values"),
    Wrong(
        "powers of 2",
        "powers of another number",
        """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0); c = tl.arange(0, BLOCK); m = c < columns
    v = tl.load(x + r * stride + c, mask=m, other=-float("inf"))
    p = tl.exp2(v - tl.max(v, axis=0))
    tl.store(out + r * columns + c, p / tl.sum(p, axis=0), mask=m)
""",
    ),
    Wrong(
        "the mean",
        "something else than the largest",
        """
@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0); c = tl.arange(0, BLOCK); m = c < columns
    v = tl.load(x + r * stride + c, mask=m, other=0.0)
    p = tl.where(m, tl.exp(v - tl.sum(v, axis=0) / columns), 0.0)
    tl.store(out + r * columns + c, p / tl.sum(p, axis=0), mask=m)
""",
    ),
]
