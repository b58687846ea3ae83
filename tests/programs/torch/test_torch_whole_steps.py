# mypy: ignore-errors
# ruff: noqa: B905, E731
"""Training steps in one graph: forward, backward and the step of an optimizer, beside eager PyTorch and float64."""

import copy
import gc
import inspect
import sys
import warnings
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.errors import BackendError, FullGraphError
from tests.sampling import always, pairs, sample

pytestmark = pytest.mark.slow

STEPS = 4


def net():
    return nn.Sequential(nn.Linear(6, 3), nn.Tanh())


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(step, make, dtype=torch.float32, *, between=lambda optimizer, scheduler: None, schedule=None, wrap=None):
    """Returns the losses, parameters, gradients and the optimizer's state after some steps, and the function."""
    torch.manual_seed(0)
    model = net().to(dtype)
    optimizer = make(model)
    scheduler = schedule and schedule(optimizer)
    data = torch.randn(STEPS, 4, 6).to(dtype), torch.randint(3, (STEPS, 4))
    run = wrap(step) if wrap else step
    losses = []
    for x, y in zip(*data):
        losses.append(run(model, optimizer, x, y))
        between(optimizer, scheduler)
    grads = [p.grad for p in model.parameters()]
    return [losses, list(model.parameters()), grads, optimizer.state_dict()], run


def compared(make, graphs=1, breaks=0, step=step, **options):
    """Trains with and without the compiler, and compares what is left."""
    compiled = lambda f: compiler_core.compile(f, backend="cpp", capture_backward=True)
    wanted, _ = trained(step, make, **options)
    exact, _ = trained(step, make, torch.float64, **options)
    found, run = trained(step, make, **options, wrap=compiled)
    flat = [torch.utils._pytree.tree_flatten(each) for each in (wanted, exact, found)]
    assert flat[0][1] == flat[2][1]
    for eager, true, ours in zip(*(leaves for leaves, _ in flat)):
        assert type(eager) is type(ours)
        if isinstance(eager, torch.Tensor):
            assert (eager.dtype, eager.shape, eager.stride(), eager.device) == (
                *(ours.dtype, ours.shape, ours.stride(), ours.device),
            )
            assert (eager.requires_grad, eager.is_leaf) == (ours.requires_grad, ours.is_leaf)
            assert (ours - true).abs().max() <= 4 * (eager - true).abs().max() + 1e-5 * (1 + true.abs().max())
        else:
            assert eager == ours
    record = record_of(run)
    assert len(record.compiles) == graphs
    assert sum(len(each.breaks) for each in record.compiles) == breaks
    return record


OPTIMIZERS = {
    "SGD": lambda m: optim.SGD(m.parameters(), 0.1),
    "SGD with momentum": lambda m: optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda m: optim.Adam(m.parameters(), 0.01),
    "Adam of lists": lambda m: optim.Adam(m.parameters(), 0.01, foreach=True, weight_decay=0.1),
    "AMSGrad": lambda m: optim.Adam(m.parameters(), 0.01, amsgrad=True, maximize=True),
    "AdamW": lambda m: optim.AdamW(m.parameters(), 0.01),
    "AdamW, rate in a tensor": lambda m: optim.AdamW(m.parameters(), torch.tensor(0.01)),
    "RMSprop": lambda m: optim.RMSprop(m.parameters(), 0.001, momentum=0.9, centered=True),
    "Adagrad": lambda m: optim.Adagrad(m.parameters(), 0.01, lr_decay=0.1),
    "NAdam": lambda m: optim.NAdam(m.parameters(), 0.01),
    "NAdam of lists": lambda m: optim.NAdam(m.parameters(), 0.01, foreach=True),
    "Adamax": lambda m: optim.Adamax(m.parameters(), 0.01),
    "Adadelta": lambda m: optim.Adadelta(m.parameters()),
    "Rprop": lambda m: optim.Rprop(m.parameters()),
    "groups": lambda m: optim.AdamW(
        [{"params": [m[0].weight], "lr": 0.1}, {"params": [m[0].bias], "weight_decay": 0.0}], 0.01
    ),
}


FUSED = {
    "Adam": lambda m: optim.Adam(m.parameters(), 0.01, fused=True, weight_decay=0.1),
    "AMSGrad": lambda m: optim.AdamW(m.parameters(), 0.01, fused=True, amsgrad=True, maximize=True),
    "AdamW": lambda m: optim.AdamW(m.parameters(), 0.01, fused=True),
    "AdamW, rate in a tensor": lambda m: optim.AdamW(m.parameters(), torch.tensor(0.01), fused=True),
    "SGD": lambda m: optim.SGD(m.parameters(), 0.1, fused=True),
    "SGD with momentum": lambda m: optim.SGD(m.parameters(), 0.1, momentum=0.9, dampening=0.1, fused=True),
    "Nesterov": lambda m: optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, fused=True),
    "Adagrad": lambda m: optim.Adagrad(m.parameters(), 0.01, lr_decay=0.1, maximize=True, fused=True),
}


OTHER_FIRST_STEP = {"Rprop"}
"""Their state is made of the first gradients: the first step has another graph."""
OTHER_FIRST_STEP_OF_FUSED = {"SGD with momentum", "Adagrad"}
"""With dampening the first momentum is another multiple of the gradient; the kernel of Adagrad is checked once."""


OF_THE_KIND_OF_OTHERS = {
    *("SGD", "AMSGrad", "AdamW", "AdamW, rate in a tensor", "Adagrad", "NAdam of lists", "Adadelta", "Rprop"),
}
"""Their fused kernels, or optimizers with the same operations, are compiled in each run."""


@pytest.mark.parametrize("name", always(OPTIMIZERS, lambda name: name not in OF_THE_KIND_OF_OTHERS))
def test_optimizers(name):
    compared(OPTIMIZERS[name], graphs=1 + (name in OTHER_FIRST_STEP))


@pytest.mark.parametrize("name", sample(FUSED, 2))  # the others: test_a_rate_that_changes_compiles_nothing_again
def test_fused_kernels(name):
    compared(FUSED[name], graphs=1 + (name in OTHER_FIRST_STEP_OF_FUSED))


@pytest.mark.parametrize(("dtype", "name"), pairs([torch.bfloat16, torch.float16, torch.float64], FUSED, 6))
def test_fused_kernels_of_other_types(name, dtype):
    def updated(update):
        torch.manual_seed(0)
        model = net().to(dtype)
        optimizer = FUSED[name](model)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            update(optimizer)
        return [list(model.parameters()), optimizer.state_dict()["state"]]

    run = compiler_core.compile(lambda optimizer: optimizer.step(), capture_backward=True, strict=True)
    found, wanted = updated(run), updated(lambda optimizer: optimizer.step())
    is_wrong_in_pytorch = ("SGD" in name or name == "Nesterov") and dtype != torch.float64
    assert any(each.breaks for each in record_of(run).compiles) == is_wrong_in_pytorch
    if not is_wrong_in_pytorch:  # it reads memory that is not initialised
        torch.testing.assert_close(found, wanted, check_stride=True)


@pytest.mark.parametrize("name", ["AMSGrad", "Nesterov", "Adagrad"])
def test_fused_kernels_that_skip_a_step(name):
    """Where a gradient is infinite, as `GradScaler` finds it, nothing is written; else gradients are unscaled."""

    def scaled(model, optimizer, x, y):
        optimizer.found_inf = (x[0, 0] > 0).float()
        optimizer.grad_scale = torch.tensor(4.0)
        return step(model, optimizer, x, y)

    compared(FUSED[name], graphs=1 + (name in OTHER_FIRST_STEP_OF_FUSED), step=scaled)


SCALED = {
    "AdamW": (OPTIMIZERS["AdamW"], 3),  # the first step makes the state
    "fused AdamW": (FUSED["AdamW"], 1),
    "SGD": (OPTIMIZERS["SGD"], 1),
    "SGD with momentum": (OPTIMIZERS["SGD with momentum"], 3),
}


INFINITE = [
    *(((2,), False), ((0, 3), True), ((), True), ((0, 1), False)),
    *(((), False), ((2,), True), ((0, 3), False), ((0, 1), True)),
]
"""The steps with an infinite gradient, and whether gradients are unscaled before the step."""


@pytest.mark.parametrize(("name", "when"), pairs(SCALED, INFINITE, 8))
def test_a_scaler_of_gradients(name, when):
    """A step with an infinite gradient changes no parameter and no state, and halves the scale."""
    infinite, unscales = when

    def step(model, optimizer, scaler, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if unscales:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    make, compiles = SCALED[name]

    def scaled(step):
        torch.manual_seed(0)
        model = net()
        optimizer, scaler = make(model), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        found = []
        for number in range(5):
            x = torch.randn(4, 6) * (float("inf") if number in infinite else 1)
            found.append(step(model, optimizer, scaler, x, torch.randint(3, (4,))))
        grads = [p.grad for p in model.parameters()]
        return [found, list(model.parameters()), grads, optimizer.state_dict()["state"], scaler.state_dict()]

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    torch.testing.assert_close(scaled(run), scaled(step), equal_nan=True)
    record = record_of(run)
    assert len(record.compiles) == compiles
    assert not [each for each in record.compiles if each.frame == 0][-1].breaks


def test_what_stock_has_disabled_is_inlined():
    """On a GPU, Adam calls itself by a function that stock runs as plain Python."""
    disabled = inspect.getclosurevars(sys.modules["torch.optim.adam"].adam).nonlocals["disabled_func"]

    def step(parameter, gradient, state):
        options = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.0, "eps": 1e-8}
        options |= {"amsgrad": False, "maximize": False, "foreach": False}
        with torch.no_grad():
            disabled([parameter], [gradient], [state[0]], [state[1]], [], [state[2]], **options)

    def updated(step):
        parameter, gradient = torch.ones(3), torch.arange(3.0)
        state = torch.zeros(3), torch.zeros(3), torch.tensor(0.0)
        for _ in range(3):
            step(parameter, gradient, state)
        return parameter, state

    run = compiler_core.compile(step, capture_backward=True, fullgraph=True)
    torch.testing.assert_close(updated(run), updated(step))


def test_a_scaler_of_an_optimizer_that_changes_other_things_breaks():
    class Counting(optim.SGD):
        def step(self, closure=None):
            self.steps = getattr(self, "steps", 0) + 1
            return super().step(closure)

    def step(model, optimizer, scaler, x):
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    model = net()
    optimizer, scaler = Counting(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    run = compiler_core.compile(step, capture_backward=True, strict=True)
    for number in range(4):
        run(model, optimizer, scaler, torch.ones(4, 6) * (float("inf") if number == 2 else 1))
    assert optimizer.steps == 3
    assert {b.reason for c in record_of(run).compiles for b in c.breaks} == {"optimizer"}


def test_a_scaler_of_an_optimizer_that_writes_to_other_tensors_breaks():
    class Totals(optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad * 0.1)
                self.total.add_(parameter.grad.nan_to_num().abs().sum())

    def step(model, optimizer, scaler, x):
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    def total(step):
        torch.manual_seed(0)
        model = net()
        optimizer, scaler = Totals(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
        optimizer.total = torch.zeros(())
        for number in range(4):
            step(model, optimizer, scaler, torch.ones(4, 6) * (float("inf") if number == 2 else 1))
        return optimizer.total, list(model.parameters())

    torch.testing.assert_close(total(compiler_core.compile(step, capture_backward=True, strict=True)), total(step))


def test_a_step_after_the_first_has_one_graph():
    record = compared(OPTIMIZERS["Rprop"], graphs=2)
    assert [len(each.breaks) for each in record.compiles] == [0, 0]
    assert [each.caller for each in record.compiles]


def test_parameters_and_state_are_named_after_the_module():
    """Also where the optimizer leads to them first, as its `zero_grad()` does."""
    record = compared(OPTIMIZERS["AdamW"])
    nodes = record.compiles[-1].captured_graphs[0].graph.nodes
    record.find_problems()
    assert not record.problems
    places = {node.key: node.place for node in nodes if node.op == "placeholder"}
    assert places["model_0_weight"] == "model.0.weight"
    assert places["optimizer_state_model_0_bias_exp_avg"] == "optimizer.state[model.0.bias]['exp_avg']"
    assert not any("params" in name for name in places)


@pytest.mark.parametrize("name", ["SGD with momentum", "AdamW", "Rprop"])
def test_parameters_are_freed_with_their_model(name):
    """Also by the compile of the first step, which writes the optimizer's state with parameters as keys."""
    run = compiler_core.compile(step, backend="eager", capture_backward=True, strict=True)
    alive = []
    for _ in range(3):
        model = net()
        run(model, OPTIMIZERS[name](model), torch.randn(4, 6), torch.randint(3, (4,)))
        alive.append(weakref.ref(model[0].weight))
        del model
    gc.collect()
    assert not any(each() is not None for each in alive)
    assert len(record_of(run).compiles) == 1


def two_at_a_time(step, make, models, scaled):
    """Trains models, each a while beside the last one; returns what is left."""
    torch.manual_seed(0)
    trainings = []
    for _ in range(models):
        model = net()
        trainings.append((model, make(model), torch.amp.GradScaler("cpu", init_scale=8.0, enabled=scaled)))
        for _ in range(2):
            for each in trainings[-2:]:
                step(*each, torch.randn(4, 6), torch.randint(3, (4,)))
    return [(m.state_dict(), o.state_dict()["state"], s.state_dict()) for m, o, s in trainings]


@pytest.mark.parametrize("name", ["AdamW", "SGD with momentum", "RMSprop"])
@pytest.mark.parametrize("scaled", [False, True])
def test_models_are_trained_with_one_compile(name, scaled):
    """A new model has no state, which the first compile made when its first step was captured."""

    def step(model, optimizer, scaler, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        optimizer.step()

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    wanted = two_at_a_time(step, OPTIMIZERS[name], 10, scaled)
    torch.testing.assert_close(two_at_a_time(run, OPTIMIZERS[name], 10, scaled), wanted)
    assert [each.id for each in record_of(run).compiles] == ["0/0"]


def test_a_schedule_in_the_step():
    """Its count of steps is a symbol; a step that is not its first needs no other compile, nor a second model."""

    def step(model, optimizer, schedule, x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()

    def trained(step):
        torch.manual_seed(0)
        found = []
        for _ in range(3):
            model = net()
            optimizer = OPTIMIZERS["SGD with momentum"](model)
            schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            for _ in range(3):
                step(model, optimizer, schedule, torch.randn(4, 6), torch.randint(3, (4,)))
                found.append((schedule.last_epoch, schedule._step_count, schedule.get_last_lr()))
            found.append((model.state_dict(), optimizer.state_dict()))
        return found

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    torch.testing.assert_close(trained(run), trained(step))
    assert [each.id for each in record_of(run).compiles] == ["0/0"]


def test_a_schedule_before_the_first_step_warns_as_eager():
    def step(model, optimizer, schedule, x, y):
        optimizer.zero_grad()
        schedule.step()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    def warned(step):
        model = net()
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            for _ in range(3):
                step(model, optimizer, schedule, torch.randn(4, 6), torch.randint(3, (4,)))
        return [str(each.message) for each in given], schedule.get_last_lr()

    found = warned(compiler_core.compile(step, capture_backward=True))
    assert found == warned(step)
    assert "before `optimizer.step()`" in found[0][0]


def test_momentum_begins_with_the_gradient_to_the_last_bit():
    """Also where the gradient is -0.0, which 0.0 plus it is not."""
    weight = nn.Parameter(torch.ones(4))
    optimizer = optim.SGD([weight], 0.1, momentum=0.9)
    gradient = torch.tensor([-0.0, 0.0, 1.5, float("inf")])

    def step():
        weight.grad = gradient
        optimizer.step()

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    run()
    bits = [each.view(torch.int32) for each in (optimizer.state[weight]["momentum_buffer"], gradient)]
    assert torch.equal(*bits)
    run()
    assert len(record_of(run).compiles) == 1


class Partly(nn.Module):
    """A model with parameters that get no gradient: one is frozen, one is not used."""

    def __init__(self):
        super().__init__()
        self.first, self.unused, self.last = nn.Linear(6, 5), nn.Linear(2, 2), nn.Linear(5, 3)
        self.first.bias.requires_grad_(False)

    def forward(self, x):
        return self.last(self.first(x).tanh())


def states(optimizer):
    return [optimizer.state.get(p) for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("lists", [False, True])
def test_state_is_made_for_parameters_with_gradients_only(lists):
    def run(wrap):
        torch.manual_seed(0)
        model, seen = Partly(), []
        groups = [{"params": model.first.parameters()}, {"params": model.unused.parameters(), "amsgrad": True}]
        optimizer = optim.AdamW([*groups, {"params": model.last.parameters(), "lr": 0.1}], foreach=lists)
        compiled = wrap(step)
        for _ in range(3):
            compiled(model, optimizer, torch.ones(4, 6), torch.tensor([0, 1, 2, 0]))
            seen.append(copy.deepcopy(states(optimizer)))
        return seen, list(optimizer.state), list(model.parameters()), [p.grad for p in model.parameters()], compiled

    *found, compiled = run(lambda f: compiler_core.compile(f, capture_backward=True, strict=True))
    *wanted, _ = run(lambda f: f)
    torch.testing.assert_close(found, wanted)
    assert len(record_of(compiled).compiles) == 1


class Refused(Exception):
    pass


def refuse(graph, examples):
    raise Refused


@pytest.mark.parametrize("how", ["backend", "fullgraph", "step"])
def test_what_is_not_compiled_leaves_no_state(how):
    """The step of an optimizer that was captured does not run, so it has no state and no gradients."""

    def broken(model, optimizer, x, y):
        loss = step(model, optimizer, x, y)
        if how == "fullgraph":
            print("not in a graph")
        if how == "step":
            raise Refused
        return loss

    model = net()
    optimizer = OPTIMIZERS["AdamW"](model)
    options = {"backend": refuse} if how == "backend" else {"fullgraph": how == "fullgraph"}
    run = compiler_core.compile(broken, capture_backward=True, **options)
    with pytest.raises((Refused, BackendError, FullGraphError)):
        run(model, optimizer, torch.ones(4, 6), torch.tensor([0, 1, 2, 0]))
    steps = [int(each["step"]) for each in states(optimizer) if each]
    assert steps == ([1, 1] if how == "step" else [])
    assert [p.grad is None for p in model.parameters()] == [how != "step"] * 2


def test_a_group_that_the_frame_changes():
    def switched(model, optimizer, x, y):
        for group in optimizer.param_groups:
            group["amsgrad"], group["lr"] = True, 0.05
        return step(model, optimizer, x, y)

    compared(OPTIMIZERS["AdamW"], graphs=2, step=switched)


@pytest.mark.parametrize("name", ["AdamW", "Adam of lists"])
def test_a_group_that_the_frame_adds(name):
    def unfreezes(model, optimizer, x, y):
        if not model[0].bias.requires_grad and optimizer.state:
            model[0].bias.requires_grad_(True)
            optimizer.add_param_group({"params": [model[0].bias], "lr": 0.02})
        return step(model, optimizer, x, y)

    def frozen(model):
        model[0].bias.requires_grad_(False)
        return OPTIMIZERS[name](nn.ParameterList([model[0].weight]))

    compared(frozen, graphs=4, breaks=1, step=unfreezes)


def test_gradients_that_are_read_before_they_are_dropped():
    def reads(model, optimizer, x, y):
        before = [None if p.grad is None else p.grad.sum() for p in model.parameters()]
        kept = model[0].weight.grad
        loss = step(model, optimizer, x, y)
        return loss, before, None if kept is None else kept * 2

    compared(OPTIMIZERS["AdamW"], graphs=2, step=reads)


def halve(optimizer, scheduler):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
        group["weight_decay"] *= 2


@pytest.mark.parametrize("name", sample(["not fused", *FUSED], 4))
def test_a_rate_that_changes_compiles_nothing_again(name):
    graphs = 1 + (name in OTHER_FIRST_STEP_OF_FUSED)
    compared(FUSED.get(name, OPTIMIZERS["AdamW"]), graphs, between=halve)


RATES = optim.lr_scheduler
SCHEDULES = {
    "steps": lambda o: RATES.StepLR(o, 2),
    "milestones": lambda o: RATES.MultiStepLR(o, [2, 5, 6]),
    "a function": lambda o: RATES.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "cosine": lambda o: RATES.CosineAnnealingLR(o, 7),
    "restarts": lambda o: RATES.CosineAnnealingWarmRestarts(o, 5),
    "one cycle": lambda o: RATES.OneCycleLR(o, 0.1, total_steps=20),
    "two in sequence": lambda o: RATES.SequentialLR(
        o, [RATES.LinearLR(o, 0.1, total_iters=3), RATES.ExponentialLR(o, 0.9)], [3]
    ),
    "two at once": lambda o: RATES.ChainedScheduler([RATES.PolynomialLR(o, 9), RATES.ConstantLR(o, 0.5, 4)]),
}


@pytest.mark.parametrize(("name", "scaled"), pairs(SCHEDULES, [False, True], 4))
def test_a_schedule_within_the_step(name, scaled):
    """Rates are bitwise equal to those of eager PyTorch, in few compiles."""

    def step(model, optimizer, scaler, scheduler, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if scaled:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        scheduler.step()
        return loss.detach(), scheduler.get_last_lr()

    def scheduled(step):
        torch.manual_seed(0)
        model = net()
        optimizer, scaler = OPTIMIZERS["AdamW"](model), torch.amp.GradScaler("cpu", init_scale=64.0)
        scheduler = SCHEDULES[name](optimizer)
        found = [
            step(model, optimizer, scaler, scheduler, torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(16)
        ]
        rates = [each[1] for each in found], optimizer.state_dict()["param_groups"]
        inner = [*getattr(scheduler, "_schedulers", ()), scheduler]
        states = [{k: v for k, v in vars(each).items() if not k.startswith("_sched")} for each in inner]
        plain = [
            {k: v for k, v in each.items() if k not in ("optimizer", "lr_lambdas", "anneal_func")} for each in states
        ]
        return [each[0] for each in found], list(model.parameters()), optimizer.state_dict()["state"], (rates, plain)

    run = compiler_core.compile(step, capture_backward=True, strict=True)
    *found, numbers = scheduled(run)
    *wanted, wanted_numbers = scheduled(step)
    assert numbers == wanted_numbers
    torch.testing.assert_close(found, wanted)
    compiles = record_of(run).compiles
    assert len(compiles) <= 6
    assert [each.reason for c in compiles for each in c.breaks] == ["optimizer"] * scaled


def clipped(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss.detach()


def test_gradients_that_are_clipped_and_kept():
    compared(OPTIMIZERS["AdamW"], graphs=2, step=clipped)


class Lion(optim.Optimizer):
    """An optimizer of the program."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                mean = state["mean"]
                p.add_(torch.sign(mean * beta1 + p.grad * (1 - beta1)), alpha=-group["lr"])
                mean.lerp_(p.grad, 1 - beta2)


def test_an_optimizer_of_the_program():
    compared(lambda m: Lion(m.parameters(), 0.01), graphs=2)


def averaged(model, optimizer, x, y):
    loss = step(model, optimizer, x, y)
    with torch.no_grad():
        for name, p in model.named_parameters():
            AVERAGE[name].lerp_(p, 0.1)
    return loss, [each.clone() for each in AVERAGE.values()]


AVERAGE = {}


def test_an_average_of_weights_and_buffers():
    """Buffers are of several types, which are averaged in groups."""

    def averaged(step):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
        optimizer = OPTIMIZERS["AdamW"](model)
        average = optim.swa_utils.AveragedModel(
            model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        for _ in range(4):
            step(model, optimizer, average, torch.randn(4, 6), torch.randint(3, (4,)))
        return model.state_dict(), average.state_dict()

    def averaging(model, optimizer, average, x, y):
        step(model, optimizer, x, y)
        average.update_parameters(model)

    run = compiler_core.compile(averaging, capture_backward=True, strict=True)
    torch.testing.assert_close(averaged(run), averaged(averaging))
    assert len(record_of(run).compiles) == 2
    assert not any(each.breaks for each in record_of(run).compiles)


def test_hooks_of_an_optimizer():
    def make(model):
        optimizer = OPTIMIZERS["SGD"](model)
        optimizer.steps = 0
        optimizer.register_step_post_hook(lambda o, args, kwargs: setattr(o, "steps", o.steps + 1))
        return optimizer

    compared(make, graphs=2)  # one for numbers of steps


@pytest.mark.parametrize("foreach", [False, True])
def test_capturable_optimizers_raise_on_a_cpu(foreach):
    """PyTorch leaves out its check while a compiler runs its code."""
    model = net()
    optimizer = optim.Adam(model.parameters(), capturable=True, foreach=foreach)
    run = compiler_core.compile(step, capture_backward=True, strict=True)
    before = [p.clone() for p in model.parameters()]
    for _ in range(2):
        with pytest.raises(AssertionError, match="If capturable=True"):
            run(model, optimizer, torch.randn(4, 6), torch.randint(3, (4,)))
    torch.testing.assert_close(list(model.parameters()), before)


@pytest.mark.parametrize("name", ["RAdam", "ASGD", "Adafactor"])
def test_those_that_read_values_break(name):
    compared(lambda m: getattr(optim, name)(m.parameters(), 0.01), graphs=2, breaks=1)


def test_without_the_option_an_optimizer_breaks():
    run = compiler_core.compile(step, backend="cpp")
    model = net()
    run(model, OPTIMIZERS["SGD"](model), torch.randn(4, 6), torch.randint(3, (4,)))
    found = [each.reason for compile_ in record_of(run).compiles for each in compile_.breaks]
    assert found == ["optimizer", "backward", "optimizer"]


def alive_in_the_graph(step):
    """Returns whether the gradient of the call before is alive while a graph runs, and what two calls return."""
    model, alive, old = net(), [], []

    def backend(gm, inputs):
        def run(*args):
            alive.append(any(reference() is not None for reference in old))
            return gm(*args)

        return run

    run = compiler_core.compile(step, backend=backend, capture_backward=True)
    optimizer, x, y = OPTIMIZERS["SGD"](model), torch.randn(4, 6), torch.randint(3, (4,))
    results = [run(model, optimizer, x, y)]
    old.append(weakref.ref(model[0].weight.grad))
    results.append(run(model, optimizer, x, y))
    assert model[0].weight.grad is not None
    return alive[-1], results


def test_dropped_gradients_are_freed_before_the_graph_runs():
    assert not alive_in_the_graph(step)[0]


def test_an_error_before_gradients_are_dropped_leaves_them():
    def looked_up(model, optimizer, x, y):
        loss = F.cross_entropy(model(x)[y], y)
        optimizer.zero_grad()
        loss.backward()

    run = compiler_core.compile(looked_up, backend="cpp", capture_backward=True)
    model, y = net(), torch.randint(3, (4,))
    optimizer = OPTIMIZERS["SGD"](model)
    for _ in range(3):
        run(model, optimizer, torch.randn(4, 6), y)
    gradient = model[0].weight.grad
    with pytest.raises(IndexError):
        run(model, optimizer, torch.randn(4, 6), y + 7)
    assert model[0].weight.grad is gradient


def test_gradients_that_are_needed_are_kept():
    def returned(model, optimizer, x, y):
        old = model[0].weight.grad
        return step(model, optimizer, x, y), old

    def summed(model, optimizer, x, y):
        norm = None if model[0].weight.grad is None else model[0].weight.grad.sum()
        return step(model, optimizer, x, y), norm

    def added(model, optimizer, x, y):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    alive, results = alive_in_the_graph(returned)
    assert alive
    assert results[0][1] is None
    assert results[1][1] is not None
    for each in (summed, added):
        assert alive_in_the_graph(each)[0]


def test_other_operators_with_a_tensor_as_scale_break():
    def f(a, s):
        return torch.addmm(a, a, a, alpha=s)

    run, args = compiler_core.compile(f, backend="cpp"), (torch.rand(3, 3), torch.tensor(0.3))
    torch.testing.assert_close(f(*args), run(*args))
    assert [each.reason for each in record_of(run).compiles[0].breaks] == ["tensor value read"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_lists_to_which_a_tensor_is_added(dtype):
    def f(a, b, s):
        a = a.clone()
        torch._foreach_add_([a, b], s, alpha=2)
        found = torch._foreach_add((a, b), s), torch._foreach_add([a, b], [b.sum(), a]), torch._foreach_add([a], 1)
        return a, b, found

    run = compiler_core.compile(f, backend="cpp", fullgraph=True)
    for scale in (torch.tensor(3.0).to(dtype), torch.tensor(2)):
        ours, eager = (tuple(torch.arange(n).to(dtype) for n in (3, 3)) for _ in range(2))
        torch.testing.assert_close(run(*ours, scale), f(*eager, scale))
        torch.testing.assert_close(ours, eager)


def test_operators_whose_scale_is_a_tensor():
    def f(a, b, c, s):
        return [
            *(torch.addcdiv(a, b, c, value=s), torch.addcmul(a, b, c, value=s), a.add(b, alpha=s)),
            *(a.sub(b, alpha=s), torch.add(a, b, alpha=s), a.clone().addcdiv_(b, c, value=s)),
        ]

    run = compiler_core.compile(f, backend="cpp")
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for shape in ((3,), (), (2, 3)):
            args = *(torch.rand(shape).to(dtype) + 0.5 for _ in range(3)), torch.tensor(0.3)
            for wanted, found in zip(f(*args), run(*args), strict=True):
                rtol, atol = (0.02, 0.01) if dtype is torch.bfloat16 else (1e-5, 1e-6)
                torch.testing.assert_close(wanted, found, rtol=rtol, atol=atol)
    assert not [each.breaks for each in record_of(run).compiles if each.breaks]


# ---- what is said of the first step


def recorded(step, x):
    """Returns the record of four whole steps."""
    with compiler_core.record() as record:
        compiled = compiler_core.compile(step, backend="eager", strict=True, capture_backward=True)
        for _ in range(4):
            compiled(x)
    return record


def test_the_compile_for_later_steps_is_expected():
    """The first step makes the optimizer's state of its gradients."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(5, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, dampening=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    record = recorded(step, x)
    (problem,) = record.problems
    assert (problem.kind, problem.grade) == ("recompile", "expected")
    assert "Nothing to change: the first step makes gradients" in problem.advice
    assert len(record.compiles) == 2


def test_a_counter_beside_the_step_is_no_first_step():
    """What a step changes each time is no reason to expect a compile."""
    torch.manual_seed(0)
    net, x, log = nn.Linear(3, 1), torch.randn(5, 3), {"names": ["a"]}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        log["names"].append("b")
        loss = net(x).square().mean() * len(log["names"])
        loss.backward()
        optimizer.step()
        return loss

    record = recorded(step, x)
    assert {each.grade for each in record.problems if each.kind == "recompile"} >= {"costly"}
