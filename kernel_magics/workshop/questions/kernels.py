"""The questions of lessons 6 to 11: the partition, fusion, kernels, sizes, a whole step, stock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from compiler_core.records import Compile, Record
from kernel_magics.workshop.measures import (
    BYTES_MOVED,
    BYTES_READ,
    BYTES_WRITTEN,
    COMPILES,
    DURATION,
    EXTERNAL_CALLS,
    GRAPHS,
    KERNELS,
    LARGEST,
    RECOMPILES,
    RESUME_FUNCTIONS,
    SAVED,
    SAVED_WITHOUT_RECOMPUTATION,
    SPEEDUP,
    saved,
)
from kernel_magics.workshop.question import Measure, Missed, Question, Ticked, Wrong

VALUES = {
    "x": "primals_1",
    "first": "primals_2",
    "second": "primals_3",
    "hidden": "mm",
    "sigmoid(hidden)": "sigmoid",
    "active": "mul",
    "active.relu()": "relu",
}
"""The values of lesson 6's layer, with their nodes."""


def _saved(compile_: Compile) -> tuple[str, ...]:
    found = saved(compile_)
    return tuple(name for name, node in VALUES.items() if node in found)


def _one_kernel(records: Mapping[str, Record]) -> tuple[str, ...]:
    languages = {name: [each.language for each in record.compiles[0].kernels] for name, record in records.items()}
    return tuple(name for name, found in languages.items() if found == ["cpp"])


def _bound_by_memory(bounds: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name, bound in bounds.items() if bound == "memory")


def _accepted(trials: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, trial in trials.items() if "the same values" in str(trial))


def _first_stride(record: Record) -> int:
    """Returns the stride of the first load along the innermost loop of the naive nest."""
    naive = record.compiles[0].schedules[0].rewrites[0]
    innermost = naive.loops[-1].index
    return int(re.findall(rf"load \w+\[.*?(?:(\d+)\*)?{innermost}\b", naive.nest)[0] or 1)


def _became_numbers(compile_: Compile) -> tuple[str, ...]:
    return tuple(f"{symbol.value:.0f}" for symbol in compile_.symbols if symbol.became is not None)


QUESTIONS = {
    "joint/saved": Question(
        SAVED,
        "does the compiled forward save",
        "The backward computes the inner cosine again from x.",
        each=("x",),
        wrong=(
            Wrong(
                SAVED_WITHOUT_RECOMPUTATION,
                "So it is if nothing is computed again. The inner cosine is cheap to compute from x.",
            ),
            Wrong(0, "The backward needs the sine of x, so it needs x."),
            Wrong(3, "The derivative of a cosine needs its input, not its result. The last result is not needed."),
        ),
    ),
    "joint/layer": Question(
        Measure("Which of these values", _saved, tuple(VALUES)),
        "are saved for the backward",
        "Matrix products are not computed twice, and what the backward's products read must be in memory.",
        wrong=(
            Ticked("first", "It would be needed for the gradient of x, and x needs none."),
            Ticked("sigmoid(hidden)", "It is pointwise: the backward computes it again from hidden, which is saved."),
            Ticked("active", "It is pointwise, and only needed to make active.relu(), which is saved itself."),
            Missed("hidden", "It is the result of a matrix product, which is not computed twice."),
            Missed("x", "The gradient of first is a product with x."),
            Missed("second", "The gradient of hidden is a product with second."),
            Missed(
                "active.relu()",
                "The gradient of second is a product with it: it must be in memory, so it can as well be saved.",
            ),
        ),
    ),
    "fusion/kernels": Question(
        KERNELS,
        "are generated for the cell",
        each=("sin, add and mul",),
        wrong=(
            Wrong(
                3,
                "That is eager, a kernel for each operation. Here each reads what the one before it computes.",
            ),
            Wrong(2, "x is read by sin and mul. Both are in one loop, and the second use is in a register."),
        ),
    ),
    "fusion/read": Question(
        BYTES_READ,
        "does the kernel read",
        "Each element is read once: its second use is in a register.",
        given="x has {elements:,} elements of {itemsize} bytes, and the cell uses x twice.",
        wrong=(
            Wrong(BYTES_MOVED, "Either x is counted for each use, or what is written is counted, too."),
            Wrong(100_000, "That is the number of elements."),
            Wrong(1_600_000, "That is what the three kernels of eager read."),
        ),
    ),
    "fusion/three": Question(
        Measure("Which functions", _one_kernel, ("softmax", "two_sums", "both_ways", "product")),
        "become one generated kernel, and nothing else",
        wrong=(
            Ticked("both_ways", "One sum runs along rows, the other along columns: their loops have other ranges."),
            Ticked("product", "The matrix product is a kernel of PyTorch, which cannot be changed."),
            Missed(
                "softmax", "Both reductions run along the same row, so one loop over rows can have all five operations."
            ),
            Missed("two_sums", "Both sums read x in the same order: they are siblings, and one loop computes both."),
        ),
    ),
    "fusion/stock": Question(
        KERNELS,
        "does Inductor make of softmax",
        each=("all five operations",),
        wrong=(
            Wrong(3, "Loops are not kernels: the loops over a row for maximum, sum and result are in one kernel."),
            Wrong(5, "That is the number of operations. Inductor fuses them as our compiler does."),
            Wrong(2, "A reduction does not end a kernel, as long as what follows keeps the same rows."),
        ),
    ),
    "fusion/stride": Question(
        Measure("How many elements", _first_stride),
        "apart in memory are two loads of the innermost loop of the naive nest that follow each other",
        "The next element of a column is in the next row, which has {columns.shape[1]} elements.",
        wrong=(
            Wrong(1, "That is the next element of the row. The loop goes down a column."),
            Wrong(2048, "That is the number of rows. The next row starts after as many elements as a row has."),
            Wrong(4096, "That is the distance in bytes."),
        ),
    ),
    "kernels/read": Question(
        BYTES_READ,
        "does the kernel read",
        "{x.shape[0]} x {x.shape[1]} elements of {x.itemsize} bytes.",
        wrong=(
            Wrong(512 * 256, "That is the number of elements."),
            Wrong(BYTES_MOVED, "That includes the bytes that are written."),
            Wrong(512 * 256 * 8, "A float32 has 4 bytes, and each element is read once."),
        ),
    ),
    "kernels/written": Question(
        BYTES_WRITTEN,
        "does it write",
        "One sum of {y.itemsize} bytes for each of the {y.shape[0]} rows.",
        wrong=(
            Wrong(BYTES_READ, "x.sin() + 1 is not stored: only its sum over each row is."),
            Wrong(512, "That is the number of rows."),
            Wrong(1024, "The sum runs over the last dimension, so one number is left for each row."),
        ),
    ),
    "kernels/memory": Question(
        Measure("Which of the two", _bound_by_memory, ("adds", "sines")),
        "is limited by memory on an {device}",
        "For 8 bytes, adds does 1 operation and sines 80. The GPU does {ridge:.1f} in the time of one byte.",
        wrong=(
            Ticked(
                "sines", "It moves as many bytes as adds, but does 80 operations on each element before it stores it."
            ),
            Missed(
                "adds", "One operation for eight bytes: the arithmetic is done long before the next bytes are there."
            ),
        ),
    ),
    "kernels/edits": Question(
        Measure("Which edits", _accepted, ("sum", "polynomial", "further")),
        "are accepted",
        "The trial runs on random numbers and compares all values and all writes.",
        wrong=(
            Ticked(
                "polynomial", "It is right near zero only, and the trial knows nothing of the range of your inputs."
            ),
            Ticked("further", "It stores outside of the buffer, at its end. The trial sees such writes."),
            Missed("sum", "sin + sin has the same bits as sin * 2."),
        ),
    ),
    "kernels/schedules": Question(
        Measure("Which schedules", _accepted, ("naive", "vectors", "kept", "late")),
        "are legal",
        "Each rewrite is applied to the nest that those before it made.",
        wrong=(
            Ticked("late", "A vector loop has vectors as its steps. Split it first, and vectorise what is inside."),
            Missed("naive", "Without rewrites, the kernel is the simplest nest: slow, but right."),
            Missed("kept", "exp is computed for the sum, and a later sweep needs it again: it may read it instead."),
        ),
    ),
    "sizes/five": Question(
        COMPILES,
        "do the five sizes take",
        each=("for 8 rows", "for any number of rows"),
        wrong=(
            Wrong(4, "That is once for each size. When a size has changed, it becomes a symbol."),
            Wrong(5, "That is once a call. 8 came twice, and a size that has changed becomes a symbol."),
            Wrong(1, "The first compile is for the size that it saw. No dimension was marked as dynamic."),
        ),
    ),
    "sizes/condition": Question(
        LARGEST,
        "rows may a call have at most, to use the code of that branch again",
        "The condition is {condition}.",
        wrong=(
            Wrong(100, "The condition is on rows * 2 + 4, not on rows."),
            Wrong(47, "At the bound itself the answer to `> 100` is still no."),
            Wrong(49, "Insert it: 49 * 2 + 4 is greater than 100."),
            Wrong(50, "The sum with 4 is part of the condition."),
            Wrong(8, "8 is the number that was seen. The condition is noted for the symbol."),
        ),
    ),
    "sizes/branch": Question(
        COMPILES,
        "are there",
        each=("for 4", "for symbolic sizes up to 100", "for those above"),
        wrong=(
            Wrong(2, "These would be the two branches. But the first compile is for the size 4 alone."),
            Wrong(5, "That is once for each size. From the second size on, the rows are a symbol."),
            Wrong(4, "200 and 300 are on the same side of the condition, and so are 8 and 12."),
        ),
    ),
    "sizes/special": Question(
        Measure("Which of the sizes", _became_numbers, ("6", "32")),
        "of six became numbers",
        "`== 6` has one answer only for the number 6; the other condition leaves a range.",
        wrong=(
            Ticked("32", "`x.shape[1] // 2` is an expression of the symbol. No single number is needed for it."),
            Missed("6", "The condition `== 6` was true, and that holds for one number only."),
        ),
    ),
    "sizes/walk": Question(
        COMPILES,
        "are there after {calls} calls",
        each=("function for 10", "function for a symbol", "the side that was taken for 10", "the same for a symbol"),
        wrong=(
            Wrong(2, "These are those of function. The rest after the branch is another frame, with other compiles."),
            Wrong(3, "The resume function is compiled for a symbol, too, when its size changes."),
            Wrong(6, "The symbol serves 8 and 9: the last call needs no compile."),
            Wrong(8, "One side of the branch is never taken, so its resume function is never compiled."),
        ),
    ),
    "sizes/resumes": Question(
        RESUME_FUNCTIONS,
        "does the branch have",
        "A side that is never taken is not compiled.",
        each=("where the condition is true", "where it is false"),
        wrong=(
            Wrong(1, "The new bytecode must be right for both sides, so it names a function for each."),
            Wrong(4, "A function that is compiled again is still one function."),
        ),
    ),
    "step/graphs": Question(
        GRAPHS,
        "does the forward of the step have",
        "The backward runs where autograd calls it, and the optimizer's step runs as plain Python.",
        each=("the model and its loss",),
        wrong=(
            Wrong(
                2,
                "The backward is not captured: it is made from the same graph, as the other half of the joint graph.",
            ),
            Wrong(
                3, "Optimizer and backward break the graph, as expected, but no tensor operation is captured from them."
            ),
            Wrong(4, "Lines are not graphs: `zero_grad`, `backward` and `step` have no captured graph."),
        ),
    ),
    "step/calls": Question(
        EXTERNAL_CALLS,
        "does the forward have",
        "Convolutions and matrix products are PyTorch's own kernels.",
        each=("the first convolution", *("a convolution of a block",) * 4, "the linear layer"),
        wrong=(
            Wrong(5, "The linear layer is a matrix product, which is a kernel of PyTorch, too."),
            Wrong(4, "There are two blocks with two convolutions each, and layers before and after them."),
            Wrong(3, "A block has two convolutions, and there are two blocks."),
        ),
    ),
    "step/bound": Question(
        SPEEDUP,
        "can the step be if the generated kernels took no time",
        "They take {share:.1%} of the time in kernels: 1 / (1 - {share:.3f}).",
        wrong=(
            Wrong(2, "Amdahl's law asks which share of the time goes away, not how many parts there are."),
            Wrong(100, "The rest of the time stays, however fast the generated kernels are."),
        ),
    ),
    "step/replay": Question(
        DURATION,
        "would the replay take",
        "One launch of the graph, then {launches} kernels in a row; launched one by one they take {before:,.0f}.",
        given="The step above launches {launches} kernels. Say that each took {each} us.",
        wrong=(
            Wrong(Measure("", lambda after: after - 10.0), "The launch of the graph itself takes time, too."),
            Wrong(10, "That is the launch. The kernels still run one after another."),
        ),
    ),
    "stock/graphs": Question(
        GRAPHS,
        "has stock captured",
        each=("before the branch", "the side that was taken"),
        wrong=(
            Wrong(1, "Stock breaks at a branch on a value, too."),
            Wrong(3, "The side that was not taken is not captured: nothing ran it."),
        ),
    ),
    "stock/recompiles": Question(
        RECOMPILES,
        "did it have",
        "From 4 to 8 rows the sizes and the number become symbolic; 16 needs no more.",
        given="The job called its function with 4, 8 and 16 rows.",
        each=("step, for its rows", "the print, for its number", "the rest of step, for its rows"),
        wrong=(
            Wrong(COMPILES, "That is the number of compiles: the first one of each frame is no recompile."),
            Wrong(
                1,
                "The print breaks the graph. Its frame and the rest of step have other guards, which fail, too.",
            ),
            Wrong(2, "Three frames have guards: step, the one with the print, and the rest."),
        ),
    ),
    "stock/kernels": Question(
        KERNELS,
        "has Inductor generated for chain",
        each=("all operations and the sum",),
        wrong=(
            Wrong(2, "The sum reads what the pointwise operations compute, in the same order: it is in their kernel."),
            Wrong(8, "These are the operations. Pointwise operations that read each other are fused."),
            Wrong(9, "These are the operations. Pointwise operations that read each other are fused."),
        ),
    ),
}
