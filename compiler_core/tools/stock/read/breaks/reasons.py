"""The reason of a graph break of stock `torch.compile`, in the words that both engines share (`records.BreakReason`).

Dynamo says it as text only, which is read here and nowhere else.
"""

from __future__ import annotations

import re

from compiler_core.records.capture import BreakReason

UNSUPPORTED = "Unsupported"
"""Dynamo's exception for what breaks a graph."""
LOOP = "graph break in loop"
"""What Dynamo calls the break of a loop, after that of a line in it."""
IN_A_LOOP = "torch.compile detected a graph break in a for/while loop"
"""The beginning of what it says of a break in a loop, for which it runs the whole frame as plain Python."""
OF_CONTEXT = "Unsupported autograd.Function context"
"""The beginning of what Dynamo calls the break at a method of the ``ctx`` of an autograd.Function.  It compiles the
forward by itself only since the call of `apply` has a break."""
NOT_REBUILT = "Reconstruction failure"
"""What Dynamo calls the break of a frame that cannot be divided at an earlier break: a value cannot be rebuilt."""
DATA_DEPENDENT = "Data dependent operator"
"""What Dynamo calls the break where an operation, or an operator of Python's, needs the value of a tensor."""
SKIPPED = r"Attempted to (?:call|inline) function marked as skipped.*"
BUILTIN = "Failed to trace builtin operator"

_BY_TYPE: tuple[tuple[str, BreakReason], ...] = (
    (r"Data-dependent branching.*", "data-dependent branch"),
    (r"Data-dependent assertion failed.*|assert with non-string message", "assertion"),
    (
        r"Unsupported Tensor\.(?:item|tolist)\(\) call.*|Tensor\.tolist\(\).*|Data dependent operator"
        r"|Dynamic shape operator.*|Attempted to use `torch\.nn\.functional\.one_hot`.*",
        "tensor value read",
    ),
    (
        r"Tensor\.numpy\(\).*|attempted to trace numpy.*|numpy function.*|Unsupported ndarray.*"
        r"|ndarray\.astype.*|.*torch\.from_numpy`.*|failed to convert numpy.*",
        "NumPy",
    ),
    (r"logging\.Logger.*|attempted to reorder a debugging function.*", "print"),
    (r"Encountered (?:tensor\.is_inference|torch\.is_inference_mode_enabled).*", "inference mode"),
    (r"Unsupported Tensor\.backward\(\) call|using `torch\.autograd\.grad` with .*trace_autograd_ops.*", "backward"),
    (
        r"Compilation of intermediate hooks.*|Module-level backwards hooks.*|Storing Tensor hook handle.*"
        r"|Tensor\.retain_grad\(\).*",
        "gradient hook",
    ),
    (r"optimizer: pending mutation.*", "optimizer"),
    (r"async_op=True for distributed.*|P2P compilation disabled.*", "collective"),
    (r"Attempted to wrap sparse Tensor.*|Sparse tensor creation.*|Unsupported Tensor\.sparse_.*", "sparse tensor"),
    (r".*(?:strided NestedTensor|[Tt]ensor subclass).*", "tensor subclass"),
    (r"Attempted to use `torch\.nn\.Parameter\(\)` constructor.*|`torch\.nn\.Parameter`: .*", "new parameter"),
    (SKIPPED, "skipped function"),
    (
        r"Call to `torch\._dynamo\.(?:graph_break|skip_frame|step_unsupported)\(\)`|ComptimeContext graph break"
        r"|Skip (?:calling|inlining) `torch\.compiler\.disable\(\)`d.*",
        "asked for",
    ),
    (r"Observed exception.*", "exception"),
    (r"LOAD_BUILD_CLASS.*|Invalid call to __build_class__", "class statement"),
    (r"Missing (?:bytecode|CALL_INTRINSIC_\d) handler", "unsupported instruction"),
    (
        r"Unsupported Tensor\.requires_grad_\(\) call|setattr\(\) on Tensor\.requires_grad|.*requires_grad_\(\).*"
        r"|Attempted to use tensor creation function with requires_grad=True",
        "requires_grad",
    ),
    (r".*mark_dirty.*", "in-place autograd.Function"),
    (r"Attempt to trace generator|call_method on generator|infinite generator.*|Generator recon.*", "generator"),
    (r"missing tp_iter|Missing tp_iter\w+|Unsupported next\(\) call", "unsupported iteration"),
    (r"Failed to mutate tensor data attribute.*", "unsupported mutation"),
    (
        rf"{BUILTIN}|Unsupported (?:function|method) call.*|Unsupported context manager.*"
        r"|Attempted to copy\.deepcopy.*|Failed to convert args/kwargs to proxy"
        r"|call to a callable object with no traceable __call__"
        r"|C-implemented special method without VariableTracker model",
        "unsupported call",
    ),
)
"""By the type of the break, as the whole of it."""

_BY_EXPLANATION: tuple[tuple[str, str, BreakReason], ...] = (
    (SKIPPED, r"the function `(?:Optimizer|GradScaler|LRScheduler)\.\w+` should not be traced", "optimizer"),
    (SKIPPED, r"the function `Optimizer\.add_param_group`", "new optimizer"),  # which its constructor calls
    (SKIPPED, r"the function `GradScaler\.get_scale`", "tensor value read"),
    (SKIPPED, r"`\w+\.step` in file `.*[\\/]torch[\\/]optim[\\/]lr_scheduler\.py`", "optimizer"),
    (SKIPPED, r"builtin `(?:time|datetime)\.(?!sleep)", "clock"),
    (SKIPPED, r"`_?(?:pack|pad)_(?:padded|packed)?_?sequence`", "packed sequence"),
    (r"Unsupported method call", r"method `(?:now|utcnow|today)` of class `type`", "clock"),
    (r"Unsupported method call", r"method `(?:acquire|release)` of class `R?[Ll]ock`", "lock"),
    (r"Unsupported context manager.*", r"enter a `R?[Ll]ock` context manager", "lock"),
    (r"Unsupported method call", r"method `(?:write|writelines|flush)` of class", "print"),
    (r"C-implemented special method.*", r"implements '__(?:iter|next)__'", "unsupported iteration"),
    (r"Unsupported ndarray.*", r"ndarray\.(?:tobytes|tofile|dumps?|item|tolist)\b", "tensor value read"),
    (BUILTIN, r"builtin operator `print`", "print"),
    (SKIPPED, r"`_warnings\.warn`", "print"),
    (SKIPPED, r"function `is_dependent` in file `.*[\\/]distributions[\\/]constraints\.py`", "distribution check"),
)
"""Of types that say little: by the type and a part of the explanation."""

_BY_FILE: tuple[tuple[BreakReason, str, BreakReason], ...] = (
    ("asked for", r"torch[\\/]optim[\\/]optimizer\.py$", "optimizer"),
    ("data-dependent branch", r"torch[\\/]distributions[\\/]", "distribution check"),
    ("tensor value read", r"torch[\\/]distributions[\\/]", "distribution check"),
)
"""Of breaks in a file of PyTorch's: the reason that follows from the above, the file, and the reason there."""


def reason_of(kind: str, explanation: str, filename: str = "") -> BreakReason:
    """Returns the reason of a break with this type and explanation of Dynamo's, in this file."""
    other: BreakReason = "other"
    found = next((reason for type_, reason in _BY_TYPE if re.fullmatch(type_, kind)), other)
    for type_, part, reason in _BY_EXPLANATION:
        if re.fullmatch(type_, kind) and re.search(part, explanation):
            found = reason
    return next((there for here, file, there in _BY_FILE if here == found and re.search(file, filename)), found)
