"""Answers to the exercise of the attention in Triton."""

from tests.notebooks.answers import Wrong

BEGIN = """
@triton.jit
def attention(q, k, v, out, queries, keys, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    query = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    at = query[:, None] * WIDTH + column[None, :]
    rows = tl.load(q + at, mask=query[:, None] < queries, other=0.0)
"""

RIGHT = {
    "twice over the keys": BEGIN
    + """
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        key_rows = tl.load(k + key[:, None] * WIDTH + column[None, :], mask=key[:, None] < keys, other=0.0)
        scores = tl.sum(rows[:, None, :] * key_rows[None, :, :], 2) * scale
        largest = tl.maximum(largest, tl.max(tl.where(key[None, :] < keys, scores, float("-inf")), 1))
    total = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK, WIDTH], tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        there = key[:, None] * WIDTH + column[None, :]
        key_rows = tl.load(k + there, mask=key[:, None] < keys, other=0.0)
        scores = tl.sum(rows[:, None, :] * key_rows[None, :, :], 2) * scale
        powers = tl.where(key[None, :] < keys, tl.exp(scores - largest[:, None]), 0.0)
        total += tl.sum(powers, 1)
        weighted += tl.dot(powers, tl.load(v + there, mask=key[:, None] < keys, other=0.0), input_precision="ieee")
    tl.store(out + at, weighted / total[:, None], mask=query[:, None] < queries)
""",
    "normalised in each block": BEGIN
    + """
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    result = tl.zeros([BLOCK, WIDTH], tl.float32)
    for block in range(tl.cdiv(keys, BLOCK)):
        key = block * BLOCK + tl.arange(0, BLOCK)
        mask = key[:, None] < keys
        key_rows = tl.load(k + key[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
        value_rows = tl.load(v + key[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
        scores = tl.dot(rows * scale, tl.trans(key_rows), input_precision="ieee")
        scores += tl.where(key < keys, 0.0, float("-inf"))[None, :]
        new = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        before = total * tl.exp(largest - new)
        total = before + tl.sum(powers, 1)
        result = (result * before[:, None] + tl.dot(powers, value_rows, input_precision="ieee")) / total[:, None]
        largest = new
    tl.store(out + at, result, mask=query[:, None] < queries)
""",
}

WRONG = [
    Wrong(
        "the first block",
        "the first block of keys only",
        BEGIN
        + """
    key = tl.arange(0, BLOCK)
    exists = key[:, None] < keys
    there = key[:, None] * WIDTH + column[None, :]
    key_rows = tl.load(k + there, mask=exists, other=0.0)
    value_rows = tl.load(v + there, mask=exists, other=0.0)
    scores = tl.dot(rows, tl.trans(key_rows), input_precision="ieee") * scale
    scores = tl.where(key[None, :] < keys, scores, float("-inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    weighted = tl.dot(powers, value_rows, input_precision="ieee")
    tl.store(out + at, weighted / tl.sum(powers, 1)[:, None], mask=query[:, None] < queries)
""",
    ),
    Wrong(
        "loads past the end",
        "without a mask",
        old="tl.load(k + there, mask=exists, other=0.0)",
        new="tl.load(k + there)",
    ),
    Wrong("no scale", "left out the scale", old=" * scale\n", new="\n"),
    Wrong("no division", "did not divide", old="weighted / total[:, None]", new="weighted"),
    Wrong(
        "over queries",
        "normalise over the queries",
        BEGIN
        + """
    key = tl.arange(0, BLOCK)
    exists = key[:, None] < keys
    there = key[:, None] * WIDTH + column[None, :]
    key_rows = tl.load(k + there, mask=exists, other=0.0)
    value_rows = tl.load(v + there, mask=exists, other=0.0)
    scores = tl.dot(rows, tl.trans(key_rows), input_precision="ieee") * scale
    powers = tl.exp(scores - tl.max(scores, 0)[None, :])
    weights = powers / tl.sum(powers, 0)[None, :]
    tl.store(out + at, tl.dot(weights, value_rows, input_precision="ieee"), mask=query[:, None] < queries)
""",
    ),
    Wrong(
        "keys that do not exist",
        "let keys that do not exist",
        old='scores = tl.where(key[None, :] < keys, scores, float("-inf"))',
        new="pass",
    ),
    Wrong(
        "undefined values",
        "masked lanes without a value",
        old="tl.load(v + there, mask=exists, other=0.0)",
        new="tl.load(v + there, mask=exists)",
    ),
    Wrong(
        "stores past the end",
        "store without a mask",
        old="total[:, None], mask=query[:, None] < queries",
        new="total[:, None]",
    ),
    Wrong(
        "the last block",
        "the last block of keys only",
        old="        largest = new",
        new='        largest = tl.full([BLOCK], float("-inf"), tl.float32)',
    ),
    Wrong(
        "no correction",
        "do not correct both sums",
        old="        correction = tl.exp(largest - new)",
        new="        correction = tl.exp(new - new)",
    ),
    Wrong("one correction", "do not correct both sums", old="weighted * correction[:, None]", new="weighted"),
    Wrong(
        "the wrong correction",
        "do not correct both sums",
        old="tl.exp(largest - new)",
        new="tl.exp(tl.minimum(new - largest, 9.0))",
    ),
    Wrong("the rows of k", "sum rows of k", old="tl.load(v + there", new="tl.load(k + there"),
    Wrong(
        "later keys",
        "keys that come after the query",
        old="key[None, :] < keys, scores",
        new="(key[None, :] < keys) & (key[None, :] <= query[:, None]), scores",
    ),
    Wrong(
        "the largest of a block",
        "A power is infinite",
        old="tl.maximum(largest, tl.max(scores, 1))",
        new="tl.max(scores, 1)",
    ),
    Wrong(
        "no largest",
        "A power is infinite",
        old="tl.maximum(largest, tl.max(scores, 1))",
        new="tl.zeros([BLOCK], tl.float32)",
    ),
]
