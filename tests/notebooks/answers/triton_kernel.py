"""Answers to the exercise of the Triton kernel."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "where": """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    added = tl.load(bias + column, mask=mask, other=0.0)
    values = tl.load(x + row * columns + column, mask=mask, other=0.0)
    tl.store(out + row * columns + column, tl.where(values > 0, values, 0.0) + added, mask=mask)
""",
    "pointers of a row": """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * columns
    out += tl.program_id(0) * columns
    column = tl.arange(0, BLOCK)
    for_each = column < columns
    row = tl.load(x + column, mask=for_each)
    tl.store(out + column, tl.load(bias + column, mask=for_each) + row * (row > 0), mask=for_each)
""",
}

WRONG = [
    Wrong(
        "loads past the end",
        "masked the store only",
        """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    tl.store(out + at, tl.maximum(tl.load(x + at), 0.0) + tl.load(bias + column), mask=column < columns)
""",
    ),
    Wrong(
        "no masks",
        "masks are missing",
        """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    tl.store(out + at, tl.maximum(tl.load(x + at), 0.0) + tl.load(bias + column))
""",
    ),
    Wrong(
        "to the end of the matrix",
        "mask with the end of the matrix",
        """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    inside = at < tl.num_programs(0) * columns
    values = tl.maximum(tl.load(x + at, mask=inside), 0.0)
    tl.store(out + at, values + tl.load(bias + column, mask=column < columns), mask=inside)
""",
    ),
    Wrong(
        "relu of all",
        "compute relu(x + bias)",
        old="values + tl.load(bias + column, mask=inside)",
        new="tl.maximum(tl.load(x + at, mask=inside) + tl.load(bias + column, mask=inside), 0.0)",
    ),
    Wrong(
        "no relu",
        "left out the relu",
        old="tl.maximum(tl.load(x + at, mask=inside), 0.0)",
        new="tl.load(x + at, mask=inside)",
    ),
    Wrong("no bias", "left out the bias", old=" + tl.load(bias + column, mask=inside)", new=""),
    Wrong("one row", "start each row at 0", old="tl.program_id(0) * columns + column", new="column"),
    Wrong("rows of BLOCK", "BLOCK elements apart", old="tl.program_id(0) * columns", new="tl.program_id(0) * BLOCK"),
    Wrong("the bias of a matrix", "index the bias as the matrix", old="bias + column", new="bias + at"),
    Wrong("a column too many", "true beyond the row", old="column < columns", new="column <= columns"),
    Wrong(
        "places in the matrix",
        "compare places in the matrix",
        """
@triton.jit
def relu_bias(x, bias, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + column
    values = tl.maximum(tl.load(x + at, mask=at < columns), 0.0)
    tl.store(out + at, values + tl.load(bias + column, mask=at < columns), mask=at < columns)
""",
    ),
    Wrong("stores to x", "store to x", old="tl.store(out", new="tl.store(x"),
    Wrong("one bias", "one element of the bias", old="tl.load(bias + column, mask=inside)", new="tl.load(bias)"),
    Wrong("no mask of the store", "masked the loads only", old=", mask=inside)\n", new=")\n", last=True),
    Wrong("the minimum", "1 x 4:\n", old="maximum", new="minimum"),
]
