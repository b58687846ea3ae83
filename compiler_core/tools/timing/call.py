"""Times a call side by side: as plain PyTorch, compiled by Cutaway, and compiled by stock torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler_core.errors import UsageError
from compiler_core.records.timings import Timings
from compiler_core.tools.timing.forms import Form, form_of, with_backward
from compiler_core.tools.timing.rounds import time_forms
from compiler_core.tools.timing.saved_state import SavedState


def time(
    fn: Callable[..., Any],
    *args: Any,
    engines: Sequence[str] | Mapping[str, Callable[..., Any]] = ("eager", "core"),
    backward: bool = False,
    seconds: float = 2.0,
    **kwargs: Any,
) -> Timings:
    """Times a call as plain PyTorch and compiled, side by side.

    The function runs hundreds of times, with the same arguments.  Afterwards, and after each sample, everything that it
    can reach is restored: tensors, gradients, parameters, optimizers, containers, attributes, global names, random
    states.  What leaves the process, such as files and printed text, is not.  With tensors on a GPU, a sample ends when
    the GPU has finished.

    Args:
        fn: the function or module.
        args, kwargs: the arguments of the call.
        engines: the forms to compare, of which the first is the reference: ``eager``, ``core``, ``pinned`` (`pin`) and
            ``stock``; ``core`` and ``stock`` also with a mode, as in ``stock:max-autotune``; or functions to call, by
            name.
        backward: also run the backward pass of the sum of the results.
        seconds: for how long all forms together are timed, besides compiling.

    Returns:
        The times, the time to compile, and the peak memory of each form.

    Raises:
        UsageError: an unknown engine, or `backward` without a result that requires a gradient.

    Example::

        print(compiler_core.time(model, x, engines=("eager", "core", "stock"), backward=True))
    """
    if isinstance(engines, Mapping):
        functions = list(engines.values())
        forms = [form_of(function, "eager", args, kwargs) for function in functions]
        for form, name in zip(forms, engines, strict=True):
            form.name = name
    else:
        functions, forms = [fn], [form_of(fn, name, args, kwargs) for name in engines]
    if not forms:
        raise UsageError("time() needs at least one engine")
    state = SavedState([*functions, args, kwargs])
    leaves = [t for t in state.tensors if t.is_leaf and t.requires_grad] if backward else []
    chosen: list[Form] = [with_backward(form) for form in forms] if backward else forms
    return time_forms(chosen, state, seconds, gradients=leaves)
