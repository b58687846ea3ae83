# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Differences from eager that random programs, CPython's tests or people found, as small programs.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import copy
import enum
import functools
import itertools
import math
import re
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import compiler_core
from compiler_core.tools.testing import Expected, break_kinds, check, difference, observe, same_as_eager
from tests.sampling import pairs, sample

pytestmark = pytest.mark.slow

COUNT = 0
AHEAD_OF_TIME = ["aot_eager", "cpp"]
LOG = []


@same_as_eager(graphs=0, breaks=["tensor value read"], inputs=lambda: (torch.arange(300),))
def test_list_display_around_a_break(x):
    return [*x.tolist(), 0]


@pytest.mark.cpu
@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_after_a_side_effect(x, i):
    LOG.append(1)
    return x[i]


@pytest.mark.cpu
@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_inside_try(x, i):
    try:
        with torch.no_grad():
            return x[i] + 1
    except IndexError as error:
        LOG.append(str(error))
    return x.cos(), torch.is_grad_enabled()


@pytest.mark.cpu
@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_inside_no_grad(x, i):
    with torch.no_grad():
        return x[i] + 1


@pytest.mark.cpu
@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_after_drawing(x, i):
    y = torch.rand(3)
    try:
        return (x + y)[i]
    except IndexError:
        return y, torch.rand(3)


@pytest.mark.cpu
@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5]), [1], {"k": 2}))
def test_graph_fails_with_every_kind_of_argument(x, i, l, d):
    def inner(a, /, b, *rest, c=1, **more):
        l.append(a)
        try:
            return (x * d["k"])[b]
        except IndexError:
            return a, b, rest, c, more, l

    return inner(1, i, 2, 3, c=4, e=5)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(4), torch.randn(4, 4, dtype=torch.float64), [1]))
def test_sizes_agree_and_types_do_not(x, w, l):
    l.append(2)
    return F.linear(x, w)


@same_as_eager(graphs=1, breaks=[])
def test_merged_ordered_dicts(x):
    a, b = collections.OrderedDict(a=x), {"a": x + 1, "b": 2}
    return a | b, b | a, b | b, a | a


@same_as_eager(breaks=[], inputs=lambda: (torch.randn(3), 2.5))
def test_range_of_a_float(x, n):
    y = x + 1
    try:
        return range(n), y
    except TypeError as error:
        return str(error), y


class Plain:
    def __init__(self, n=1):
        self.n = n

    def add(self, x):
        return x + self.n


@same_as_eager(
    breaks=[],
    inputs=[lambda: (torch.ones(2), Plain().add), lambda: (torch.ones(2), Plain(2)), lambda: (torch.ones(2), 3)],
)
def test_method_or_something_else(x, m):
    return x + 1, m, [m, m]


def equal_functions():
    """Two functions with equal code and different globals, as two copies of a module have."""
    text = "def raises(x):\n    y = x + 1\n    print('here')\n    raise Wrong(str(y.sum().item()))\n"
    spaces = [{"Wrong": type("Wrong", (ValueError,), {})} for _ in range(2)]
    for space in spaces:
        exec(compile(text, "equal_functions.py", "exec"), space)
    return spaces


@same_as_eager(inputs=lambda: (torch.ones(2), equal_functions()))
def test_equal_code_with_other_globals(x, spaces):
    caught = []
    for space in spaces:
        try:
            space["raises"](x)
        except space["Wrong"] as error:
            caught.append(str(error))
    return caught


def shared_twice():
    i = 5

    def inner(x):
        c = [(lambda: i) for i in range(2)]
        return x + 1, i, [f() for f in c]

    return inner


def shared_once():
    i = 5

    def inner(x):
        c = [i * 2 for i in range(2)]
        return x + 1, i, c

    return inner


test_name_free_and_shared_by_a_comprehension = same_as_eager(breaks=[])(shared_twice())
test_name_free_and_of_a_comprehension = same_as_eager(graphs=1, breaks=[])(shared_once())


@same_as_eager(graphs=1, breaks=[])
def test_shared_name_of_a_comprehension(x):
    def g():
        return i

    i = "kept"
    c = [lambda: i for i in range(2)]
    i += "x"
    return x + 1, i, [f() for f in c], g()


@same_as_eager(inputs=[lambda: (torch.ones(1), {"a": [1]}), lambda: (torch.ones(1), {})])
def test_setdefault_of_a_key_that_was_there(x, d):
    return d.setdefault("a"), x + 1


@same_as_eager(inputs=[lambda: (torch.ones(1), {"a": 1}), lambda: (torch.ones(1), {})])
def test_key_that_was_there_inside_try(x, d):
    try:
        return d["a"], x + 1
    except KeyError:
        return "none", x


@same_as_eager(inputs=lambda: (torch.ones(1), Plain()))
def test_attribute_deleted_and_set_again(x, p):
    p.m = 1
    del p.n
    p.n = x + 1
    return p


@same_as_eager(inputs=lambda: (lambda p: (torch.ones(1), vars(p), p))(Plain()))
def test_object_beside_its_dict(x, d, p):
    p.n += 1
    d["a"] = 5
    p.n += 1
    return d["n"], p, x + 1


@same_as_eager(graphs=1, breaks=["class statement"])
def test_break_in_a_generator(x):
    def generate():
        class Local:
            pass

        yield Local.__name__

    return next(generate()), x + 1


class Shy(enum.IntFlag):
    A = 1

    def __repr__(self):
        LOG.append("repr")
        return "shy"


@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.ones(1), Shy.A, {Shy.A: 2}))
def test_guarded_value_with_a_repr_of_its_own(x, flag, d):
    return x + d[flag] if flag == Shy.A else x


class Meta(type):
    @functools.cached_property
    def prop(cls):
        LOG.append("prop")
        return 1


class Made(metaclass=Meta):
    pass


@same_as_eager(changes=["LOG"], breaks=["unsupported attribute"])
def test_descriptor_of_a_metaclass_is_left_to_python(x):
    try:
        return Made.prop, x + 1
    except TypeError as error:
        return str(error), x


@same_as_eager(graphs=1, breaks=[])
def test_class_lacks_an_attribute(x):
    return hasattr(Made, "nothing"), getattr(Made, "nothing", 1), x + 1


@functools.lru_cache(maxsize=None)
def cached_length(key):
    return len(LOG)


@same_as_eager(graphs=2, breaks=["unsupported call", "unsupported call"], changes=["LOG"])
def test_cached_function_reads_what_the_frame_changed(x):
    y = x.sin()
    cached_length.cache_clear()
    LOG.append(1)
    return y + cached_length(0)


class Sized:
    def __init__(self):
        self.size = 1

    @functools.lru_cache(maxsize=None)
    def area(self):
        return self.size**2


@same_as_eager(graphs=1, breaks=["unsupported call"], inputs=lambda: (torch.ones(2), Sized()))
def test_cached_method_reads_what_the_frame_changed(x, sized):
    sized.size = 3
    return x + sized.area()


@functools.lru_cache(maxsize=None)
def cached_root(n):
    return math.isqrt(n)


@same_as_eager(graphs=1, breaks=[], changes=["LOG"])
def test_cached_function_of_numbers_after_a_change(x):
    LOG.append(1)
    return x + cached_root(16)


@functools.lru_cache(maxsize=0)
def keeps_nothing(n):
    LOG.append(n)
    return len(LOG)


@same_as_eager(graphs=1, breaks=["unsupported call"], changes=["LOG"])
def test_cache_that_keeps_nothing(x):
    return x + keeps_nothing(1)


@functools.lru_cache(maxsize=None)
def cached_tuple(n):
    return (n, [n])


@same_as_eager(graphs=1, breaks=[])
def test_cached_answer_is_one_object(x):
    return cached_tuple(4) is cached_tuple(4), cached_tuple(4)[1] is cached_tuple(4)[1], x + 1


@same_as_eager(graphs=0, breaks=["generator"])
def test_generator_closed_when_it_is_dropped(x):
    def gen():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    log = []
    g = gen()
    next(g)
    del g
    log.append("after")
    first = list(itertools.islice(gen(), 1))
    log.append("islice")
    second = list(zip(gen(), [1]))
    log.append("zip")
    return log, first, second, x + 1


def counters(shared):
    """A function that counts and one that reads: of one cell, or each of a different one."""

    def make():
        n = 0

        def count():
            nonlocal n
            n += 1

        def read():
            return n

        return count, read

    count, read = make()
    return (count, read) if shared else (count, make()[1])


def count_and_read(x, count, read):
    count()
    return x + read(), read()


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_cells_that_are_shared_in_one_call_only(order):
    inputs = [lambda shared=shared: (torch.ones(2), *counters(shared)) for shared in order]
    check(count_and_read, inputs, Expected(graphs=2, breaks=[], compiles=2))


def test_cells_that_are_only_read_shared_in_one_call_only():
    def shared():
        n = 1
        return (lambda: n), (lambda: n)

    first, second = shared()
    other = types.FunctionType(second.__code__, second.__globals__, "<locals>", None, (types.CellType(5),))

    def program(x, a, b):
        return x + a() * 10 + b()

    check(program, [lambda: (torch.ones(2), first, second), lambda: (torch.ones(2), first, other)], Expected(2, [], 2))


def test_one_code_with_other_globals():
    def make():
        return lambda: SCALE

    one = make()
    others = [types.FunctionType(one.__code__, {"SCALE": n}, "make", None) for n in (2, 3)]

    def program(x, fn):
        return x * fn()

    check(program, [lambda fn=fn: (torch.ones(2), fn) for fn in others], Expected(2, [], 2))


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        LOG.append(str(fn))
        return fn(*args, **(kwargs or {}))


class WatchingCalls(TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        LOG.append(fn.__name__)
        return fn(*args, **(kwargs or {}))


def counted_flops():
    return FlopCounterMode(display=False)


def seen_by(mode, fn, *args):
    LOG.clear()
    with mode() as at_work:
        result = fn(*args)
    flops = at_work.get_total_flops() if isinstance(at_work, FlopCounterMode) else None
    return result, list(LOG), flops, LOG.clear()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("backend", ["eager", "cpp"])
@pytest.mark.parametrize("mode", [Watching, WatchingCalls, counted_flops])
@pytest.mark.parametrize("size", [3, torch.ones(3, 3)])
def test_compiled_code_called_within_a_mode(mode, backend, warm, size):
    def program(size):
        x = torch.ones(size, size) if isinstance(size, int) else size
        return (x.cos() @ x) * 2

    compiled = compiler_core.compile(program, backend=backend, strict=True)
    if warm:
        compiled(size)
    want = seen_by(mode, program, size)
    for _ in range(2):
        assert difference(want, seen_by(mode, compiled, size), 1e-6) is None
    assert difference(program(size), compiled(size), 1e-6) is None


@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_compiled_code_called_with_other_default_devices(backend):
    def program(n):
        return torch.ones(n) * 2

    compiled = compiler_core.compile(program, backend=backend, strict=True)
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            assert compiled(3).device.type == device
        assert compiled(3).device.type == torch.get_default_device().type


@same_as_eager(graphs=1, breaks=["skipped function", "skipped function"], changes=["LOG"])
def test_a_mode_entered_in_the_frame(x):
    y = x.sin()
    with Watching():
        y = y.cos()
    return y + 1


@same_as_eager(inputs=[lambda: (None,), lambda: (torch.ones(2),), lambda: ([1.0],), lambda: (torch.ones(3),)])
def test_what_is_a_tensor_is_guarded(x):
    return torch.is_tensor(x), x if x is None else torch.as_tensor(x)


@same_as_eager(inputs=lambda: (torch.ones(2), 2.5))
def test_slice_of_a_list_by_a_float(x, n):
    try:
        return [x][n:]
    except TypeError as error:
        return str(error)


settings = types.ModuleType("settings")


def test_what_a_module_lacks_is_guarded():
    compiled = compiler_core.compile(
        lambda x: x + 1 if hasattr(settings, "fast") else x - 1, backend="eager", strict=True
    )
    assert compiled(torch.ones(1)).item() == 0
    settings.fast = True
    try:
        assert compiled(torch.ones(1)).item() == 2
    finally:
        del settings.fast


def unbound_cells():
    def program(x, n):
        if n > 5:
            total = x * 2
        print("here")
        y = x + 1
        return [total + y for _ in range(2)], lambda: total

    return program


def test_a_cell_without_a_value_after_a_break():
    check(unbound_cells(), [lambda: (torch.ones(2), 1), lambda: (torch.ones(2), 9)])


@pytest.mark.cpu
@same_as_eager(changes=["LOG"], inputs=lambda: (torch.ones(4), torch.tensor([5])))
def test_graph_fails_after_a_write(x, i):
    x.add_(1)
    LOG.append(1)
    try:
        return x[i]
    except IndexError as error:
        x.mul_(2)
        return str(error), x._version


@pytest.mark.cpu
@same_as_eager(inputs=lambda: (torch.ones(4), torch.ones(4, requires_grad=True), torch.tensor([5])))
def test_graph_fails_after_a_write_that_has_gradients(x, w, i):
    x.mul_(w)
    try:
        return x[i]
    except IndexError:
        return x * 2


@pytest.mark.cpu
@same_as_eager(inputs=lambda: (torch.ones(4), torch.tensor([5])))
def test_graph_fails_after_a_write_to_data(x, i):
    x.data.add_(1)
    try:
        return x[i]
    except IndexError:
        return x * 2


@pytest.mark.cpu
def test_graph_of_any_backend_fails_after_a_write():
    def program(x, i):
        x.add_(1)
        try:
            return x[i]
        except IndexError:
            return x * 2

    def with_gradients(x, i):
        y = x.mul_(torch.ones(4, requires_grad=True))
        try:
            return y[i]
        except IndexError:
            return y * 2

    for backend in ("eager", "aot_eager", "cpp", lambda gm, inputs: gm.forward):
        check(program, lambda: (torch.ones(4), torch.tensor([5])), backend=backend)
        check(with_gradients, lambda: (torch.ones(4), torch.tensor([5])), backend=backend)


def with_view_of_input():
    x = torch.randn(4, 4)
    return x, x[0], torch.ones(4, requires_grad=True)


@same_as_eager(inputs=with_view_of_input)
def test_view_of_an_input_that_got_a_history(x, view, w):
    x[2] = w
    return x + view


@same_as_eager(inputs=lambda: (torch.randn(4, 4, requires_grad=True),), backend="aot_eager")
def test_views_before_and_after_a_write(x):
    with torch.no_grad():
        y = x.view(16)
        x.add_(1)
        z = x.view(16)[2:]
    return y, z, x.detach()


@same_as_eager(inputs=lambda: (torch.randn(4, 4, requires_grad=True),))
def test_view_that_autograd_has_lost_track_of(x):
    with torch.no_grad():
        y = x.view(4, 4)
        x.add_(1)
        print("here")
        z = y + 1
    return y, z


class Counted:
    def __init__(self):
        self.n = 1


def object_and_dict():
    return {"n": 0}, Counted()


def object_and_its_dict():
    counted = Counted()
    return vars(counted), counted


@same_as_eager(inputs=[object_and_dict, object_and_its_dict])
def test_a_dict_that_is_an_objects_own(d, counted):
    counted.n += 1
    d["n"] = 5
    return d["n"], counted.n


@same_as_eager(inputs=[object_and_dict, object_and_its_dict])
def test_a_changed_dict_that_is_an_objects_own(d, counted):
    d["n"] = 5
    return counted.n


@same_as_eager(inputs=[object_and_dict, object_and_its_dict])
def test_a_dict_that_is_a_changed_objects_own(d, counted):
    counted.n = 7
    return d["n"]


@pytest.mark.cpu
@same_as_eager(inputs=lambda: (torch.ones(4), torch.tensor([5])))
def test_graph_fails_after_writes_that_nobody_counts(x, i):
    torch.add(x, 1, out=x)
    torch._foreach_mul_([x], 3.0)
    try:
        return x[i]
    except IndexError:
        return x * 2


@same_as_eager(inputs=lambda: (torch.ones(4), torch.ones(4).expand(3, 4)))
def test_graph_fails_to_write_to_repeated_memory(x, y):
    torch.add(x, 1, out=x)
    y.normal_()


@same_as_eager(inputs=lambda: (torch.ones(4), "on"))
def test_autocast_of_no_bool(x, enabled):
    with torch.autocast("cpu", enabled=enabled):
        return x + 1


@same_as_eager(backend="cpp", tolerance=1e-5, inputs=lambda: (torch.randn(5, 6, 7),))
def test_conjugated_view_in_kernels(x):
    """A view of the memory as numbers does not have the "conjugated" bit."""
    return torch.fft.hfftn(x, s=(3, 10), dim=(1, 2)), torch.fft.fft(x).conj().real.clone()


@pytest.mark.cpu
@same_as_eager(inputs=lambda: (torch.ones(4, 4), torch.ones(4, requires_grad=True), torch.tensor([5])))
def test_an_error_after_a_history_that_stays(x, w, i):
    x[0].add_(w)
    row = x[1]
    row.add_(w)
    return x[i]


@same_as_eager(inputs=[lambda: (torch.ones(4), 1), lambda: (torch.ones(4), -3), lambda: (torch.ones(4), 5)])
def test_greatest_of_a_float_and_a_symbolic_number(x, n):
    return x.mul(max(0.5, n))


@same_as_eager(inputs=[lambda: (torch.ones(3, 4),), lambda: (torch.ones(5, 4),), lambda: (torch.ones(7, 4)[:6],)])
def test_deep_copy_of_a_tensor_of_symbolic_size(x):
    return copy.deepcopy(x) + 1


class Doubling(torch.nn.Module):
    def forward(self, x):
        return x * 2


@same_as_eager(inputs=lambda: (torch.ones(3), Doubling()))
def test_hooks_are_kept_by_the_same_keys(x, net):
    net.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return net(x)


@pytest.mark.cpu
@same_as_eager(
    inputs=lambda: (torch.ones(2, 4)[:], torch.ones(4, requires_grad=True), torch.tensor([5])), changes=["LOG"]
)
def test_graph_fails_after_a_view_got_a_history(x, w, i):
    x[0].add_(w)
    LOG.append(1)
    try:
        return x[i]
    except IndexError:
        return x * 2


@same_as_eager(inputs=[lambda n=n: (torch.ones(2), n, True) for n in (1, 3, 5)])
def test_bools_and_symbolic_numbers(x, n, b):
    return x * (n % b + (n > b) - b * n), b < n, max(n, 2)


@same_as_eager(inputs=lambda: (torch.ones(2), []))
def test_function_with_an_empty_cell(x, kept):
    try:
        n = float("a")
    except ValueError:
        kept.append(lambda: n)
    return x + 1


@same_as_eager(inputs=[lambda v=v: (torch.ones(2), v) for v in ((), [1], (2, 3), [])])
def test_tuple_of_a_tuple_depends_on_its_type(x, values):
    return x + 1, tuple(values)


@same_as_eager(inputs=[lambda v=v: (torch.ones(2), v) for v in (frozenset(), {4}, frozenset([5]))])
def test_frozenset_of_a_frozenset_depends_on_its_type(x, values):
    return x + 1, frozenset(values)


@pytest.mark.cpu
@same_as_eager(
    inputs=[lambda n=n: (torch.ones(n, 4)[:], torch.ones(4, requires_grad=True), torch.tensor([9])) for n in (2, 3, 5)],
    changes=["LOG"],
)
def test_graph_fails_after_a_view_of_symbolic_size_got_a_history(x, w, i):
    x[0].add_(w)
    LOG.append(1)
    try:
        return x[i]
    except IndexError:
        return x * 2


@same_as_eager(inputs=[lambda n=n: (torch.ones(2), n, [n]) for n in (5, 2.5, 7, 3.5, 65, 1 << 40)])
def test_texts_that_a_number_does_not_fit(x, n, kept):
    del kept[0]
    found = []
    for spec in ("04d", "c", "s", ".1f"):
        try:
            found.append(f"{n:{spec}}")
        except (ValueError, OverflowError) as error:
            found.append(str(error))
    return x + 1, found


@same_as_eager(inputs=[lambda n=n: (torch.ones(2), n, [n]) for n in (5, 2.5, 3.5)])
def test_a_text_raises_after_what_was_done_before(x, n, kept):
    del kept[0]
    return x + 1, format(n, "04d")


@same_as_eager(inputs=[lambda n=n: (torch.ones(2), n) for n in (True, False, 2, 2.5)])
def test_counting_from_a_bool(x, n):
    return x + 1, [next(itertools.count(n)), next(itertools.count(n, 2)), next(itertools.count(n, True))]


def with_a_history():
    leaf = torch.randn(4, 4, requires_grad=True)
    return leaf, leaf * 2, torch.randn(4, 4, dtype=torch.float64)


@pytest.mark.cpu
@same_as_eager(inputs=[with_a_history] * 2)
def test_graph_fails_after_an_input_with_a_history_was_written(leaf, x, other):
    log = [x + 1]
    try:
        x.relu_()
        log.append(x @ other)
    except RuntimeError:
        log.append(x * 3)
    (gradient,) = torch.autograd.grad(sum(log).sum(), leaf, retain_graph=True)
    return log, gradient


@pytest.mark.cpu
@same_as_eager(inputs=[with_a_history] * 2)
def test_graph_fails_and_so_does_what_catches_it(leaf, x, other):
    try:
        x.relu_()
        return x @ other
    except RuntimeError:
        return int("")


def functions_of_one_cell():
    n = 1

    def bump():
        nonlocal n
        n += 1
        return n

    def root(x, g):
        nonlocal n
        n = 10
        found = g()
        return x * n + found, n

    return root, bump


def _of_one_cell_or_two(first_same: bool) -> None:
    (root, own), (_, other) = functions_of_one_cell(), functions_of_one_cell()
    (wanted, its_own), (_, its_other) = functions_of_one_cell(), functions_of_one_cell()
    compiled = compiler_core.compile(root, backend="eager", strict=True)
    x = torch.randn(3)
    for same in (first_same, not first_same, first_same):
        got, want = compiled(x, own if same else other), wanted(x, its_own if same else its_other)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


def test_a_cell_of_the_frame_is_another_functions_no_longer():
    _of_one_cell_or_two(first_same=True)


def test_a_cell_of_the_frame_is_another_functions_too():
    _of_one_cell_or_two(first_same=False)


@same_as_eager(backend="cpp", tolerance=1e-5, inputs=lambda: (torch.randn(24),))
def test_running_sum_beside_a_reduction_that_comes_first(x):
    return x.cumsum(0) - x.amax()


@same_as_eager(backend="cpp", tolerance=1e-5, inputs=lambda: (torch.randn(2, 15), torch.arange(30).view(2, 15) % 2))
def test_positions_in_two_sweeps_of_a_row(x, index):
    picked = x.gather(0, index)
    return picked.exp() / picked.exp().sum(-1, keepdim=True)


@same_as_eager(backend="cpp", tolerance=1e-5, inputs=lambda: (torch.tensor(2.0),))
def test_flip_of_a_scalar(x):
    return x.sin().flip(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_compared_with_numbers_made_halves(dtype):
    near = torch.tensor([0.1, 0.3, -0.3, 0.7, 1e-8], dtype=dtype).repeat_interleave(3)
    near.view(torch.int16)[::3] += 1
    near.view(torch.int16)[2::3] -= 1

    def program(x):
        return x == 0.1, x <= 0.3, x >= -0.3, x > 0.7, torch.where(x < 0.7, 1, 2), F.hardshrink(x, 0.3), x % 0.3

    check(program, lambda: (near.clone(),), backend="cpp")


TURNED = {
    "in place": lambda x, y: (x.sin().cumsum_(0), x.sin().masked_fill_(y > 0, 2.0), x.sin().scatter_(0, y.long(), 1.0)),
    "in place, with gradients": lambda x, y: x.sin().index_add_(0, torch.tensor([0]), y[:1]) * y,
    "of two": lambda x, y: (
        torch.logical_or(x, y[0]),
        torch.copysign(x, y[0]),
        torch.xlogy(x, y[0]),
        x.detach() // 0.3,
    ),
    "dense": lambda x, y: (F.logsigmoid(x), F.batch_norm(x, None, None, training=True)),
    "read through": lambda x, y: x.sin().cumprod_(0).flatten().as_strided((4,), (1,)),
}


@pytest.mark.parametrize("program", TURNED.values(), ids=TURNED)
@pytest.mark.parametrize("turn", [lambda x: x.permute(3, 2, 1, 0), lambda x: x.permute(0, 3, 1, 2)])
def test_results_lie_in_memory_as_eagers_do(program, turn):
    def inputs():
        return turn(torch.rand(2, 3, 4, 5)), turn(torch.rand(2, 3, 4, 5))

    check(program, inputs, grad=True, backend="cpp", tolerance=1e-5)


@same_as_eager(backend="cpp", graphs=2, tolerance=1e-5, inputs=[lambda: (torch.randn(24),), lambda: (torch.randn(31),)])
def test_scan_of_a_length_that_is_given_in_two_ways(x):
    return x.unfold(-1, 3, 2).transpose(0, -1).cumsum(-1)


@pytest.mark.parametrize("kinds", [(torch.float16, torch.float32), (torch.float32, torch.float64)], ids=str)
def test_losses_of_two_types(kinds):
    def program(x, y):
        return F.huber_loss(x, y), F.soft_margin_loss(x, y.sign(), reduction="none")

    check(program, lambda: (torch.randn(5).to(kinds[0]), torch.randn(5).to(kinds[1])), backend="cpp", tolerance=1e-3)


@same_as_eager(backend="cpp", tolerance=2e-2, grad=True, inputs=lambda: tuple(torch.randn(2, 7, 33).half()))
def test_columns_of_float16_in_two_sweeps(x, y):
    return F.layer_norm(F.cosine_similarity(x, y, dim=0) ** 3, (33,))


@pytest.mark.parametrize("turn", [(1, 1), (-2, -1), (3, 1), ((1, 2), (0, 1)), ((3, 1), (1, 2))], ids=str)
def test_rolled_images_lie_as_eagers_do(turn):
    def program(x):
        return x.roll(*turn), (x * 2).roll(*turn).flatten() + 1

    def inputs():
        return (torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),)

    check(program, inputs, grad=True, backend="cpp", tolerance=1e-6)


OF_TWO = {
    "huber": F.huber_loss,
    "cross entropy": F.binary_cross_entropy,
    "cross entropy of logits": F.binary_cross_entropy_with_logits,
    "soft margin": F.soft_margin_loss,
    "mean square": F.mse_loss,
    "smooth l1": F.smooth_l1_loss,
}
OF_KINDS = [
    (torch.float16, torch.float32), (torch.float32, torch.float64), (torch.float32, torch.int64), (torch.int64,) * 2,
]  # fmt: skip


@pytest.mark.parametrize(("loss", "kinds"), pairs(OF_TWO, OF_KINDS, 2), ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_losses_of_two_types_are_refused_as_by_eager(loss, kinds, grad):
    def program(x, y):
        return OF_TWO[loss](x, y) * 2

    def inputs():
        return tuple(torch.rand(5).mul(1 if kind.is_floating_point else 2).to(kind) for kind in kinds)

    check(program, inputs, grad=grad, backend="cpp", tolerance=1e-3)


def test_an_operator_whose_fake_tensor_has_another_dtype():
    """PyTorch's own losses were such; kernels would read beyond the end of the result."""
    with torch.library._scoped_library("cutaway_test_dtype", "FRAGMENT") as library:
        library.define("first_type(Tensor x, Tensor y) -> Tensor")
        library.impl("first_type", lambda x, y: (x + y).to(x.dtype), "CompositeExplicitAutograd")
        library.impl("first_type", lambda x, y: x.new_empty(x.shape, dtype=y.dtype), "Meta")
        op = torch.ops.cutaway_test_dtype.first_type.default
        x, y = torch.randn(1000).half(), torch.randn(1000).double()
        found = compiler_core.compile(lambda x, y: (op(x, y) * 2).half(), backend="cpp", strict=True)(x, y)
        assert torch.equal(found, (op(x, y).double() * 2).half())


@pytest.mark.cpu  # on a GPU, such targets end the process
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_cross_entropy_of_zeros_ones_and_what_is_beyond(dtype):
    def program(x, y):
        return F.binary_cross_entropy(x, y.detach()) * 2

    inputs = [lambda: torch.tensor([[0, 1, 0.3, 1], [1, 0, 0.5, 1]]).to(dtype).unbind()]
    check(program, [*inputs, lambda: torch.tensor([[1.5], [1.0]]).to(dtype).unbind()], grad=True, backend="cpp")


@same_as_eager(backend="cpp", grad=True, inputs=lambda: torch.tensor([[math.nan, math.inf], [0, math.inf]]).unbind())
def test_distances_that_are_no_numbers(x, y):
    return F.smooth_l1_loss(x, y, reduction="none"), F.huber_loss(x, y, reduction="none")


@pytest.mark.parametrize("kinds", [(torch.float16, torch.float64), (torch.bfloat16, torch.float32)], ids=str)
def test_xlogy_of_a_half_and_a_number_of_another_type(kinds):
    def program(x, y):
        return torch.xlogy(x, y[0]), torch.xlogy(y[1], x), torch.xlogy(x, 0.9995), torch.xlogy(2.0005, x)

    def inputs():
        special = torch.tensor([0.0, -0.0, 1.0, 1e-9, math.nan, math.inf, -1.0])
        return torch.cat([torch.rand(9), special]).to(kinds[0]), torch.tensor([1e-9, 1.0005], dtype=kinds[1])

    check(program, inputs, grad=True, backend="cpp", tolerance=1e-3)


REFUSED = {
    "of whole numbers": (
        *(
            F.gelu,
            F.silu,
            F.celu,
            F.hardsigmoid,
            F.hardswish,
            F.softplus,
            F.mish,
            F.logsigmoid,
            F.hardshrink,
            torch.frac,
        ),
        *(lambda x: F.glu(x, 0), lambda x: x.softmax(0), lambda x: x.log_softmax(0), lambda x: torch.lerp(x, x, 0.5)),
        *(lambda x: torch.logaddexp(x, x), lambda x: F.smooth_l1_loss(x, x), lambda x: F.huber_loss(x, x), torch.std),
    ),
    "of bools": (torch.floor, torch.ceil, torch.trunc, torch.round, torch.abs, torch.relu, lambda x: x.argmax(0)),
}


@pytest.mark.parametrize(
    ("dtype", "operation"),
    [
        *((torch.int64, operation) for operation in REFUSED["of whole numbers"]),
        *((torch.bool, operation) for operation in itertools.chain(*REFUSED.values())),
    ],
)
def test_operations_that_eager_refuses(dtype, operation):
    compiled = compiler_core.compile(lambda x: operation(x), backend="cpp")
    x = torch.tensor([[1, 0], [1, 1]], dtype=dtype, device="cpu")  # CUDA has the absolute value of a bool
    with pytest.raises(Exception) as wanted:
        operation(x)
    with pytest.raises(wanted.type) as raised:
        compiled(x)
    assert str(raised.value) == str(wanted.value)


TWICE = {
    "one of two results": lambda x: (x[0].kthvalue(1).values, x[0].kthvalue(1).values),
    "several of them": lambda x: (*x.sort(0), *x.sort(0)),
    "through a view": lambda x: (F.linear(x, x[0]), F.linear(x, x[0])),
}


@pytest.mark.parametrize("program", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_computed_and_returned_twice_has_memory_of_its_own(program, grad):
    results = compiler_core.compile(program, backend="cpp", strict=True)(torch.randn(2, 4, 4, requires_grad=grad))
    assert len({each.data_ptr() for each in results}) == len(results)
    check(program, lambda: (torch.randn(2, 4, 4),), grad=grad, backend="cpp", tolerance=1e-5)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("base", [0.5, 1.0, -2])
def test_powers_of_a_number_are_row_major_as_eagers_are(base, grad):
    def inputs():
        return torch.randn(3, 4, 5).permute(2, 0, 1), torch.randn(4, 1, 3, 1).transpose(0, 3)

    check(lambda x, y: (base**x, base**y), inputs, grad=grad, backend="cpp", tolerance=1e-5)


# ---------------------------------------------------------------- found by comparing all that a run leaves behind


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("program", [lambda x: x.view_as(x), lambda x: (lambda t: t.view_as(t))(x.t())])
def test_view_as_itself_with_sizes_that_change(program, backend):
    makes = [lambda: (torch.randn(2, 5),), lambda: (torch.randn(31, 9),), lambda: (torch.randn(7, 3),)]
    check(program, makes[:1] * 2 + makes[1:], grad=True, backend=backend)


@pytest.mark.cpu
def test_array_that_two_tensors_share_is_written_to():
    def program(a):
        t = torch.from_numpy(a)
        t.add_(1)
        return t, torch.tensor(a)

    compiled = compiler_core.compile(program, backend="aot_eager")
    got = compiled(torch.arange(3.0).numpy())
    assert not difference(program(torch.arange(3.0).numpy()), got)


def test_a_backward_of_no_statements():
    def inputs():
        return torch.randn(5, 5), torch.randn(0)

    check(lambda a, tau: torch.linalg.householder_product(a, tau), inputs, grad=True, backend="cpp", tolerance=1e-5)


def made_by_a_factory(function, also):
    def apply(x, function=function, *, also=also):
        return function(x) + also(x)

    return apply


@same_as_eager(
    inputs=[
        lambda: (torch.randn(3), made_by_a_factory(torch.sin, torch.exp)),
        lambda: (torch.randn(3), made_by_a_factory(torch.cos, torch.exp)),
        lambda: (torch.randn(3), made_by_a_factory(torch.cos, lambda x: x * 2)),
        lambda: (torch.randn(3), made_by_a_factory(torch.cos, lambda x: x * 3)),
    ]
)
def test_functions_of_one_code_with_other_functions_as_defaults(x, apply):
    return apply(x)


# ---------------------------------------------------------------- found by random programs on a GPU


def every_other(*shape):
    return torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_views_of_a_saved_copy_with_gaps_in_its_original(backend):
    inputs = [lambda: (every_other(2, 15, 10),), lambda: (every_other(4, 6, 2),), lambda: (every_other(3, 2, 5),)]
    check(lambda x: x.repeat_interleave(2).sinh(), inputs, grad=True, backend=backend, tolerance=1e-5)


@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_warnings_that_name_sizes_which_change(backend):
    inputs = [lambda: (torch.randn(7, 2), torch.randn(7, 1)), lambda: (torch.randn(2, 9), torch.randn(2, 1))]
    check(lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), inputs * 2, backend=backend, tolerance=1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_view_that_warns_is_made_again_in_silence(backend):
    torch.set_warn_always(True)
    try:
        check(lambda x: x.mean().T.contiguous(), backend=backend)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("index", [lambda x, i: x[:, i], lambda x, i: x[:, None, i % 3], lambda x, i: x[i, i]])
def test_indices_say_how_results_lie_in_memory(index, backend):
    inputs = [
        lambda: (torch.randn(8, 9), torch.randint(8, (8, 9)).T),
        lambda: (torch.randn(5, 4), torch.zeros(2, 3).T.long()),
    ]
    check(index, inputs, backend=backend)


@same_as_eager(inputs=lambda: (torch.randn(3),), backend="cpp")
def test_strides_of_tensors_of_one_element_or_none(x):
    return x.new_empty_strided((1, 1), (3, 4)).zero_(), x.new_empty_strided((2, 0), (3, 4))


@same_as_eager(inputs=lambda: (torch.randn(6, 2, 1),), grad=True, backend="cpp", tolerance=1e-6)
def test_norms_over_dimensions_of_one_element(x):
    return x.norm(dim=-1), x[:, :1].norm(dim=(-1, -2), keepdim=True), x[:1, :1].norm()


@same_as_eager(
    inputs=lambda: (torch.randn(5, 5), torch.tensor([0, 2, 0]), torch.tensor(3.0)), grad=True, tolerance=1e-6
)
def test_gradient_of_a_value_at_indices_that_occur_twice(x, index, value):
    return x.index_fill(1, index, value)


@pytest.mark.parametrize("fill", [torch.Tensor.index_fill, torch.Tensor.index_fill_])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_value_at_indices_is_compiled_with_its_gradient(fill, dtype):
    """PyTorch's formula has a size that data decide, and the whole function ran as plain Python."""

    def program(x, index, value):
        return fill(x.sin(), -2, index, value).cos()

    index = torch.tensor([0, 2, 0])
    x = torch.randn(4, 3, requires_grad=True)
    value = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    found = []
    for run in (program, compiler_core.compile(program, backend="cpp", strict=True)):
        result = run(x, index, value)
        found.append([result, *torch.autograd.grad(result.square().sum(), [x, value])])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_tensors_are_made_again_where_and_as_the_forward_made_them(backend):
    def program(x):
        return (x * torch.full((3,), 2.0) * torch.ones(3)).tanh().sum()

    def penalty(run):
        with torch.device("meta"):
            x = torch.randn(3, requires_grad=True)
            out = run(x)
            (g,) = torch.autograd.grad(out, x, create_graph=True)
            (g.norm() - 1).backward()
        assert x.grad.device.type == "meta"
        x = torch.randn(3, requires_grad=True)
        out = run(x)
        torch.set_default_dtype(torch.float64)
        try:
            (g,) = torch.autograd.grad(out, x, create_graph=True)
        finally:
            torch.set_default_dtype(torch.float32)
        return g.dtype

    assert penalty(program) == penalty(compiler_core.compile(program, backend=backend, strict=True)) == torch.float32


def test_a_constant_that_has_no_values():
    with torch.device("meta"):
        compiled = compiler_core.compile(lambda x: x + torch.tensor([0, 2]), strict=True)
        assert compiled(torch.randn(4, 2)).shape == (4, 2)


@pytest.mark.parametrize("dynamic", [True, None])
def test_conjugate_and_negative_bits_of_arguments(dynamic):
    def program(x):
        return x + 1, x.is_conj(), x.is_neg(), x.real, x.clone()

    compiled = compiler_core.compile(program, backend="cpp", dynamic=dynamic, strict=True)
    z = torch.view_as_complex(torch.arange(1.0, 11).view(5, 2))
    with torch.inference_mode():
        made_in_inference = (z[:3] * 2).conj()
    for x in (z[:3].conj(), z.conj(), z.conj().imag, z, made_in_inference):
        assert difference(program(x), compiled(x), 1e-6) is None


HALF, MASK = torch.ones(3, dtype=torch.float16), torch.tensor([True, False, True])


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (torch.sub, (torch.ones(3), MASK)),
        (torch.rsub, (MASK, 1)),
        (torch.clamp, (MASK, False, True)),
        (torch.heaviside, (torch.ones(3), HALF)),
        (torch.addcdiv, (torch.ones(3), MASK, MASK)),
        (F.layer_norm, (torch.ones(2, 3), (3,), HALF)),
        (F.group_norm, (torch.ones(2, 3), 1, torch.ones(3).double())),
    ],
)
@pytest.mark.parametrize("dynamic", [True, None])
def test_types_that_kernels_refuse(fn, args, dynamic):
    with pytest.raises(RuntimeError) as raised:
        fn(*args)
    with pytest.raises(RuntimeError, match=re.escape(str(raised.value))):
        compiler_core.compile(lambda *args: fn(*args), backend="cpp", dynamic=dynamic, strict=True)(*args)


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("program", "raises"),
    [
        (lambda x: x.clamp(min=1e39), True),
        (lambda x: torch.full_like(x, 1e39), True),
        (lambda x: x.new_full((2,), 1e39), True),
        (lambda x: torch.where(x > 0, x, 1e300), True),
        (lambda x: torch.add(x, x, alpha=1e300), True),
        (lambda x: F.pad(x, (1, 1), value=-1e39), True),
        (lambda x: F.threshold(x, 0, 1e39), True),
        (lambda x: (x + 1e39, x * -1e39, x < 1e39, x.clamp(max=math.inf)), False),
    ],
)
def test_numbers_that_overflow_the_type_of_a_tensor(program, raises):
    for dtype in (torch.float32, torch.bfloat16):
        record = check(program, lambda: (torch.tensor([1.0, 0, -1], dtype=dtype),), backend="cpp", tolerance=1e-6)
        assert ("unsupported operation" in break_kinds(record)) == raises


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_gradients_of_products_with_complex_numbers(backend):
    program = lambda x: torch.view_as_real(torch.complex(x, x + 1) * 2j / (1 + 3j) - 1j)
    check(program, lambda: (torch.randn(4),), Expected(graphs=1, breaks=[]), grad=True, backend=backend, tolerance=1e-5)


@pytest.mark.cpu
def test_a_kernel_that_only_stores_a_half_constant():
    program = lambda x, h: torch.ones_like(h) * x
    inputs = lambda: (torch.randn(()), torch.randn((), dtype=torch.float16))
    check(program, inputs, Expected(graphs=1, breaks=[]), grad=True, backend="cpp", tolerance=1e-3)


@same_as_eager()
def test_a_function_that_chooses_by_type(x):
    @functools.singledispatch
    def kind(value):
        return "another"

    kind.register(int, lambda value: "int")
    return x + 1, kind(1), kind("a"), hasattr(Plain, "__abstractmethods__")


def test_a_local_function_with_the_name_of_another():
    def program(x):
        @functools.wraps(torch.sin)
        def own():
            return x.abs()

        print()
        return own(), own.__name__, own.__wrapped__ is torch.sin

    record = check(program, lambda: (torch.randn(3),), Expected(breaks=["print"]))
    assert len(record.compiles) == 2


def test_what_warns_while_it_is_folded():
    breaks = ["unsupported operation"] if sys.version_info >= (3, 12) else []
    check(lambda x: x + ~(x.dim() == 1), lambda: (torch.ones(3),), Expected(breaks=breaks))


@pytest.mark.cpu
@pytest.mark.parametrize("decompose", [torch.linalg.eigh, torch.linalg.eig, torch.linalg.svd])
def test_gradients_that_raise_if_they_depend_on_the_phase_of_eigenvectors(decompose):
    program = lambda x: decompose(torch.complex(x, x * 2))[0 if decompose is torch.linalg.svd else 1]
    compiled = compiler_core.compile(program, backend="aot_eager")
    want, got = (observe(fn, lambda: (torch.randn(3, 3),), 0, grad=True) for fn in (program, compiled))
    assert want.raised_backward[0] and want.raised_backward == got.raised_backward


@same_as_eager(
    backend="cpp", tolerance=1e-12, inputs=lambda: (torch.randn(1, 2, dtype=torch.float64, requires_grad=True),)
)
def test_zeros_without_memory_in_a_gradient(x):
    return x.sin(), x.square().sgn()


def test_a_gradient_whose_layout_has_a_rounded_size():
    program = lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic")
    inputs = [lambda: (torch.randn(1, 2, 3, 4),), lambda: (torch.randn(1, 2, 20, 1),)]
    check(program, inputs, Expected(breaks=[]), grad=True, backend="aot_eager", tolerance=1e-5)


@same_as_eager(graphs=1, breaks=["overlapping write"], inputs=lambda: (torch.randn(5), torch.randn(5)))
def test_a_list_of_tensors_whose_first_position_changes_the_second(x, y):
    x, y = x * 2, y * 2
    torch._foreach_mul_([x, y], [x, y])
    torch._foreach_add_([x[:2], x[2:]], 1.0)
    torch._foreach_add_([x, y], [y, x])
    return x, y


@pytest.mark.parametrize("scaled", [lambda x: torch._foreach_mul([x], 2)[0], lambda x: torch._foreach_neg([x])[0]])
def test_a_second_backward_through_an_operator_on_lists(scaled):
    check(scaled, lambda: (torch.randn(3),), Expected(graphs=1, breaks=[]), grad=True, backend="aot_eager")


@pytest.mark.cpu  # a wrong index ends the process on a GPU
@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
def test_errors_of_results_that_nothing_uses(backend):
    def program(x, fn):
        fn(x)
        return x + 1

    indices = torch.tensor([3])
    raising = [
        lambda x: x[indices],
        lambda x: x[indices].sin().sum(),
        lambda x: x.gather(0, indices),
        lambda x: x.clone().index_fill_(0, indices, 1),
        lambda x: F.embedding(indices, x.view(3, 1)),
        lambda x: F.cross_entropy(x.view(1, 3), indices),
        lambda x: torch.ones(3, 3, dtype=torch.float64) @ x,
        lambda x: F.linear(x.double(), torch.ones(3, 3)),
        lambda x: torch.add(x, x, alpha=True),
        lambda x: x.clone().masked_fill_(torch.ones(4, dtype=torch.bool), 1),
    ]
    compiled = compiler_core.compile(program, backend=backend)
    for fn in raising:
        messages = []
        for run in (program, compiled):
            with pytest.raises((RuntimeError, IndexError)) as raised:
                run(torch.ones(3), fn)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_draw_into_a_tensor_with_gaps_after_a_write():
    def program(x):
        x.relu_()
        x.normal_()

    check(program, lambda: (torch.randn(8, 8)[::2],), Expected(refusals=True), backend="aot_eager")


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
def test_view_under_no_grad_of_what_has_a_history(backend):
    def program(x):
        view = x[3]
        view.mul_(2)
        return view

    with torch.no_grad():
        check(program, [lambda: (torch.randn(8, requires_grad=True) * 1,)], backend=backend)


@pytest.mark.cpu
@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_dropout_of_tensors_of_several_sizes(backend):
    def program(x):
        same, none = F.dropout(x, 0.5, training=False), F.dropout(x * 2, 1.0)
        same += 1
        return same is x, none, F.dropout(x, 0.5)

    inputs = [lambda n=n: (torch.tensor([math.nan, 1.0] * n),) for n in (4, 9, 6)]
    check(program, inputs, Expected(breaks=[]), backend=backend, tolerance=1e-6)


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
def test_detached_tensor_that_a_write_gives_a_history(backend):
    def of_an_argument(x, w):
        y = x.detach()
        y += w
        return y

    def view_of_it(x, w):
        y = x.detach()[1:]
        y.mul_(w[1:])
        return y, x + 0

    def of_a_result(x, w):
        t = x * 2
        y = t.detach()
        y += w
        return t, y

    for program in (of_an_argument, view_of_it, of_a_result):
        inputs = lambda: (torch.randn(3), torch.randn(3, requires_grad=True))
        check(program, inputs, Expected(refusals=True), backend=backend, grad=True)


@same_as_eager(breaks=["overlapping write"], backend="aot_eager", inputs=lambda: (torch.randn(4, 8)[:, ::2],))
def test_write_by_indices_to_what_is_read_with_gaps(x):
    x[[0, 1, 2, 3]] = x.permute(1, 0)


@same_as_eager(inputs=lambda: (torch.randn(3), 2.5, ()))
def test_errors_of_operands_and_modes(x, number, mode):
    messages = []
    try:
        number <<= 1
    except TypeError as error:
        messages.append(str(error))
    try:
        with torch.set_grad_enabled(mode):
            x += 1
    except TypeError as error:
        messages.append(str(error))
    return x, messages


class Refusing:
    def __init__(self, number):
        print(end="")
        raise ValueError(number)


def test_an_init_that_raises_is_caught_at_each_call():
    """From the second call on, CPython 3.13 enters an `__init__` without a call in C."""

    def program(x):
        try:
            Refusing(2)
        except ValueError as error:
            x = x + error.args[0]
        return x * 2

    compiled = compiler_core.compile(program, backend="eager")
    assert [compiled(torch.ones(2)).tolist() for _ in range(12)] == [[6.0, 6.0]] * 12


@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (3, 5), (3,), (3, 4)], ids=str)
def test_mask_of_another_shape(shape):
    def program(x, mask):
        x[mask] = 8
        return x

    check(program, lambda: (torch.randn(3, 4), torch.ones(shape, dtype=torch.bool)), backend="cpp")


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
def test_gradient_behind_a_window_of_memory_with_gaps(backend):
    def program(x):
        window = x.as_strided((3, 2), (0, 1))
        return x.exp() / window.exp().sum(-1, keepdim=True)

    inputs = lambda: (torch.randn(6, 6)[::2, ::2].requires_grad_(),)
    check(program, inputs, Expected(breaks=[]), backend=backend, grad=True, tolerance=1e-6)


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
def test_gradient_of_a_real_number_times_a_complex_one(backend, shape):
    def program(x):
        return (x * (1 + 2j)).sin().imag, (x.mean() * 1j).exp().real

    inputs = lambda: (torch.randn(shape, requires_grad=True),)
    check(program, inputs, Expected(breaks=[]), backend=backend, grad=True, tolerance=1e-5)


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
def test_sizes_that_are_floats_rounded(backend):
    def program(x):
        smaller = F.interpolate(x, scale_factor=(2.0, 0.5), mode="bilinear", recompute_scale_factor=True)
        return smaller.cosh(), x.new_zeros(math.floor(x.shape[-1] * 0.7), math.ceil(x.shape[-1] / 3)) + x.mean()

    inputs = [lambda n=n: (torch.randn(1, 2, n, 2 * n),) for n in (8, 11, 6)]
    check(program, inputs, Expected(breaks=[]), backend=backend, tolerance=1e-6)


WRITES_TO_LISTS = {
    "mul": lambda t: torch._foreach_mul_([t], 2.0),
    "copy": lambda t: torch._foreach_copy_([t], [t + 1]),
    "zero": lambda t: torch._foreach_zero_([t]),
    "a view": lambda t: torch._foreach_add_([t[1:]], [t[1:] * 2]),
}


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize("write", WRITES_TO_LISTS.values(), ids=WRITES_TO_LISTS)
def test_write_by_an_operator_on_lists_to_what_a_gradient_needs(backend, write):
    def program(w, x):
        scaled = x * 2
        y = w * scaled
        write(scaled)
        return y

    inputs = lambda: (torch.randn(4, requires_grad=True), torch.randn(4))
    check(program, inputs, Expected(refusals=True), backend=backend, grad=True)


LAYOUTS = [
    lambda n: torch.randn(n, 4),
    lambda n: torch.randn(4, n).t(),
    lambda n: torch.randn(n, 8)[:, ::2],
    lambda n: torch.randn(1, 4).expand(n, 4),
    lambda n: torch.randn(n + 4).as_strided((n, 4), (1, 1)),
]


@pytest.mark.parametrize(("backend", "sizes"), pairs(AHEAD_OF_TIME, [[4] * 5, [4, 5, 6, 4, 7]], 2))
def test_strides_that_differ_between_calls(backend, sizes):
    def program(x, y):
        rows = x.t() if x.stride(0) > x.stride(1) else x
        product, strides = ((x + 1)[:, None] * (y - 1)).amax(), (x.stride(), rows.stride())
        return product, strides, x.softmax(0), x.reshape(-1) * y.stride(1), x.as_strided((2, 2), x.stride()), y[1:]

    inputs = [lambda i=i, n=n: (LAYOUTS[i](n), LAYOUTS[4 - i](n)) for i, n in enumerate(sizes)]
    check(program, inputs, Expected(breaks=[]), grad=True, backend=backend, tolerance=1e-5)


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: torch.kron(x, y).max(),
        lambda x, y: F.gaussian_nll_loss((z := x.tanh()), z[..., :1] * z, z[..., :1].abs() + 1),
    ],
)
def test_a_stride_that_the_layout_of_a_saved_copy_replaces(program, backend):
    inputs = [lambda: (torch.randn(4, 4), torch.randn(2, 4)), lambda: (torch.randn(4, 4).t(), torch.randn(4, 2).t())]
    check(program, inputs, grad=True, backend=backend, tolerance=1e-5)


@pytest.mark.parametrize("write", [lambda x: x.fill_(2.0), lambda x: x.zero_().t(), lambda x: x.zero_()[1].add_(1)])
def test_result_with_gaps_that_is_written_to(write):
    program = lambda x: (write(gaps := torch.empty_strided((3, 3), x.stride())), gaps, x * 2)
    check(program, lambda: (torch.randn(4, 9),), Expected(graphs=1, refusals=True), backend="cpp")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_operands_of_another_type(dtype):
    def program(x, y, write):
        return write(x, torch.tensor([0, 1]), y)

    writes = [
        lambda x, i, y: x.index_add(0, i, y),
        lambda x, i, y: x.index_copy(0, i, y),
        lambda x, i, y: x.index_put((i,), y),
        lambda x, i, y: x.scatter(0, i[:, None], y),
        lambda x, i, y: x.scatter_add(0, i[:, None], y),
        lambda x, i, y: x.bfloat16().index_add(0, i, y),
        lambda x, i, y: x.bfloat16().index_put((i,), y, accumulate=True),
        lambda x, i, y: F.cross_entropy(x, y[:, 0].int()),
        lambda x, i, y: F.mse_loss(x, y + 1j),
    ]
    for write in writes:
        check(program, lambda: (torch.randn(2, 2), torch.ones(2, 2, dtype=dtype), write), backend="cpp")


WINDOW_WRITES = {
    "with a rest": lambda x: x.unfold(0, 3, 3).mul_(3),
    "with gaps": lambda x: x.unfold(0, 1, 2).add_(1),
    "of a part": lambda x: x.unfold(0, 2, 3)[1].fill_(7),
    "exact": lambda x: x.unfold(1, 2, 2)[0].zero_(),
}


@pytest.mark.parametrize("inner", [False, True], ids=["of an argument", "of a result"])
@pytest.mark.parametrize("write", WINDOW_WRITES.values(), ids=WINDOW_WRITES)
def test_writes_to_windows(write, inner):
    def program(x):
        y = x * 2 if inner else x
        write(y)
        return y + 1, x.unfold(0, 3, 1).sum()

    inputs = [lambda n=n: (torch.randn(n, 4),) for n in (7, 10, 8)]
    check(program, inputs, Expected(breaks=[], refusals=True), backend="cpp", tolerance=1e-5)


def test_out_that_resizes_an_empty_view():
    def program(x, y):
        z = y.roll(3, -2)
        torch.mul(x, x, out=z[:, 1:-1])
        return z

    check(program, lambda: (torch.randn(1, 15, 0), torch.randn(1, 15, 0)), backend="aot_eager")


SCATTERS = {
    "slice": lambda x: torch.slice_scatter(x, x[1:], 0, 1),
    "diagonal": lambda x: x.diagonal_scatter(x.diagonal() * 2),
    "select": lambda x: torch.select_scatter(x, x[0] * 3, 0, 1),
}


@pytest.mark.parametrize("program", SCATTERS.values(), ids=SCATTERS)
def test_gradient_of_a_result_whose_elements_share_memory(program):
    inputs = lambda: (torch.randn(6).as_strided((2, 2, 1), (1, 1, 1)).requires_grad_(),)
    check(program, inputs, Expected(breaks=[]), backend="aot_eager", grad=True)


def test_view_and_its_base_behind_a_break():
    def program(x):
        y = x.clamp(0.9)
        windows = y.unfold(1, 2, 1)
        y.baddbmm_(y, y.new_ones(y.shape[0], y.shape[-1], y.shape[-1]))
        rows = y.sum(1, keepdim=windows.shape == 1)
        rows.fill_diagonal_(1)
        return rows, windows

    compiled = compiler_core.compile(program, backend="aot_eager", dynamic=True, strict=True)
    for size in (8, 9, 10):
        x = torch.randn(size, size, 9, requires_grad=True)
        torch.testing.assert_close(compiled(x)[0], program(x)[0])


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize(
    ("shape", "wrap"), [((3, 2), False), ((2, 5), False), ((3, 3, 3), False), ((7, 2), True)], ids=str
)
def test_diagonal_of_a_tensor_that_was_written_to(backend, shape, wrap):
    def program(x):
        x.mul_(2)
        x.fill_diagonal_(3, wrap)
        return x + 1

    count = math.prod(shape)
    inputs = [lambda n=n: (torch.randn(count + n)[n:].view(shape),) for n in (0, 1)]
    check(program, inputs, Expected(breaks=[]), backend=backend)


INTERPOLATIONS = {
    "linear": ("linear", {"size": 5}),
    "bilinear": ("bilinear", {"size": (4, 7), "align_corners": True}),
    "smooth": ("bilinear", {"scale_factor": 0.6, "antialias": True}),
    "bicubic": ("bicubic", {"scale_factor": 1.7}),
    "trilinear": ("trilinear", {"size": (3, 4, 7)}),
    "nearest": ("nearest", {"scale_factor": 2}),
    "exact": ("nearest-exact", {"scale_factor": (1.5, 0.5)}),
}


@pytest.mark.parametrize("name", sample(INTERPOLATIONS, 2))
def test_interpolations_with_symbolic_sizes_are_eagers_kernels(name):
    mode, options = INTERPOLATIONS[name]

    def inputs(n):
        sizes = {"linear": (9 * n,), "trilinear": (4, 6, n)}.get(mode, (6, 3 * n))
        x = torch.randn(2, 3, *sizes)
        x[0, 0, ..., ::3] = math.inf
        return lambda: (x.clone(),)

    # values in a tensor whose memory has another order than its dimensions
    program = lambda x: F.interpolate(x.transpose(0, 1).contiguous().transpose(0, 1), mode=mode, **options)
    tolerance = 0 if torch.get_default_device().type == "cpu" else 1e-5  # gradients are added in any order on a GPU
    expected = Expected(compiles=2, breaks=[])
    check(program, [inputs(n) for n in (4, 5, 7)], expected, grad=True, backend="aot_eager", tolerance=tolerance)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_interpolations_to_symbolic_sizes_have_gradients(mode, antialias):
    program = lambda x, n: F.interpolate(x, size=(n, 4), mode=mode, antialias=antialias)
    inputs = [lambda n=n: (torch.randn(1, 2, 5, 5), n) for n in (4, 6, 7)]
    check(program, inputs, Expected(compiles=2, breaks=[]), grad=True, backend="aot_eager")


WRITES_THROUGH_EXPANDED = {
    "mul": lambda x: x.expand(1, 3).mul_(0.5),
    "copy": lambda x: x.expand(3).copy_(torch.tensor([1e-3, 2e-3, 7.0])),
    "add": lambda x: x.broadcast_to(1, 3).add_(1.0),
    "of a part": lambda x: x.expand(2, 3)[0].mul_(2.0),
    "of another": lambda x: torch.broadcast_tensors(x, x[:1] * 2)[0].sub_(1.0),
}


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize("name", WRITES_THROUGH_EXPANDED)
def test_writes_through_expanded_views_keep_infinities_and_small_numbers(name, backend):
    def program(x):
        y = x * 1
        WRITES_THROUGH_EXPANDED[name](y)
        return y

    x = torch.tensor([1e8, math.inf, -3.0])
    check(program, lambda: (x.clone(),), Expected(refusals=True), backend=backend)


IN_PLACE = {
    "masked_fill": lambda y: y.masked_fill_(y > 0, 0.5),
    "index_add": lambda y: y.index_add_(0, torch.tensor([1, 0]), torch.ones(2, 5)),
    "index_copy": lambda y: y.index_copy_(0, torch.tensor([1, 0]), torch.ones(2, 5)),
    "scatter": lambda y: y.scatter_(0, torch.zeros(1, 5, dtype=torch.long), 1.0),
    "scatter_reduce": lambda y: y.scatter_reduce_(0, torch.zeros(1, 5, dtype=torch.long), torch.ones(1, 5), "amax"),
    "masked_scatter": lambda y: y.masked_scatter_(y > 0, torch.ones(20)),
    "cumsum": lambda y: y.cumsum_(0),
    "tril": lambda y: y.tril_(),
    "addmm": lambda y: y.addmm_(torch.ones(4, 3), torch.ones(3, 5)),
    "renorm": lambda y: y.renorm_(2, 0, 1.0),
    "out": lambda y: torch.sub(torch.ones(4, 5), y, out=y),
    "of a view": lambda y: y.t().cumsum_(0),
    "rrelu": lambda y: F.rrelu(y, training=True, inplace=True),
}


@pytest.mark.parametrize(("name", "backend"), pairs(IN_PLACE, AHEAD_OF_TIME, 2))
def test_what_is_drawn_like_a_tensor_that_was_written_to(name, backend):
    def program(x):
        y = x * 2
        IN_PLACE[name](y)
        return y, torch.rand_like(y), torch.empty_like(y).normal_(), F.dropout(y)

    transposed = lambda: (torch.randn(5, 4).t(),)
    check(program, transposed, Expected(graphs=1, breaks=[]), backend=backend, tolerance=1e-6)


@pytest.mark.parametrize("backend", AHEAD_OF_TIME)
@pytest.mark.parametrize("training", [False, True])
def test_what_is_drawn_like_the_result_of_rrelu(training, backend):
    def program(x):
        y = F.rrelu(x, training=training)
        return y, torch.rand_like(y), F.alpha_dropout(y, 0.3, training=True)

    transposed = lambda: (torch.randn(5, 4).t(),)
    check(program, transposed, Expected(graphs=1, breaks=[]), backend=backend, tolerance=1e-6)


def a_row_and_a_column(x):
    y = x * 1
    y[0].cumsum_(0)
    y.select(0, 1).masked_fill_(y[1] > 0, 2.0)
    return y, torch.rand_like(y), y[0], torch.rand_like(y[0])


def rows_and_all(x):
    y = x * 1
    rows = y[1:]
    rows.masked_fill_(rows > 0, 0.0)
    y.tril_()
    return y, rows, torch.empty_like(rows).normal_()


def other_dimensions(x):
    x = x.clone()
    turned = x.permute(2, 0, 1)
    turned.index_add_(0, torch.tensor([0, 1]), torch.ones(2, *turned.shape[1:]))
    return x, turned, torch.rand_like(turned), F.dropout(x)


@pytest.mark.parametrize(("grad", "backend"), pairs([False, True], AHEAD_OF_TIME, 2))
@pytest.mark.parametrize("program", sample([a_row_and_a_column, rows_and_all, other_dimensions], 3))
def test_what_is_drawn_like_a_view_that_was_written_to(program, grad, backend):
    inputs = [lambda n=n: (torch.randn(3, n, n + 1).transpose(1, 2),) for n in (4, 6, 8)]
    check(program, inputs, Expected(breaks=[]), grad=grad, backend=backend, tolerance=1e-5)


@pytest.mark.parametrize(("backend", "grad"), pairs(["eager", *AHEAD_OF_TIME], [False, True], 2))
@pytest.mark.parametrize(("shape", "reduction"), pairs([(), (3,), (2, 3, 4)], ["none", "mean", "sum"], 3))
def test_a_binary_cross_entropy_is_captured(shape, reduction, grad, backend):
    def loss(x, y):
        return F.binary_cross_entropy(x, y.detach(), reduction=reduction) * 2

    # on a GPU, eager's kernel rounds otherwise than the operators that it is traced to
    tolerance = 0.0 if torch.get_default_device().type == "cpu" else 1e-6
    inputs = [lambda: (torch.rand(shape), torch.rand(shape))]
    check(loss, inputs, Expected(breaks=[]), grad=grad, backend=backend, tolerance=tolerance)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "atan2", "copysign", "eq", "lt", "fmod"])
def test_operators_over_numbers_alone(name):
    operator = getattr(torch.ops.aten, name)

    def over_numbers(x):
        return x + operator(4, 3.5), operator(4, 3.5)

    check(over_numbers, [lambda: (torch.rand(3),)], Expected(breaks=[]), backend="cpp")


@same_as_eager(graphs=2, breaks=["unsupported call"], inputs=lambda: (torch.zeros(5),))
def test_a_keyword_of_python_as_the_name_of_an_argument(x):
    return (x + 1).random_(**{"from": 3, "to": 9}) + 1


class Attributes:
    def __init__(self):
        self.scale = torch.ones(4)
        self.name = "a"


ATTRIBUTES = Attributes()


@same_as_eager(graphs=1, breaks=[])
def test_vars_of_an_object(x):
    return x * vars(ATTRIBUTES)["scale"], [*vars(ATTRIBUTES)]


@same_as_eager(graphs=0)
def test_vars_of_the_frame(x):
    y = x + 1
    return sorted(vars()), dir(), y


@same_as_eager(graphs=2, breaks=["skipped function"])
def test_dir_of_an_object(x):
    y = x + 1
    return y * len([each for each in dir(ATTRIBUTES) if each[0] != "_"])


NAMES = (ATTRIBUTES,)


@same_as_eager(graphs=0)
def test_dir_with_unpacked_arguments(x):
    y = x + 1
    return y, len(dir(*NAMES)) > len(dir(*()))


class RaisesInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.shape[0] == 4:
            raise ValueError("four")
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("backward")


def raise_in_hook(gradient):
    raise ValueError("hook")


def with_gradient():
    return (torch.randn(4, requires_grad=True),)


@same_as_eager(graphs=1, breaks=[], inputs=with_gradient)
def test_a_forward_whose_exception_is_caught(x):
    try:
        y = RaisesInForward.apply(x)
    except ValueError:
        y = x.sin()
    return y * 2, torch.is_grad_enabled()


@same_as_eager(inputs=with_gradient)
def test_a_backward_that_raises_later(x):
    try:
        y = RaisesInBackward.apply(x)
    except ValueError:
        y = x.sin()
    return y * 2, torch.is_grad_enabled()


@same_as_eager(inputs=with_gradient)
def test_a_hook_that_raises_later(x):
    y = x.sin()
    try:
        y.register_hook(raise_in_hook)
    except ValueError:
        y = x.cos()
    return y * 2, torch.is_grad_enabled()


class NumberOfTheProgram:
    """A number whose text is no literal."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __add__(self, other):
        return NumberOfTheProgram(self.value + other)


def test_a_count_of_objects_breaks_the_graph():
    counter = itertools.count(NumberOfTheProgram(1))
    compiled = compiler_core.compile(lambda x: x * next(counter).value, backend="eager", strict=True)
    x = torch.ones(2)
    assert [compiled(x).tolist() for _ in range(3)] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
