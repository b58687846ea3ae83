"""Every kind of graph break: what it means and what to do about it.

`errors.Unsupported` takes no other kinds.  docs/graph_breaks.md has two programs for each, which a test runs: one that
causes it, and one that does what the hint says and has no break.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from compiler_core.records.capture import (
    BODY_IS_COMPILED,
    BODY_OF_LOOP,
    NO_CHANGE,
    NO_CHANGE_KNOWN,
    BreakReason,
    StackLine,
)

AROUND = "This needs nothing that the function computes: enter it around the call of the compiled function."
BEFORE = "This needs nothing that the function computes: do it before the compiled function"


@dataclass(frozen=True)
class BreakingCode:
    """The user's code at a graph break."""

    expression: str = ""
    """Its source on one line; empty if the source is not known."""
    statement: str = ""
    """The name of its statement's class in `ast`: ``Assert``, ``Expr``."""
    needs_graph: bool = True
    """Whether it may use a tensor that the graph computes."""
    is_call: bool = False
    """Whether it is a call, such as that of ``max``."""
    is_loop: bool = False
    """Whether it is the head of a ``for``, which asks an iterable for an item, or makes its iterator."""
    ends_round: bool = False
    """Whether it decides on a round of a loop: the condition of ``while``, or of a ``break`` or ``continue``."""
    in_generator: bool = False
    """Whether it is in a generator, whose loops run as plain Python."""
    guards_calls: bool = False
    """Whether it is the condition of an ``if`` that computes nothing, but calls functions such as ``print``."""
    has_calls: bool = False
    """Whether it is the condition of another ``if`` whose branches also call functions such as ``print``."""
    is_target: bool = False
    """Whether it is the item that an augmented assignment changes, such as ``x[i]`` in ``x[i] += y``."""


def calls_of_branches(statement: ast.stmt) -> tuple[bool, bool]:
    """Returns `guards_calls` and `has_calls` for the condition of a statement."""
    branches = [*statement.body, *statement.orelse] if isinstance(statement, ast.If) else []
    guards_calls = bool(branches) and all(map(_only_calls, branches))
    return guards_calls, not guards_calls and any(map(_calls_for_effect, branches))


def decides_on_round(statement: ast.stmt) -> bool:
    """Returns whether the condition of a statement decides on a round of a loop (`BreakingCode.ends_round`)."""
    return isinstance(statement, ast.While) or (isinstance(statement, ast.If) and _ends_round(statement))


def _ends_round(node: ast.AST) -> bool:
    """Whether there is a ``break`` or ``continue`` in a statement, for the loop around it."""
    parts = (part for part in ast.iter_child_nodes(node) if not isinstance(part, (ast.For, ast.While, ast.FunctionDef)))
    return isinstance(node, (ast.Break, ast.Continue)) or any(map(_ends_round, parts))


def _only_calls(statement: ast.stmt) -> bool:
    """Whether a statement calls a function without using its result, or raises an error."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call or isinstance(statement, ast.Raise)


def _calls_for_effect(statement: ast.stmt) -> bool:
    """Whether a statement calls a function without using its result, and not one that computes in place."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(attr=name))):
            return not name.endswith("_")
        case ast.Expr(ast.Call()):
            return True
    return False


@dataclass(frozen=True)
class Earlier:
    """What a call may have done before some code of it, which therefore is not moved before the call."""

    draws: bool = False
    """Whether random numbers were drawn."""
    writes: bool = False
    """Whether objects or tensors from outside were changed."""

    def __or__(self, other: Earlier) -> Earlier:
        return Earlier(self.draws or other.draws, self.writes or other.writes)


@dataclass(frozen=True)
class BreakKind:
    """The documentation of one kind of break."""

    explanation: str
    hint: str = ""
    """What to do about it.  Without one, that depends on whether the code needs what the graph computes."""
    has_loop_hint: bool = False
    """Whether there is another hint for what decides on a round of a loop."""
    hint_in_call: str = ""
    """The same for what a function does that is called, such as ``max``."""
    hint_around_calls: str = ""
    """The same for the condition of an ``if`` that computes nothing: there are no two sides to choose from."""
    hint_beside_calls: str = ""
    """The same for the condition of an ``if`` that also calls functions: they are not to be called for both sides."""
    hint_at_target: str = ""
    """The same for what an augmented assignment changes, such as ``x[i]`` in ``x[i] += y``."""
    hint_unseen: str = ""
    """The same where the statement is not known, as in logs, which have only its first line."""

    def hint_for(self, code: BreakingCode) -> str:
        """Returns what to do about a break at `code`."""
        decides_on_rounds = code.is_loop if not self.hint else code.ends_round and self.has_loop_hint
        if decides_on_rounds:
            return BODY_OF_LOOP if code.in_generator else BODY_IS_COMPILED
        if self.hint_in_call and code.is_call:
            return self.hint_in_call
        if self.hint_around_calls and code.guards_calls:
            return self.hint_around_calls
        if self.hint_beside_calls and code.has_calls:
            return self.hint_beside_calls
        if self.hint_at_target and code.is_target:
            return self.hint_at_target
        if self.hint or code.needs_graph:
            return self.hint or NO_CHANGE_KNOWN
        if code.statement == "With":
            return AROUND
        return f"{BEFORE}." if code.statement == "Expr" else f"{BEFORE}, and pass the result in."


KINDS: dict[BreakReason, BreakKind] = {
    "data-dependent branch": BreakKind(
        "The branch depends on the value of a tensor, which is known only when the program runs.",
        "Compute both sides and choose with torch.where, which stays in the graph.",
        True,
        "Let a function of torch decide: torch.stack(values).max() in place of max(values), torch.stack(values).any() "
        "in place of any(values), torch.stack(values).topk(k) in place of sorted or heapq.nlargest, "
        "torch.searchsorted in place of bisect.",
        "Keep the condition as a tensor, and decide after the compiled function has returned.",
        "Compute both sides and choose with torch.where, which stays in the graph, but without the calls of the "
        "branch, such as those of a logger.  If they are needed, keep the condition as a tensor, and make them after "
        "the compiled function has returned.",
        hint_unseen="If both sides compute a value, compute both and choose with torch.where, which stays in the "
        "graph.  If a side raises, calls something for its effect or leaves a loop, keep the condition as a tensor, "
        "and decide after the compiled function has returned.",
    ),
    "assertion": BreakKind(
        "The assertion depends on the value of a tensor. A graph assumes that it holds, except on a GPU, inside a "
        "try, or with other ranks.",
        "Use torch._assert_async(condition, message), which stays in the graph and raises a RuntimeError.",
    ),
    "distribution check": BreakKind(
        "A distribution checks the values of its arguments here. A graph assumes that they are right, except on "
        "a GPU, inside a try, or with other ranks.",
        "Pass validate_args=False to the distribution, or call "
        "torch.distributions.Distribution.set_default_validate_args(False), once the program works.",
    ),
    "tensor value read": BreakKind(
        "Python needs the value of a tensor here, or a size that depends on one, which is known only when the program "
        "runs.",
        "Compute with the tensor itself (torch.sqrt(x) in place of math.sqrt(x), torch.where(mask, x, 0) in place of "
        "x[mask]), or read the value after the compiled function has returned.",
        hint_at_target="Write x[i] = x[i] + y in place of x[i] += y, which stays in the graph.",
    ),
    "NumPy": BreakKind(
        "NumPy computes this, outside of the graph; what follows is another graph.",
        "Call the function of torch that does the same, such as torch.sinc for np.sinc, on the tensor.",
    ),
    "print": BreakKind(
        "Output must be printed now and in order; it cannot wait for the graph to run.",
        "Return what is printed, and print it after the compiled function has returned.",
    ),
    "inference mode": BreakKind(
        "Inference mode is turned on or off here, and a graph runs wholly inside or outside it.",
        "Use torch.no_grad(), which a graph can hold.",
    ),
    "backward": BreakKind(
        "Gradients are computed by PyTorch's autograd engine, outside the captured graph; our compiled "
        "backward runs there.",
        NO_CHANGE["backward"],
    ),
    "gradient hook": BreakKind(
        "The program asks for the gradient of this tensor (retain_grad, register_hook, grad of a result), which "
        "autograd has only between graphs: a graph ends here, and what follows is another one.",
        NO_CHANGE["gradient hook"],
    ),
    "optimizer": BreakKind(
        "PyTorch's optimizer or gradient scaler changes parameters, gradients or the loss here, with its own kernels.",
        NO_CHANGE["optimizer"],
    ),
    "collective": BreakKind(
        "The program communicates with other ranks here in a way that a graph cannot hold, so PyTorch does it between "
        "two graphs.",
        "Use a function of torch.distributed._functional_collectives: it returns its result, and has gradients. "
        "all_reduce, broadcast, all_gather, all_gather_into_tensor, reduce_scatter_tensor and all_to_all_single of "
        "torch.distributed are captured, too, for tensors without gradients.",
    ),
    "distributed tensor": BreakKind(
        "Tensor parallelism of PyTorch works here with DTensor, whose operations communicate with other ranks; PyTorch "
        "runs them one by one.",
        "Nothing to change for right results. For one graph, let each rank have plain tensors, and reduce them with "
        "torch.distributed._functional_collectives; or use torch.compile, which captures DTensor.",
    ),
    "transform": BreakKind(
        "A transform of torch.func (vmap, grad ...) does here what a graph cannot hold, so it runs as a whole, as "
        "plain PyTorch.",
        "Let the transformed function return all that it computes: it should not keep tensors elsewhere, or write to "
        "tensors from outside.",
    ),
    "packed sequence": BreakKind(
        "A packed sequence has as many rows as the lengths of its sequences say, which are known only when the program "
        "runs.",
        "Nothing to change if an RNN takes most of the time: it is PyTorch's own kernel. For one graph, give it the "
        "padded batch and mask what follows the end of each sequence.",
    ),
    "checkpoint": BreakKind(
        "Gradient checkpointing runs this function a second time in the backward. A graph holds that only where the "
        "second run changes no object or tensor from outside, so PyTorch runs this one, and nothing in it is compiled.",
        "Remove the checkpoint, and let the compiler decide what the backward computes again: memory_budget=0.5 "
        "(--memory-budget 0.5) keeps half of the saved bytes. Or compile the function that is checkpointed.",
    ),
    "control flow": BreakKind(
        "A function that torch.cond, while_loop, map or scan calls does what a graph cannot hold. It must only compute "
        "new tensors, of the same shapes, strides and dtypes in each branch or round. PyTorch runs the operator, or "
        "raises its own error.",
        "Return new tensors (x.clone() in place of x) of the same shapes and dtypes, and write to no tensor or object "
        "from outside.",
    ),
    "custom operator": BreakKind(
        "A custom operator cannot be traced: it has no fake implementation, or its backward reads values of tensors in "
        "Python or raises an error. PyTorch calls the operator between two graphs, and its backward between theirs.",
        "Register a fake implementation (register_fake), which returns an empty tensor of the right shape and dtype. "
        "Let the backward compute with tensors only (torch.where in place of if), or call another custom operator that "
        "reads the values.",
    ),
    "sparse tensor": BreakKind(
        "A sparse tensor is used here. A graph holds dense tensors, so PyTorch computes with it between two graphs, "
        "with its own kernels.",
        "Nothing to change if little else is computed here. Otherwise compute with its indices and values as dense "
        "tensors (index_add, gather), or with to_dense() if it is small.",
    ),
    "tensor subclass": BreakKind(
        "A tensor of a class with its own kernels (__torch_dispatch__) is used here in a way that a graph cannot hold: "
        "the class, such as that of masked tensors, does not name its inner tensors (__tensor_flatten__), or this asks "
        "for more than the result of an operation, such as a new attribute. Python does it, as without the compiler.",
        "Nothing to change if little else is computed here. Otherwise keep such attributes elsewhere, or unwrap the "
        "tensor (get_data() of a masked one) before the compiled function, and wrap the results after it.",
    ),
    "clock": BreakKind(
        "A clock is read here, between what is before and after it.",
        "Read the clock before and after the compiled function.",
    ),
    "lock": BreakKind(
        "A lock is taken or released here, which must be done between what is before and after it.",
        "Take the lock before the compiled function is called, and release it after it has returned.",
    ),
    "new parameter": BreakKind(
        "A parameter is made here, directly or in a new module: Python does that, not the graph.",
        NO_CHANGE["new parameter"],
    ),
    "new optimizer": BreakKind(
        "An optimizer, a scheduler of learning rates or a gradient scaler is made here, and Python makes it.",
        NO_CHANGE["new optimizer"],
    ),
    "skipped function": BreakKind(
        "The compiler runs this function or class as plain Python.",
    ),
    "asked for": BreakKind(
        "The program called compiler_core.graph_break(), or a function that compiler_core.disable or "
        "torch.compiler.disable keeps from being compiled.",
        "Remove the call, or the mark of the function, to capture across this line.",
    ),
    "exception": BreakKind(
        "The program raises here, or PyTorch cannot run the operation on fake tensors; Python runs it.",
        NO_CHANGE["exception"],
    ),
    "unsupported call": BreakKind(
        "The compiler has no rule for this call.",
    ),
    "unsupported attribute": BreakKind(
        "The compiler has no rule for this attribute.",
    ),
    "unsupported operation": BreakKind(
        "The compiler has no rule for this operation on these values.",
    ),
    "overlapping write": BreakKind(
        "This writes to memory that overlaps itself or what is read; PyTorch's kernels refuse most such writes.",
        "Write to a clone, or to a new tensor.",
    ),
    "unsupported iteration": BreakKind(
        "An iterator is continued here, such as a generator that has started, whose items are not known while the "
        "program is captured.",
    ),
    "unsupported mutation": BreakKind(
        "The compiler cannot make this change of an object after the graph has run.",
        "Return the new value, and change the object after the compiled function has returned.",
    ),
    "unsupported instruction": BreakKind(
        "The compiler has no rule for this bytecode instruction.",
    ),
    "class statement": BreakKind(
        "A class is defined here, and Python makes classes.",
        "Define the class outside the compiled function.",
    ),
    "requires_grad": BreakKind(
        "Whether a tensor requires a gradient is set here, and autograd knows that only between graphs.",
        "Compute the gradient with torch.func.grad, which stays in the graph, or set requires_grad before the compiled "
        "function.",
    ),
    "in-place autograd.Function": BreakKind(
        "A torch.autograd.Function changes its input in place (mark_dirty). A graph holds that only for a tensor that "
        "the compiled function has made and that is no view.",
        "Return a new tensor from its forward instead of changing the input.",
    ),
    "generator": BreakKind(
        "A generator or coroutine is suspended and resumed by Python and cannot be captured here.",
    ),
    "unroll limit": BreakKind(
        "The function would unroll into too many steps.",
        "Use an operation on tensors for the whole loop, such as torch.arange(n).sum() for sum(range(n)).",
    ),
}

_KINDS_OF_MODULES: dict[str, BreakReason] = {
    "time.sleep": "skipped function",
    "time.": "clock",
    "datetime.": "clock",
    "logging.": "print",
    "_warnings.warn": "print",
    "torch.optim.": "optimizer",
    "torch.amp.grad_scaler": "optimizer",
    "torch.utils.checkpoint": "checkpoint",
    "torch.sparse": "sparse tensor",
    "torch._C._dynamo.eval_frame.set_eval_frame": "asked for",  # called by what torch.compiler.disable returns
    "torch._C._sparse": "sparse tensor",
    "torch.nested": "tensor subclass",
    "torch._C._nested": "tensor subclass",
}


def kind_of_skipped(module: str) -> BreakReason:
    """Returns the kind of the graph break at a function of this module that is not captured."""
    found = (kind for start, kind in _KINDS_OF_MODULES.items() if f"{module}.".startswith(start))
    return next(found, "skipped function")


IN_A_LOOP = (
    "{} in a loop, which cannot be split: from the loop on, {} runs as plain Python, and the functions that it calls "
    "are compiled separately."
)
IN_A_SPLIT_LOOP = (
    "{} in a loop: Python runs the loop, and its body is compiled as a function, once for all rounds for which its "
    "guards hold."
)


def in_a_loop(caller: StackLine | None, *, is_split: bool) -> str:
    """Returns what a break in a loop means; `caller`: the line in the loop, if it is a call that led to the break."""
    text = IN_A_SPLIT_LOOP if is_split else IN_A_LOOP
    if caller is None:
        return text.format("This is", "the function")
    return text.format(f"{caller.function} calls this in line {caller.lineno},", caller.function)
