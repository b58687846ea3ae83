import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, viewOf } from "./address";

test("a view is read from its own address", () => {
  const view = { compile: "0/1", panes: ["source", "kernel:a&b c.cpp"], pinned: ["src:0#12", "0/1:captured#mul"] };
  const address = addressOf(view);
  assert.equal(
    address,
    "compile=0/1&pane=source&pane=kernel:a%26b%20c.cpp&pinned=src:0%2312&pinned=0/1:captured%23mul",
  );
  assert.deepEqual(viewOf(address), { title: "", ...view });
});

test("another address is no view", () => {
  assert.deepEqual([viewOf(""), viewOf("2"), viewOf("a-heading")], [null, null, null]);
});
