"""Every kind of graph break: what it means and what to do about it.

The kinds are the only ones that `errors.Unsupported` takes; a test runs a program for each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One documented kind of break."""

    explanation: str
    hint: str


KINDS: dict[str, Kind] = {
    "data-dependent branch": Kind(
        "The branch depends on the value of a tensor, which is known only when the program runs.",
        "Use torch.where to keep both sides in the graph, or move the test out of the compiled function.",
    ),
    "tensor value read": Kind(
        "Python needs the value of a tensor here (item, tolist, float, bool, numpy ...).",
        "Keep the value a tensor, or read it after the compiled function has returned.",
    ),
    "print": Kind(
        "Printing happens now and in order, and cannot wait for the graph to run.",
        "Move the print out of the compiled function, or print only while debugging.",
    ),
    "inference mode": Kind(
        "Inference mode is turned on or off here, and a graph runs wholly inside or outside it.",
        "Decorate the whole function with torch.inference_mode(), or use torch.no_grad(), which a graph can hold.",
    ),
    "backward": Kind(
        "Gradients are computed by PyTorch's autograd engine, outside the captured graph; our compiled "
        "backward runs there.",
        "Nothing to mend: the forward before it and the backward itself are both compiled.",
    ),
    "skipped function": Kind(
        "This function is one that the compiler does not look into (the standard library, an optimiser, C code).",
        "Nothing to mend if it is called rarely; otherwise call it outside the compiled function.",
    ),
    "asked for": Kind(
        "The program called compiler_core.graph_break() or a function marked with compiler_core.disable.",
        "Remove the call to capture across this line.",
    ),
    "exception": Kind(
        "The program raises here; Python raises it, with the user's own traceback.",
        "Nothing to mend if the exception is meant.",
    ),
    "unsupported call": Kind(
        "The compiler has no rule for this call.",
        "Move the call out of the compiled function, or mark the callee with compiler_core.disable.",
    ),
    "unsupported attribute": Kind(
        "The compiler has no rule for this attribute.",
        "Read it before the compiled function and pass it in.",
    ),
    "unsupported operation": Kind(
        "The compiler has no rule for this operation on these values.",
        "Write it with tensor operations or plain numbers, lists and dicts.",
    ),
    "overlapping write": Kind(
        "This writes to memory that overlaps itself or what is read; PyTorch's kernels refuse most such writes.",
        "Write to a clone, or to a tensor of its own.",
    ),
    "unsupported iteration": Kind(
        "The compiler can only unroll loops over sequences that are known while it captures.",
        "Loop over a list, tuple, dict or range, or move the body into a function of its own.",
    ),
    "unsupported mutation": Kind(
        "The compiler cannot replay this change of an object that lives outside the function.",
        "Return the new value and change the object in the caller.",
    ),
    "unsupported instruction": Kind(
        "The compiler has no rule for this bytecode instruction.",
        "Move this statement out of the compiled function.",
    ),
    "generator": Kind(
        "A generator or coroutine is suspended and resumed by Python and cannot be captured here.",
        "Build a list instead of a generator.",
    ),
    "unroll limit": Kind(
        "The function would unroll into too many steps.",
        "Move the body of the loop into a function of its own, or use tensor operations for the whole loop.",
    ),
}

IN_A_LOOP = (
    "This is in a loop, which cannot be split: the loop runs as plain Python, and the functions that it calls are "
    "compiled on their own."
)
