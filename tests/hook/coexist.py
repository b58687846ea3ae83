# mypy: ignore-errors
"""Programs that use stock torch.compile, beside this compiler (`ours`) or `alone`; they print what stock did.

    python -m tests.hook.coexist PROGRAM ... ours|alone

Alone, nothing of Cutaway is imported, and in place of a function that this compiler has compiled, a program calls one
that is disabled for stock.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import sys
import threading
import types

import pytest
import torch
from torch._C._dynamo import eval_frame
from torch._dynamo.utils import counters

ALONE = sys.argv[-1] == "alone"
graphs = []


def backend(gm, inputs):
    graphs.append(len(gm.graph.nodes))
    return gm.forward


def stock(fn, **options):
    return torch.compile(fn, backend=backend, **options)


def ours(fn, **options):
    """Returns `fn` compiled by this compiler, which compares each call with plain Python; `fn` itself if alone."""
    if ALONE:
        return fn
    import compiler_core

    compiled = compiler_core.compile(fn, backend="eager", strict=True, **options)

    def call(*args):
        got, want = compiled(*args), fn(*args)
        assert torch.equal(got, want), (fn, got, want)
        return got

    return call


def hidden(fn):
    """Is called by code that stock compiles."""
    if ALONE:
        return torch._dynamo.disable(fn)
    import compiler_core

    return compiler_core.compile(fn, backend="eager", strict=True)


def reset_ours():
    if not ALONE:
        import compiler_core

        compiler_core.reset()


PROGRAM = """
def helper(x):
    if x.sum() > 1000:
        return x
    return x + 1


def plain(x, k=2):
    return (x * k).sin()


def broken(x):
    y = helper(x)
    print("", end="")
    return helper(y) * 2


def loops(x, n):
    for i in range(n):
        x = x + i
    return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(5)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


def count(n, x):
    return x if n == 0 else count(n - 1, x + 1)
"""


def program():
    """Returns functions that are not compiled yet, of a module that stock can import by name."""
    module = sys.modules["program"] = types.ModuleType("program")
    module.torch = torch
    exec(compile(PROGRAM, "program.py", "exec"), vars(module))
    return module


def x_of(*shape, **options):
    return torch.full(shape or (4,), 0.5, **options)


def before(p):
    one = ours(p.plain)
    one(x_of()), one(x_of(3))
    fn = stock(p.plain)
    return fn(x_of()), fn(x_of()), fn(x_of(3)), fn(x_of(7))


def after(p):
    fn = stock(p.plain)
    out = [fn(x_of())]
    one = ours(p.plain)
    one(x_of(9)), one(x_of())
    return [*out, fn(x_of()), fn(x_of(5)), fn(x_of(6)), one(x_of(2))]


def called_functions_break(p):
    one, fn = ours(p.broken), stock(p.broken)
    out = []
    for n in (4, 4, 5, 6):
        one(x_of(n))
        out.append(fn(x_of(n)))
    return out


def skipped_by_us_first(p):
    def odd(x):
        return p.broken(x) + len(locals())

    one = ours(odd)
    one(x_of()), one(x_of(5))
    fn = stock(p.helper)
    return fn(x_of()), fn(x_of(3)), fn(x_of())


def around_stock(p):
    fn = stock(p.plain)
    one = ours(lambda x: fn(x) + 1)
    return one(x_of()), one(x_of()), one(x_of(3)), fn(x_of())


def inside_stock(p):
    inner = hidden(p.plain)
    fn = stock(lambda x: inner(x + 1) * 2)
    return fn(x_of()), fn(x_of()), fn(x_of(3)), fn(x_of(5))


def inside_and_around(p):
    inner = hidden(p.plain)
    middle = stock(lambda x: inner(x) - 1)
    outer = ours(lambda x: middle(x) + inner(x))
    return outer(x_of()), outer(x_of()), outer(x_of(3))


def limits_of_both(p):
    one, fn = ours(p.loops, **({} if ALONE else {"recompile_limit": 2})), stock(p.loops, dynamic=False)
    out = []
    for n in range(1, 12):
        one(x_of(), n)
        out.append(fn(x_of(), n))
    return out


def resets(p):
    one, fn = ours(p.broken), stock(p.broken)
    out = [fn(x_of()), one(x_of())]
    reset_ours()
    out += [fn(x_of()), one(x_of())]
    torch._dynamo.reset()
    return [*out, one(x_of()), fn(x_of()), one(x_of()), fn(x_of())]


def modules(p):
    torch.manual_seed(0)
    net = p.Net()
    one, fn = ours(net.forward), stock(net)
    out = []
    for training in (True, False, True):
        net.train(training)
        one(x_of(2, 4))
        out.append(fn(x_of(2, 4)))
    net.layers[1] = torch.nn.Linear(4, 4)
    one(x_of(2, 4))
    out.append(fn(x_of(2, 4)))
    out[-1].sum().backward()
    return [*out, net.layers[1].weight.grad]


def regions_come_and_go(p):
    fn = stock(p.broken)
    out = [fn(x_of())]
    for n in range(6):
        ours(p.broken)(x_of(n + 1))
        out.append(fn(x_of()))
    return [*out, fn(x_of(9))]


def exceptions(p):
    def fails(x):
        p.helper(x)
        raise ValueError("asked for")

    one, fn = ours(fails), stock(p.helper)
    out = []
    for error in (ValueError, ValueError):
        try:
            one(x_of())
        except error:
            out.append(fn(x_of()))
    return [*out, fn(x_of(2))]


def interrupts(p):
    def interrupted(x):
        if torch.compiler.is_compiling():
            return x
        raise KeyboardInterrupt

    one, fn = ours(lambda x: interrupted(p.helper(x))), stock(p.helper)
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            one(x_of())
    return fn(x_of()), fn(x_of()), fn(x_of(2))


def threads(p):
    """Runs stock while this compiler runs in other threads."""
    stop, wrong = threading.Event(), []

    def work(n):
        one = ours(p.broken)
        try:
            while not stop.is_set():
                one(x_of(n))
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for worker in workers:
        worker.start()
    try:
        fn = stock(p.broken)
        return [fn(x_of(n)) for n in (4, 4, 5, 6, 4)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        assert not wrong, wrong


def recursion(p):
    one, fn = ours(p.count), stock(p.count)
    one(3, x_of())
    return fn(3, x_of()), fn(3, x_of()), one(3, x_of())


def gradients(p):
    fn, one = stock(p.plain), ours(p.plain)
    out = []
    for _ in range(2):
        x = x_of(requires_grad=True)
        one(x)
        fn(x).sum().backward()
        out.append(x.grad)
    with torch.no_grad():
        out.append(fn(x_of()))
    return out


def error_on_recompile(p):
    """What this compiler compiled is no earlier compile of stock's."""
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)
    one(x_of())
    with torch._dynamo.config.patch(error_on_recompile=True):
        return fn(x_of()), fn(x_of())


def fail_on_recompile(p):
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)
    out = [fn(x_of())]
    one(x_of()), one(x_of(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        out.append(fn(x_of()))
        with pytest.raises(RuntimeError, match="Detected recompile"):
            fn(x_of(3))
    return [*out, fn(x_of(3))]


def many_compiles_of_ours(p):
    """They do not count towards stock's limit, neither those in use nor those of functions that are gone."""
    one, fn = ours(leaves_to_python(p.loops), **({} if ALONE else {"recompile_limit": 20})), stock(p.loops)
    for n in range(12):
        one(x_of(), n)
        ours(leaves_to_python(p.plain))(x_of())
    other = stock(p.plain)
    return fn(x_of(), 3), fn(x_of(), 5), fn(x_of(), 7), other(x_of()), other(x_of(3)), other(x_of(5))


def closures(p):
    """Functions that share one code, of which each engine compiles every other one."""

    def scaled(k, offset):
        return lambda x: p.helper(x * k) + offset

    functions = [scaled(k, torch.full((1,), float(k))) for k in range(1, 6)]
    out = []
    for fn in functions:
        one, other = ours(leaves_to_python(fn)), stock(fn)
        out += [other(x_of()), one(x_of()), other(x_of()), one(x_of(2))]
    return [*out, *(stock(fn)(x_of(3)) for fn in functions)]


def globals_change(p):
    p.factor = 2
    exec("def of_global(x):\n    return x * factor + helper(x)", vars(p))
    one, fn = ours(leaves_to_python(p.of_global)), stock(p.of_global)
    out = []
    for p.factor in (2, 3, 2, 5):
        out += [one(x_of()), fn(x_of())]
    del p.helper
    p.helper = lambda x: x - 1
    return [*out, one(x_of()), fn(x_of())]


def stances(p):
    one, fn = ours(leaves_to_python(p.broken)), stock(p.broken)
    with torch.compiler.set_stance("force_eager"):
        out = [fn(x_of()), one(x_of())]
    out += [fn(x_of()), one(x_of())]
    with torch.compiler.set_stance("eager_on_recompile"):
        out += [fn(x_of()), fn(x_of(3)), one(x_of(3)), one(x_of())]
    return [*out, one(x_of(3)), fn(x_of(3)), fn(x_of())]


def export_and_explain(p):
    """Stock's tools that compile without the cache of the function."""
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)
    out = [one(x_of()), fn(x_of())]
    explained = torch._dynamo.explain(p.broken)(x_of())
    out.append(torch.tensor([explained.graph_count, explained.graph_break_count]))
    out.append(one(x_of(3)))
    net = p.Net().eval()
    for parameter in net.parameters():
        parameter.data.fill_(0.25)
    compiled = ours(net.forward)
    compiled(x_of(2, 4))
    exported = torch.export.export(net, (x_of(2, 4),)).module()
    return [*out, exported(x_of(2, 4)), compiled(x_of(2, 4)), fn(x_of()), fn(x_of(5)), stock(net)(x_of(2, 4))]


def reset_of_one_code(p):
    one, fn = ours(leaves_to_python(p.broken)), stock(p.broken)
    out = []
    for name in ("broken", "helper", "broken"):
        out += [one(x_of()), fn(x_of()), fn(x_of(3))]
        torch._dynamo.eval_frame.remove_from_cache(getattr(p, name))
    return [*out, fn(x_of()), one(x_of())]


def deleted_and_collected(p):
    """The compiled functions, and the code that both compiled, are freed."""
    out = []
    for n in range(3):
        exec(compile(PROGRAM, "program.py", "exec"), vars(p))
        one, fn = ours(leaves_to_python(p.broken)), stock(p.broken)
        for x in (x_of(), x_of(n + 2)):
            out += [fn(x), one(x)] if n % 2 else [one(x), fn(x)]
        del one
        gc.collect()
        out.append(fn(x_of()))
        del fn
        gc.collect()
    return [*out, ours(p.broken)(x_of()), stock(p.broken)(x_of())]


def replaced_code(p):
    """As a notebook's autoreload does."""
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)
    out = [one(x_of()), fn(x_of())]
    former = p.plain.__code__
    for code in (p.helper.__code__, former):
        p.plain.__code__ = code
        p.plain.__defaults__ = () if code is not former else (3,)
        out += [one(x_of()), fn(x_of()), fn(x_of(2)), one(x_of(2))]
    return out


def grad_modes(p):
    one, fn = ours(leaves_to_python(p.broken)), stock(p.broken)
    out = []
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.no_grad):
        with mode():
            x = x_of(requires_grad=True)
            out += [one(x), fn(x), fn(x_of()), one(x_of())]
    return [t.detach().clone() for t in out]


def sizes_marked_dynamic(p):
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)
    x = x_of(6)
    torch._dynamo.mark_dynamic(x, 0)
    out = [one(x), fn(x)]
    out += [call(x_of(n)) for n in (7, 9, 2) for call in (one, fn)]
    static, dynamic = stock(p.helper, dynamic=False), ours(leaves_to_python(p.helper), dynamic=True)
    return [*out, *(call(x_of(n)) for n in (3, 5, 8) for call in (dynamic, static))]


def optimizers(p):
    """A loop of which stock compiles the optimizer's step, and we the loss, and the other way round."""
    out = []
    for first, second in ((ours, stock), (stock, ours)):
        torch.manual_seed(0)
        net = p.Net()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        loss = first(lambda x, net=net: net(x).square().sum())
        step = second(sgd.step) if second is stock else torch.compiler.disable(sgd.step)
        for n in (2, 2, 3):
            loss(x_of(n, 4)).backward()
            step()
            sgd.zero_grad()
        out += [each.detach() for each in net.parameters()]
    return out


def hooks_in_the_backward(p):
    """What one engine compiled is called by the other's backward."""
    out = []
    for outer, inner in ((ours, stock), (stock, ours)):
        hook = inner(leaves_to_python(p.helper)) if inner is ours else inner(p.helper)
        fn = outer(leaves_to_python(p.plain)) if outer is ours else outer(p.plain)
        for n in (4, 4, 3):
            x = x_of(n, requires_grad=True)
            y = x * 2
            y.register_hook(lambda g, hook=hook: hook(g.detach()))
            fn(y).sum().backward()
            out.append(x.grad)
    return out


def generators(p):
    exec("def parts(x, n):\n    for i in range(n):\n        yield helper(x) * i", vars(p))
    exec("def total(x, n):\n    return sum(parts(x, n), helper(x))", vars(p))
    one, fn = ours(leaves_to_python(p.total)), stock(p.total)
    out = [call(x_of(), n) for n in (2, 2, 3, 1) for call in (one, fn)]
    left = p.parts(x_of(), 3)
    out += [next(left), one(x_of(3), 2), next(left), fn(x_of(3), 2), next(left)]
    return out


def backends_that_fail(p):
    """One engine's backend raises; the other one is as if alone."""

    def fails(gm, inputs):
        raise NotImplementedError("asked for")

    one, fn = ours(leaves_to_python(p.helper)), stock(p.helper)
    broken = torch.compile(p.helper, backend=fails)
    out = [one(x_of())]
    for _ in range(2):
        with pytest.raises(Exception, match="asked for"):
            broken(x_of())
        out += [one(x_of()), fn(x_of())]
    return [*out, fn(x_of(3)), one(x_of(3))]


def first_in_threads(p):
    """Both compile for the first time, each in its thread at once, and then in the main thread."""
    one, fn = ours(leaves_to_python(p.plain)), stock(p.helper)
    barrier, failed = threading.Barrier(2), []

    def work(call):
        try:
            barrier.wait()
            for n in (4, 5):
                call(x_of(n))
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(call,)) for call in (one, fn)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed
    return [fn(x_of()), one(x_of()), fn(x_of(3)), one(x_of(3)), stock(p.plain)(x_of())]


def leaves_to_python(fn):
    """Returns a function that this compiler does not capture, so that it compiles `fn` in place."""
    return lambda *args: fn(*args) * len(locals())


def combination(p, order, reset, recompiles, threads):
    """One function that both compile.

    Args:
        order: "ours_first" or "stock_first".
        reset: whose reset() is called between two calls, or "no_reset".
        recompiles: who sees other shapes.
        threads: who is called in a thread.
    """
    out = []
    one, fn = ours(leaves_to_python(p.plain)), stock(p.plain)

    def call(side, call_number):
        compiled = one if side == "ours" else fn
        x = x_of(call_number if side in recompiles else 4)
        in_thread(side in threads, lambda: out.append(compiled(x)))

    sides = ("ours", "stock") if order == "ours_first" else ("stock", "ours")
    for number in (4, 5, 6):
        for side in sides:
            call(side, number)
        if number == 5:
            {"reset_of_ours": reset_ours, "reset_of_stock": torch._dynamo.reset, "no_reset": lambda: None}[reset]()
    return out


def in_thread(wanted, run):
    """Calls `run` in a new thread if `wanted`, otherwise in this one."""
    failed = []

    def guarded():
        try:
            run()
        except BaseException as error:
            failed.append(error)

    if wanted:
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
    else:
        guarded()
    if failed:
        raise failed[0]


NONE, OURS, STOCK, BOTH = (), ("ours",), ("stock",), ("ours", "stock")
ORDERS, RESETS = ("ours_first", "stock_first"), ("no_reset", "reset_of_ours", "reset_of_stock")
COMBINATIONS = [
    *itertools.product(ORDERS, RESETS, [BOTH], [NONE, OURS, STOCK, BOTH]),
    *itertools.product(ORDERS, RESETS[:1], [OURS, STOCK], [NONE, OURS]),
]


def named(parts):
    order, reset, recompiles, threads = parts
    run = functools.partial(combination, order=order, reset=reset, recompiles=recompiles, threads=threads)
    words = [order, reset, "recompiles", *recompiles, "threads", *(threads or ["none"])]
    run.__name__ = "-".join(words)
    return run


PROGRAMS = [
    before, after, called_functions_break, skipped_by_us_first, around_stock, inside_stock, inside_and_around,
    limits_of_both, resets, modules, regions_come_and_go, exceptions, interrupts, threads, recursion, gradients,
    error_on_recompile, fail_on_recompile, many_compiles_of_ours, closures, globals_change, stances,
    export_and_explain, reset_of_one_code, deleted_and_collected, replaced_code, grad_modes, sizes_marked_dynamic,
    optimizers, hooks_in_the_backward, generators, backends_that_fail, first_in_threads,
    *map(named, COMBINATIONS),
]  # fmt: skip


def entries_of_stock(p):
    """Returns how many guards each of stock's entries for the program's functions has."""
    found = {}
    for name in ("helper", "plain", "broken", "loops", "count"):
        code = getattr(p, name).__code__
        if hasattr(eval_frame, "_get_cache_entries_for_region"):
            entries = eval_frame._get_cache_entries_for_region(code, -1)
        else:
            entries = eval_frame._debug_get_cache_entry_list(code)
        of_stock = [e for e in entries if e.code is not None and "compiler_core" not in repr(e.backend)]
        found[name] = [str(e.guard_manager).count("\n") for e in of_stock]
    return found


def main():
    for run in (each for each in PROGRAMS if each.__name__ in sys.argv):
        torch._dynamo.reset()
        graphs.clear()
        counters.clear()
        p = program()
        out = [t.tolist() for t in run(p)]
        stats = {k: dict(counters[k]) for k in ("frames", "stats")}
        breaks = sum(counters["graph_break"].values())
        print(json.dumps([run.__name__, out, list(graphs), stats, breaks, entries_of_stock(p)]))


if __name__ == "__main__":
    main()
