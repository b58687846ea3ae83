"""The questions of lessons 1 to 5: frames, bytecode, guards, graph breaks, graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compiler_core.records import Compile, Graph
from kernel_magics.workshop.measures import (
    BREAKING_LINES,
    COMPILES,
    ENTRIES,
    FRAMES,
    GRAPHS,
    LEFT_BY_A_PASS,
    NOTED,
    OPERATIONS,
    RESULT,
    RESUME_FUNCTIONS,
    STEPS_WITH_A_NODE,
)
from kernel_magics.workshop.question import Answer, Measure, Missed, Question, Ticked, Wrong

FATES = {
    "inlined": "their operations are in the graph of step",
    "compiled": "compiled, each as a separate frame",
    "plain": "run as plain Python",
    "skipped": "skipped by the hook",
}
SIZES = {"about 5": 20, "about 100": 200, "more than 200": float("inf")}
"""Ranges of numbers of guards, with what they end at."""

GUARDED = {"x": "['x']", "options['shift']": "['shift']", "options['name']": "['name']", "SCALE": "['SCALE']"}
"""Values of lesson 3, with how guards name them."""

IN_THE_GRAPH = ("add", "append", "mul", "range", "twice")
METHODS = (
    *("torch.jit.trace", "torch.jit.script", "torch.fx.symbolic_trace", "torch.fx.symbolic_trace with concrete_args"),
    *("torch.export", "torch.compile", "compiler_core.compile"),
)
NODES = ("call_function", "call_method", "call_module", "get_attr", "output", "placeholder")


def _fate(seen: Any) -> str:
    return FATES[next(each.fate for each in seen.frames if each.name == "scale")]


def _guarded(compile_: Compile) -> tuple[str, ...]:
    return tuple(name for name, text in GUARDED.items() if any(text in guard.code for guard in compile_.guards))


def _number_of_guards(compile_: Compile) -> str:
    return next(name for name, end in SIZES.items() if len(compile_.guards) < end)


def _called(compile_: Compile) -> tuple[str, ...]:
    graph = compile_.find("captured").graph
    nodes = graph.nodes if graph else []
    return tuple(name for name in IN_THE_GRAPH if any(name in each.target for each in nodes if "call" in each.op))


def _silently_wrong(comparison: Any) -> tuple[str, ...]:
    return tuple(row.method for row in comparison.rows if row.verdict == "silently wrong")


def _kinds(graph: Graph) -> tuple[str, ...]:
    return tuple(sorted({node.op for node in graph.nodes}))


def _among(words: str, find: Callable[[Any], Answer], among: Mapping[str, Any] | tuple[str, ...]) -> Measure:
    return Measure(words, find, tuple(among))


QUESTIONS = {
    "frames/jit": Question(
        ENTRIES,
        "was f compiled",
        given="Four calls were made.",
        each=("for Doubling", "for Negating"),
        wrong=(
            Wrong(
                4,
                "That is once a call. The guard holds for the second module of type Doubling: its code is used again.",
            ),
            Wrong(3, "The guard asks for the type of the module. Another object of the same type passes it."),
            Wrong(1, "The code for Doubling is wrong for Negating, and its guard refuses it."),
        ),
    ),
    "frames/compiles": Question(
        COMPILES,
        "did the four calls take",
        "A recompile happens when a guard fails. The second module of type Doubling has equal attributes.",
        wrong=(
            Wrong(4, "That is once a call. A compile is used again as long as its guards hold."),
            Wrong(3, "Guards ask for types and attributes. Two objects that agree in them pass the same guards."),
            Wrong(1, "The graph depends on the forward that was inlined, and each type has another one."),
        ),
    ),
    "frames/fate": Question(
        _among("What becomes", _fate, tuple(sorted(FATES.values()))),
        "of the two calls of scale before the call of log",
        "A function that can be captured as a whole is inlined, and its call disappears.",
        wrong=(
            Wrong(
                FATES["compiled"],
                "The hook sees frames that CPython runs. No frame of scale is run: capture went into its code.",
            ),
            Wrong(FATES["skipped"], "The hook skips what is marked, such as log. It never sees these calls."),
            Wrong(
                FATES["plain"],
                "That is the fate of code without tensor operations. scale has some, and they can be captured.",
            ),
        ),
    ),
    "frames/graphs": Question(
        GRAPHS,
        "were captured in this cell",
        each=("linspace in the cell", "step before tolist", "step after log"),
        wrong=(
            Wrong(1, "A graph ends where Python needs a value (tolist), and where a call may not be captured (log)."),
            Wrong(2, "These are the graphs of step. The cell itself calls linspace, which is a tensor operation, too."),
            Wrong(FRAMES, "That is the number of frames. A frame without tensor operations has no graph."),
        ),
    ),
    "bytecode/polynomial": Question(
        NOTED,
        "does interpret(polynomial, 'x') note",
        each=("x * x", "that times 2", "the sum with x"),
        wrong=(
            Wrong(
                2, "One of the three operators is missing: each BINARY_OP notes an operation, also one with a number."
            ),
            Wrong(4, "The line `return` is no operation: it only names the result."),
        ),
    ),
    "bytecode/left": Question(
        _among("Which of these", _called, IN_THE_GRAPH),
        "are in the captured graph",
        "The loop ran while the graph was captured, and twice was inlined: only tensor operations are left.",
        wrong=(
            Ticked(
                "range",
                "The loop ran in the interpreter. Its rounds are in the graph one after another, without a loop.",
            ),
            Ticked("append", "A list of Python is changed in the interpreter. No tensor is computed by that."),
            Ticked("twice", "The interpreter went into the call, and noted what it does: x + x."),
            Missed(
                "mul",
                "The product with i has a tensor operand, so it is an operation of the graph, although i is a number.",
            ),
            Missed("add", "Both twice and sum() add tensors."),
        ),
    ),
    "bytecode/operations": Question(
        OPERATIONS,
        "are in the captured graph of program",
        each=("x + x for i = 0", "times 0", "x + x for i = 2", "times 2", "0 + the first part", "plus the second part"),
        wrong=(
            Wrong(
                STEPS_WITH_A_NODE, "That is the number of steps that add a node. The step that calls sum() adds two."
            ),
            Wrong(4, "sum() begins with 0 and adds each part: these additions are operations, too."),
            Wrong(9, "The round for i = 1 was left out, as the condition says: the loop ran in the interpreter."),
        ),
    ),
    "bytecode/methods": Question(
        _among("Which methods", _silently_wrong, METHODS),
        "are silently wrong here",
        "A trace has only the branch that was taken when it was made. With concrete_args, arguments are constants.",
        wrong=(
            Ticked("torch.jit.script", "It compiles the text of the function, with both sides of the branch."),
            Ticked("torch.fx.symbolic_trace", "It is not silent: a proxy in a condition raises an error."),
            Ticked("torch.export", "It is not silent: it refuses a branch on a value."),
            Ticked("torch.compile", "It breaks the graph at the branch, and lets Python decide."),
            Ticked("compiler_core.compile", "It breaks the graph at the branch, and lets Python decide."),
            Missed("torch.jit.trace", "It runs the function once, and notes the operators of one side only."),
            Missed(
                "torch.fx.symbolic_trace with concrete_args",
                "The arguments are fixed, also tensors: it returns the result for those, whatever it is called with.",
            ),
        ),
    ),
    "guards/read": Question(
        _among("Which of these", _guarded, GUARDED),
        "have a guard",
        "What was not read cannot have changed the graph.",
        wrong=(
            Ticked("options['name']", "It is in the dict, but nothing reads it, so the graph does not depend on it."),
            Missed("SCALE", "A global may be assigned another value. Its number is in the graph."),
            Missed("x", "The graph is for this type, shape and device of x; its elements have no guard."),
            Missed("options['shift']", "It decided which branch is in the graph."),
        ),
    ),
    "guards/five_calls": Question(
        COMPILES,
        "are there after five calls",
        each=("for True", "for False", "for float64"),
        wrong=(
            Wrong(5, "That is once a call. Another name in the dict, or other elements, fail no guard."),
            Wrong(
                4,
                "The key 'name' is not read, and elements have no guard: one call uses a compile that is there.",
            ),
            Wrong(2, "The type of x is guarded, too: float64 needs another graph than float32."),
        ),
    ),
    "guards/hundred": Question(
        _among("How many guards", _number_of_guards, SIZES),
        "does it have",
        "Each of the hundred modules has guards, of its type, its attributes and its hooks.",
        wrong=(
            Wrong(
                "about 5", "The graph has one operation, but capture has looked at all hundred modules to know that."
            ),
            Wrong(
                "about 100",
                "That is one for each module. But several facts of each were read: its type, `i`, its forward.",
            ),
        ),
    ),
    "guards/without": Question(
        RESULT,
        "does the call without guards return for 1",
        "The old code was used. Without its guards, that is a wrong result and no error.",
        given="One more module was changed to add 1, as the first does.",
        wrong=(
            Wrong(3, "That is eager's result. The guard that sees the change of the module was not checked."),
            Wrong(1, "The first module still adds 1."),
        ),
    ),
    "breaks/bar": Question(
        GRAPHS,
        "are captured for the two calls of bar",
        each=("before the branch", "one side", "the other side"),
        wrong=(
            Wrong(1, "The branch needs a value that is known only when the program runs, so the graph ends there."),
            Wrong(2, "Either the first part or one side is missing: the part before the branch is another graph."),
            Wrong(4, "The part before the branch is captured once. Its guards hold at the second call, too."),
        ),
    ),
    "breaks/resumes": Question(
        RESUME_FUNCTIONS,
        "does the break have",
        each=("where the condition is true", "where it is false"),
        wrong=(
            Wrong(1, "The rest of bar begins at another instruction on each side of the branch."),
            Wrong(
                3, "That is the number of graphs. The part before the branch is no resume function: it is bar itself."
            ),
        ),
    ),
    "breaks/scipy": Question(
        GRAPHS,
        "does transform have",
        each=("before SciPy", "after SciPy"),
        wrong=(
            Wrong(1, "SciPy works on NumPy arrays, which are not in the graph."),
            Wrong(3, "The call of SciPy runs as plain Python between the graphs: it is in none."),
        ),
    ),
    "breaks/network": Question(
        GRAPHS,
        "does network have",
        each=("until the branch of the first layer", "from there to that of the second", "the rest"),
        wrong=(
            Wrong(
                BREAKING_LINES, "One line breaks, but it runs twice, and each time the graphs of all callers end there."
            ),
            Wrong(2, "The line runs once in each of the two layers: the graph breaks twice."),
            Wrong(
                5, "What is between the branch of the first layer and that of the second is one graph, over all frames."
            ),
            Wrong(6, "Functions that are called are inlined, so their graphs are not counted apart."),
        ),
    ),
    "breaks/stock": Question(
        GRAPHS,
        "does stock have for the two calls of bar",
        each=("before the branch", "one side", "the other side"),
        wrong=(
            Wrong(2, "Stock breaks at the same branch, and has a graph for the part before it."),
            Wrong(4, "Stock, too, uses the part before the branch again at the second call."),
        ),
    ),
    "graphs/kinds": Question(
        _among("Which kinds of node", _kinds, NODES),
        "does the captured graph have",
        "Capture goes into modules, and their parameters are inputs of the graph.",
        wrong=(
            Ticked("call_module", "That is symbolic_trace, which keeps `linear` as a call. Capture went into it."),
            Ticked(
                "get_attr", "That is symbolic_trace, which reads a parameter inside of the graph. Here it is an input."
            ),
            Missed("call_method", "`relu()` is called as a method of a tensor."),
            Missed("placeholder", "Inputs are nodes, too: rows and the parameters."),
            Missed("output", "What the graph returns is a node, too."),
            Missed("call_function", "Operators such as `+` and torch.sum are functions."),
        ),
    ),
    "graphs/dropout": Question(
        LEFT_BY_A_PASS,
        "of functions are in the graph after the pass",
        each=("linear", "gelu", "linear"),
        wrong=(
            Wrong(OPERATIONS, "That is before the pass: the call of dropout is erased."),
            Wrong(2, "gelu is a function, too. The pass removes dropout only."),
        ),
    ),
    "graphs/backend": Question(
        ENTRIES,
        "was the backend called",
        "A backend is called once for each graph, with {calls} calls in it.",
        each=("before the branch", "one side", "the other side"),
        wrong=(
            Wrong(1, "A backend gets a graph, not a function. The branch splits bar into several."),
            Wrong(
                2, "That is once a call of bar. But the backend is called when a graph is captured, not when it runs."
            ),
            Wrong(4, "The part before the branch is compiled once. Its guards hold at the second call."),
        ),
    ),
}
