"""Compares compiled programs with eager PyTorch, and counts the graphs, graph breaks and compiles they took.

The body of a test is the program::

    @same_as_eager(graphs=2, breaks=["print"])
    def test_print(x):
        y = x.cos()
        print("here")
        return y.sin()

The corpus, the random programs, the operators, the networks and the notebooks' cells all use this comparison.  It
compares everything that a run leaves behind (`ObservedRun`):

=====================  ===============================================================================================
the result             types, plain values, dtype, device, layout, shape, strides, `requires_grad`, `is_leaf`,
                       `retains_grad`, whether there is a `grad_fn`, conjugate and negative bits, inference tensors,
                       elements; which objects are identical, and which tensors share memory with one another, with
                       arguments and with gradients
gradients              of each leaf among arguments, globals and cells: after a backward pass, and after they were
                       scaled in place and a second pass added to them; the exceptions of each of three passes
arguments, globals     as the result
parameters, buffers    of modules that are arguments, or that the program finds in globals and cells, and the state of
                       optimizers: as the result
random state           PyTorch's, of the CPU and each CUDA device; Python's `random`; NumPy's
exceptions, warnings   types and texts of each call, including warnings that PyTorch otherwise gives only once
printed text           on both streams
modes                  grad, inference, autocast, default dtype, determinism, anomaly detection
memory                 once a run is dropped, no tensor of the compiled one stays alive unless eager's does
=====================  ===============================================================================================

A `ValueCheck` decides how close the elements of tensors must be:

* `Exact`: equal bits, except the payload of NaNs.  For the backend `eager`, which runs the same operations.
* `Float64Error`: the greatest error compared with a run in float64 is at most twice the error of eager's own runs,
  tensor by tensor.  For operators and networks with our kernels, whose sums have another order.
* `WithinNoise`: the difference from eager is at most a few times what changes in the last bits of each operation's
  result cause.  For random programs, which compare and round: there a run in float64 may take another branch.
* `Close`: within a tolerance that a test gives.

`programs` runs and counts, `observed_run` observes (`object_trees` walks objects, `training` trains), and
`value_checks` has the `ValueCheck`s.  `known_differences` lists the differences that are known and not fixed; each has
a test that fails once it is gone.

Not compared: the names of `grad_fn` nodes and autograd's texts about them and their saved tensors, since a compiled
function is one node; gradients after a second pass that raises, since which leaves it reached depends on the nodes; the
lines of warnings, since generated code has other lines; `CompileWarning`s, since failures are in the record; PyTorch's
warning of complex halves, which counts allocations; `_version` of tensors, since a compiled function may write once
where eager writes twice; and strides of dimensions of one element and of empty tensors (except with `Exact` and
`Close`), since they address nothing.
"""

from __future__ import annotations

from compiler_core.tools.testing.known_differences import KNOWN_DIFFERENCES, ignore_known_differences
from compiler_core.tools.testing.object_trees import Comparison
from compiler_core.tools.testing.observed_run import Inputs, ObservedRun, leaked_tensors, observe, watch_tensors
from compiler_core.tools.testing.programs import (
    Expected,
    break_kinds,
    calls,
    check,
    difference,
    graph_count,
    same_as_eager,
    settings,
)
from compiler_core.tools.testing.training import observe_training
from compiler_core.tools.testing.value_checks import AnyValue, Close, Exact, Float64Error, WithinNoise, value_check

__all__ = [
    "KNOWN_DIFFERENCES",
    "AnyValue",
    "Close",
    "Comparison",
    "Exact",
    "Expected",
    "Float64Error",
    "Inputs",
    "ObservedRun",
    "WithinNoise",
    "break_kinds",
    "calls",
    "check",
    "difference",
    "graph_count",
    "ignore_known_differences",
    "leaked_tensors",
    "observe",
    "observe_training",
    "same_as_eager",
    "settings",
    "value_check",
    "watch_tensors",
]
