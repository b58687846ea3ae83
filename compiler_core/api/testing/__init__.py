"""Compare compiled programs with eager PyTorch, and count what compiling them took.

The body of a test is the program::

    @same_as_eager(graphs=2, breaks=["print"])
    def test_print(x):
        y = x.cos()
        print("here")
        return y.sin()

There is one comparison, for the corpus, the random programs, the operators, the networks and the notebooks' cells.  It
compares all that a run leaves behind, which `World` lists:

=====================  ===============================================================================================
the result             types, plain values, dtype, device, layout, shape, strides, `requires_grad`, `is_leaf`,
                       `retains_grad`, whether there is a `grad_fn`, conjugate and negative bits, inference tensors,
                       elements; which objects are one, and which tensors share memory with one another, with the
                       arguments and with gradients
gradients              of each leaf among the arguments, the globals and the cells: after a backward pass, and after
                       they were scaled in place and a second pass added to them; what each of three passes raises
arguments, globals     as the result
parameters, buffers    of modules that are arguments, or that the program finds in globals and cells, and the state of
                       optimisers: as the result
random state           PyTorch's, of the CPU and each CUDA device; Python's `random`; NumPy's
exceptions, warnings   types and texts, of each call; PyTorch's own warnings, too, that it gives once otherwise
printed text           on both streams
modes                  grad, inference, autocast, default dtype, determinism, anomaly detection
what stays alive       no tensor of a run lives on where eager's does not, once the run is dropped
=====================  ===============================================================================================

How exactly tensors' elements are compared is said by the judge:

* `Exact`: every bit, but what a NaN is made of.  For the backend `eager`, which runs the same operations.
* `BesideFloat64`: the greatest error beside a run in float64 is at most twice that of eager's own runs, tensor by
  tensor.  For operators and networks through kernels, whose sums have another order.
* `WithinNoise`: as far from eager's as a few times what moving each operation's last bits makes.  For random programs,
  which compare and round: there, float64 may go another way than float32 rightly.
* `Close`: within a tolerance that a test names.

Differences that are known and not mended yet are in `known.py`; each has a test that fails once it is gone.

Left out: the names of `grad_fn` nodes and autograd's texts about them, since a compiled function is one node; the lines
that warnings come from, since generated code has none of the user's; `CompileWarning`s, since whoever compares looks
for failures in the record; `_version` of tensors, since a compiled function
may write once where eager writes twice; strides of dimensions of one element and of empty tensors, for all judges but
`Exact` and `Close`, since they address nothing.
"""

from __future__ import annotations

from compiler_core.api.testing.judges import Anything, BesideFloat64, Close, Exact, WithinNoise, judge
from compiler_core.api.testing.known import KNOWN, forgiven
from compiler_core.api.testing.programs import (
    Expected,
    break_kinds,
    calls,
    check,
    difference,
    graph_count,
    same_as_eager,
    settings,
)
from compiler_core.api.testing.training import trained
from compiler_core.api.testing.trees import Comparison
from compiler_core.api.testing.world import Inputs, World, kept_alive, observe, watched

__all__ = [
    "KNOWN",
    "Anything",
    "BesideFloat64",
    "Close",
    "Comparison",
    "Exact",
    "Expected",
    "Inputs",
    "WithinNoise",
    "World",
    "break_kinds",
    "calls",
    "check",
    "difference",
    "forgiven",
    "graph_count",
    "judge",
    "kept_alive",
    "observe",
    "same_as_eager",
    "settings",
    "trained",
    "watched",
]
