# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""The public functions, also after failures and beside other compilers."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import inspect
import linecache
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import torch.nn as nn

import compiler_core as cc
import kernel_magics
from compiler_core.api.compile import record_of
from compiler_core.backends import registry as backends
from compiler_core.errors import CompilerBug, FullGraphError, UsageError
from compiler_core.hook import skip_rules
from compiler_core.tools.recording import record as recording
from compiler_core.tools.testing import check, graph_count
from tests import warm_python


def run(text):
    """Runs a program in a separate Python process, so that a crash fails the test only."""
    done = warm_python.run(["-c", textwrap.dedent(text)])
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def f(x):
    return x.sin() + 1


def test_decorator_forms():
    x = torch.ones(2)

    @cc.compile
    def one(x):
        return x + 1

    @cc.compile(backend="eager")
    def two(x, *, k=2):
        """Doc."""
        return x * k

    assert torch.equal(one(x), x + 1)
    assert torch.equal(two(x, k=3), x * 3)
    assert (two.__name__, two.__doc__) == ("two", "Doc.")

    class Thing:
        def go(self, x):
            return x + 5

        def __call__(self, x):
            return x + 6

    assert torch.equal(cc.compile(Thing().go, backend="eager")(x), x + 5)
    assert torch.equal(cc.compile(Thing(), backend="eager")(x), x + 6)


def test_methods_of_every_kind():
    class Thing:
        @cc.compile(backend="eager")
        def plain(self, x):
            return x + 1

        @cc.compile(backend="eager")
        @staticmethod
        def static(x):
            return x + 2

        @staticmethod
        @cc.compile(backend="eager")
        def static_inside(x):
            return x + 2

        @cc.compile(backend="eager")
        @classmethod
        def of_class(cls, x):
            return x + 3

        @classmethod
        @cc.compile(backend="eager")
        def of_class_inside(cls, x):
            return x + 3

    x, thing = torch.zeros(1), Thing()
    calls = [thing.plain, thing.static, Thing.static, thing.static_inside, thing.of_class, Thing.of_class_inside]
    assert [call(x).item() for call in calls] == [1, 2, 2, 2, 3, 3]
    assert len(record_of(Thing.static).compiles) == 1
    assert len(record_of(Thing.of_class).compiles) == 1


def test_partials_and_compiled_functions():
    def scaled(x, k=2):
        return x * k

    x = torch.ones(1)
    partial = cc.compile(functools.partial(scaled, k=5), backend="eager")
    assert partial(x).item() == 5
    assert len(record_of(partial).compiles) == 1
    ours = cc.compile(scaled, backend="eager")
    again = cc.compile(ours, backend="eager")
    assert again.__wrapped__ is scaled
    assert again(x).item() == 2
    assert record_of(ours).compiles == []
    stock = torch.compile(scaled, backend="eager")
    assert cc.compile(stock, backend="eager").__wrapped__ is scaled
    linear = nn.Linear(1, 1)
    assert torch.equal(cc.compile(torch.compile(linear, backend="eager"), backend="eager")(x), linear(x))

    @functools.wraps(ours)
    def around(x):
        return ours(x) + 100

    assert cc.compile(around, backend="eager")(x).item() == 102


def test_every_option_reaches_the_region_of_a_callable_object():
    class Thing:
        def __call__(self, x):
            return x + 1

    compiled = cc.compile(Thing(), backend="eager", recompile_limit=1, memory_budget=0.5)
    for n in (1, 2, 3):
        compiled(torch.ones(n))
    assert len(record_of(compiled).compiles) == 1


def test_names_and_signatures_are_kept():
    def scaled(x, k=2):
        """Doc."""

    compiled = cc.compile(scaled, backend="eager")
    assert (compiled.__name__, compiled.__doc__, compiled.__module__) == ("scaled", "Doc.", __name__)
    assert compiled.__wrapped__ is scaled
    assert inspect.signature(compiled) == inspect.signature(scaled)


def test_generators_and_coroutines_run_as_plain_python():
    def numbers(x):
        yield x + 1
        yield x + 2

    async def later(x):
        return x + 3

    x = torch.zeros(1)
    with pytest.warns(cc.RefusalWarning, match="is a generator or coroutine, which Python runs") as warned:
        generator, coroutine = cc.compile(numbers, backend="eager"), cc.compile(later, backend="eager")
    assert len(warned) == 2
    assert [v.item() for v in generator(x)] == [1, 2]
    assert asyncio.run(coroutine(x)).item() == 3
    for compiled in (generator, coroutine):
        (frame,) = record_of(compiled).frames
        assert "generator or coroutine" in frame.skipped


def test_compiled_modules_are_copied_and_pickled():
    x = torch.ones(2)
    compiled = cc.compile(nn.Linear(2, 2), backend="eager")
    want = compiled(x)
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), want)
    copied = copy.deepcopy(compiled)
    assert torch.equal(copied(x), want)
    with torch.no_grad():
        compiled.weight.add_(1)
    assert torch.equal(copied(x), want)


def test_objects_are_not_asked_for_attributes_that_they_do_not_have():
    asked = []

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

        def forward(self, x):
            return x * self.weight

    class Doubled:
        def __getattr__(self, name):
            raise KeyError(name)

        def __call__(self, x):
            return x * 2

    assert torch.equal(cc.compile(Scaled(), backend="eager")(torch.ones(3)), torch.ones(3))
    assert set(asked) == {"weight"}
    assert torch.equal(cc.compile(Doubled(), backend="eager")(torch.ones(3)), torch.full((3,), 2.0))


def test_a_compiled_module_can_get_another_class():
    """As `fully_shard` of FSDP2 gives it."""
    x, original = torch.ones(2), nn.Linear(2, 2)
    compiled = cc.compile(original, backend="eager")
    compiled.__class__ = type("Sharded", (type(compiled),), {})
    assert type(compiled).__name__ == "Sharded"
    assert type(original) is nn.Linear
    assert torch.equal(compiled(x), original(x))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "warp"}, "eager"), ({"dynamic": 1}, "dynamic"), ({"memory_budget": 2}, "memory_budget"),
        ({"recompile_limit": 0}, "recompile_limit"), ({"recompile_limit": "8"}, "integer"),
        ({"fullgraph": 1}, "True or False"), ({"target": "sm_1"}, "sm_90"),
    ],
)  # fmt: skip
def test_wrong_options(options, text):
    with pytest.raises(UsageError, match=text):
        cc.compile(f, **options)


@pytest.mark.parametrize(("thing", "text"), [(3, "int"), (dict, "class"), (None.__init__, "compile")])
def test_wrong_things_to_compile(thing, text):
    with pytest.raises(UsageError, match=text):
        cc.compile(thing)


def test_record_of_something_else():
    with pytest.raises(UsageError, match="not made by"):
        record_of(f)


def test_backend_that_is_a_callable():
    log = []

    def backend(gm, examples):
        log.append([tuple(e.shape) for e in examples])
        return gm.forward

    record = check(f, backend=backend)
    assert log == [[(4, 4)]]
    assert graph_count(record) == 1


@pytest.mark.parametrize("name", [n for n in backends.backend_names() if n in ("eager", "aot_eager", "cpp")])
def test_backends_agree(name):
    def program(x, y):
        z = (x @ y).relu()
        if z.sum() > 1e9:
            return z
        return torch.softmax(z, -1), x.t()

    check(program, grad=True, backend=name, tolerance=1e-5)


def test_record_collects_what_is_compiled_inside():
    compiled = cc.compile(f, backend="eager")
    with recording("mine") as record:
        compiled(torch.ones(2))
        compiled(torch.ones(3))
    assert [c.id for c in record.compiles] == ["0/0", "0/1"]
    with recording() as later:
        compiled(torch.ones(2))
    assert later.compiles == []


@pytest.mark.parametrize("engine", ["core", "torch"])
def test_explain(engine):
    def program(x):
        y = x + 1
        print("", end="")
        return y * 2

    for _ in range(2):  # stock has compiled it before
        explanation = cc.explain(program, torch.ones(2), engine=engine)
        assert (explanation.graph_count, explanation.op_count, len(explanation.break_reasons)) == (2, 2, 1)
        text = str(explanation)
        assert "print" in text
        assert "hint" in text


def test_a_module_is_explained_more_often_than_stock_recompiles():
    layer = nn.Linear(2, 3)
    for _ in range(10):
        assert cc.explain(layer, torch.ones(2), engine="torch").op_count == 1


@pytest.mark.parametrize("use", [cc.explain, cc.assert_compiles])
def test_there_are_two_engines(use):
    with pytest.raises(cc.errors.UsageError, match="unknown engine 'stock'; choose from core and torch"):
        use(torch.sin, torch.ones(2), engine="stock")


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + x)


def test_export():
    net = nn.Sequential(Residual(), Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)).eval()
    x = torch.randn(2, 3, 8, 8)
    graph = cc.export(net, x)
    assert isinstance(graph, torch.fx.GraphModule)
    targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert sum("conv2d" in t for t in targets) == 2


def test_export_of_a_program_that_breaks():
    def bar(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    with pytest.raises(FullGraphError, match="data-dependent branch") as error:
        cc.export(bar, torch.randn(3), torch.randn(3))
    assert "if b.sum() < 0:" in str(error.value)


def test_reset_forgets():
    compiled = cc.compile(f, backend="eager")
    compiled(torch.ones(2))
    before = record_of(compiled)
    cc.reset()
    compiled(torch.ones(2))
    assert [len(r.compiles) for r in (before, record_of(compiled))] == [1, 1]


def test_disable_and_graph_break_in_plain_python():
    calls = []

    @cc.disable
    def plain(x):
        calls.append(1)
        return x + 1

    cc.graph_break()
    assert torch.equal(plain(torch.ones(1)), torch.ones(1) + 1)
    compiled = cc.compile(lambda x: plain(x) * 2, backend="eager", strict=True)
    assert torch.equal(compiled(torch.ones(1)), torch.tensor([4.0]))
    assert torch.equal(compiled(torch.ones(1)), torch.tensor([4.0]))
    assert len(calls) == 3


def test_a_bug_of_ours_never_reaches_the_user(monkeypatch):
    from compiler_core.pipeline import frame as pipeline
    from compiler_core.resume import frame_codegen

    def broken(*args, **kwargs):
        raise AssertionError("injected")

    for owner, name in [
        (frame_codegen.FrameCode, "generate"), (pipeline, "verify"), (pipeline.Interpreter, "step"),
        (pipeline.GuardTree, "build"),
    ]:  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            compiled = cc.compile(f, backend="eager")
            x = torch.ones(3)
            with pytest.warns(cc.CompileWarning, match="AssertionError: injected"):
                assert torch.equal(compiled(x), f(x)), name
            (compile_,) = record_of(compiled).compiles
            assert compile_.outcome == "failed"
            assert "injected" in compile_.failures[0].message
            with pytest.raises(CompilerBug, match="injected"):
                cc.compile(f, backend="eager", strict=True)(x)
        assert torch.equal(cc.compile(f, backend="eager", strict=True)(x), f(x))


@pytest.mark.parametrize("package", [cc, kernel_magics])
def test_public_names_are_documented_and_complete(package):
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in package.__doc__ or name.endswith("_ipython_extension")  # names that IPython calls


def test_interrupt_during_a_compile(monkeypatch):
    from compiler_core.pipeline import frame as pipeline

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    compiled = cc.compile(f, backend="eager")
    x = torch.ones(3)
    for owner, name in [(pipeline.Interpreter, "step"), (pipeline, "verify"), (pipeline.GuardTree, "build")]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                compiled(x)
    assert torch.equal(compiled(x), f(x))
    assert record_of(compiled).compiles[-1].outcome == "compiled"


def test_grad_mode_is_kept_by_a_failed_capture():
    def program(x):
        with torch.no_grad():
            y = x + 1
            raise ValueError("inside")
        return y

    compiled = cc.compile(program, backend="eager", strict=True)
    with pytest.raises(ValueError, match="inside"):
        compiled(torch.ones(1))
    assert torch.is_grad_enabled()


def test_threads():
    compiled = cc.compile(lambda x, n: (x * n).sum(), backend="eager", strict=True, recompile_limit=20)
    wrong = []

    def work(n):
        for _ in range(5):
            x = torch.full((n,), 2.0)
            if compiled(x, n).item() != 2.0 * n * n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_called_from_another_compiled_function():
    inner = cc.compile(lambda x: x + 1, backend="eager", strict=True)
    outer = cc.compile(lambda x: inner(x) * 2, backend="eager", strict=True)
    for _ in range(2):
        assert torch.equal(outer(torch.ones(2)), torch.full((2,), 4.0))


def test_one_function_compiled_twice():
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    one, two = cc.compile(f, backend=backend), cc.compile(f, backend="eager")
    x = torch.ones(2)
    assert torch.equal(one(x), two(x))
    assert torch.equal(one(x), two(x))
    assert len(graphs) == 1
    assert len(record_of(two).compiles) == 1


def test_beside_stock_torch_compile():
    """Each compiler has its own cache entries for a function: called before, after, inside and around the other."""
    out = run(
        """
        import torch, compiler_core as cc
        from compiler_core.api.compile import record_of
        seen = []
        def stock_backend(gm, inputs):
            seen.append(len(gm.graph.nodes))
            return gm.forward
        def helper(x):
            return x.cos() + 1
        def f(x):
            y = helper(x)
            if y.sum() > 100:
                return y
            return y * 2
        x = torch.ones(3)
        want = f(x)
        stock = torch.compile(f, backend=stock_backend)
        ours = cc.compile(f, backend="eager", strict=True)
        for _ in range(2):
            assert torch.equal(ours(x), want) and torch.equal(stock(x), want)
        n, m = len(seen), len(record_of(ours).compiles)
        assert n >= 1 and m >= 2, (n, m)
        for _ in range(3):
            assert torch.equal(stock(x), want) and torch.equal(ours(x), want)
        assert (len(seen), len(record_of(ours).compiles)) == (n, m)
        around = cc.compile(lambda x: stock(x) + 1, backend="eager", strict=True)
        inside = torch.compile(lambda x: ours(x) + 1, backend=stock_backend)
        for _ in range(2):
            assert torch.equal(around(x), want + 1)
            assert torch.equal(inside(x), want + 1)
        cc.reset()
        assert torch.equal(stock(x), want) and torch.equal(ours(x), want)
        torch._dynamo.reset()
        assert torch.equal(ours(x), want) and torch.equal(stock(x), want)
        assert torch.equal(f(x), want)
        print("fine")
        """
    )
    assert out.strip() == "fine"


def test_objects_die_and_ids_are_used_again():
    """Cache entries keep no captured object alive; the guard on a dead object does not match a new one with its id."""
    out = run(
        """
        import gc, weakref, torch, compiler_core as cc
        class Model(torch.nn.Module):
            def __init__(self, k):
                super().__init__()
                self.k = k
                self.w = torch.nn.Parameter(torch.full((2,), float(k)))
            def forward(self, x):
                return x * self.w + self.k
        def apply(m, x):
            return m(x)
        compiled = cc.compile(apply, backend="eager", strict=True, recompile_limit=4)
        for k in range(30):
            m = Model(k)
            x = torch.ones(2)
            assert torch.equal(compiled(m, x), x * m.w + m.k)
            dead = weakref.ref(m)
            del m
            gc.collect()
            assert dead() is None
        print("fine")
        """
    )
    assert out.strip() == "fine"


def test_guards_on_odd_objects_do_not_crash():
    out = run(
        """
        import collections, torch, compiler_core as cc
        class Slots:
            __slots__ = ("a",)
        class Meta(type): pass
        class Odd(dict, metaclass=Meta): pass
        class Evil:
            def __getattribute__(self, name):
                return object.__getattribute__(self, name)
            def __eq__(self, other): raise RuntimeError("no")
        def program(x, o):
            return x + 1, getattr(o, "a", None), o
        compiled = cc.compile(program, backend="eager", recompile_limit=100)
        s = Slots(); s.a = 3
        things = [s, Odd(a=1), Evil(), collections.defaultdict(list), collections.deque([1]), {1: 2}, {None: 1}, (),
                  {("a", 1): 2}, {torch.float32: 1}, {int: 1}, range(3), slice(1), b"x", 2**70, 1j, float("nan"), len,
                  type, torch, torch.Size([1]), iter([1]), {1, 2}, frozenset([1]), lambda: 1, Evil, object(),
                  torch.nn.Linear(1, 1), torch.Generator(), torch.device("cpu"), "s", None, Ellipsis, NotImplemented]
        for _ in range(2):
            for o in things:
                a, b, c = compiled(torch.ones(1), o)
                assert c is o, o
                assert b is getattr(o, "a", None) or b == getattr(o, "a", None)
        def loop(x, o):
            return x + 1, list(o), len(o)
        compiled = cc.compile(loop, backend="eager", recompile_limit=100)
        for o in things:
            try:
                want = list(o), len(o)
            except Exception:
                continue
            for _ in range(2):
                got = compiled(torch.ones(1), o)[1:]
                assert got == want, (o, got, want)
        print("fine")
        """
    )
    assert out.strip() == "fine"


def test_compiled_code_outlives_what_made_it():
    out = run(
        """
        import gc, torch, compiler_core as cc
        def make(k):
            def program(x):
                y = x + k
                print("", end="")
                return y * k
            return cc.compile(program, backend="eager", strict=True)
        kept = [make(k) for k in range(5)]
        for k, f in enumerate(kept):
            assert torch.equal(f(torch.ones(1)), (torch.ones(1) + k) * k)
        del kept, f
        gc.collect()
        cc.reset()
        gc.collect()
        print("fine")
        """
    )
    assert out.strip() == "fine"


def test_record_is_there_before_anything_else_was_imported():
    program = "import compiler_core\nwith compiler_core.record() as made: pass\nprint(type(made).__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Record"


# ---------------------------------------------------------------- graph modules


def test_graph_modules_are_captured_like_other_modules():
    linear = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
    traced, x = torch.fx.symbolic_trace(linear), torch.randn(3, 4)
    compiled, called = cc.compile(traced, backend="eager"), cc.compile(lambda x: traced(x) * 2, backend="eager")
    exported = cc.compile(torch.export.export(linear, (x,)).module(), backend="eager")
    with cc.record() as record:
        assert torch.equal(compiled(x), linear(x))
        assert torch.equal(called(x), linear(x) * 2)
    assert not [b for c in record.compiles for b in c.breaks]
    with cc.record() as of_export:
        assert torch.equal(exported(x), linear(x))
    graphs = [a.graph for a in (*record.artifacts, *of_export.artifacts) if a.pane == "captured"]
    assert [any("relu" in node.target for node in graph.nodes) for graph in graphs] == [True] * 3
    assert any(s.name.startswith("<graph module") and "def forward(self, input" in str(s) for s in record.sources)

    traced.graph.find_nodes(op="call_module", target="1")[0].args = (next(iter(traced.graph.nodes)),)
    traced.recompile()  # leaves the linear layer out
    for _ in range(2):
        assert torch.equal(compiled(x), x.relu())
        assert torch.equal(called(x), x.relu() * 2)
    traced.get_submodule("1").register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(compiled(x), x.relu() + 1)
    assert torch.equal(called(x), (x.relu() + 1) * 2)


def test_the_source_of_a_graph_module_is_freed_with_it():
    """Each change of the graph has another source, and a session may change it many times."""

    def sources():
        return {name for name in linecache.cache if name.startswith("<graph module")}

    before, files = sources(), set(skip_rules._user_graphs)
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 5), nn.ReLU()))
    compiled = cc.compile(traced, backend="eager")
    for _ in range(3):
        traced.recompile()
        compiled(torch.randn(3, 4))
    gc.collect()
    assert len(sources() - before) == 1
    del compiled, traced
    gc.collect()
    assert sources() <= before
    assert skip_rules._user_graphs <= files


@pytest.mark.parametrize("function", [torch.sin, torch.Tensor.sin, torch.ops.aten.sin, torch.ops.aten.sin.default])
def test_functions_that_are_not_written_in_python(function):
    with cc.record() as record:
        compiled = cc.compile(function, backend="eager")
        x = torch.randn(3)
        assert torch.equal(compiled(x), x.sin())
    assert {c.outcome for c in record.compiles} == {"compiled"}
    assert cc.compile(len)([1, 2]) == 2
    assert cc.compile(torch.sin).__name__ == "sin"


def test_a_class_of_modules():
    @cc.compile
    class Scale(torch.nn.Module):
        """Scales."""

        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() * self.factor

    assert isinstance(Scale, type)
    assert Scale.__doc__ == "Scales."
    x, seen = torch.randn(3), []
    with cc.record() as record:
        model = Scale()
        model.register_forward_hook(lambda *_: seen.append(1))
        assert torch.equal(model(x), x.sin() * 3)
    assert seen == [1]
    assert [c.outcome for c in record.compiles] == ["compiled"]


def test_records_that_are_equal_are_closed_one_by_one() -> None:
    with cc.record() as outer:
        with cc.record():  # equal, if it is opened in the same second
            pass
        outer.title = "another one"
        cc.compile(torch.sin)(torch.ones(2))
    assert len(outer.compiles) == 1
