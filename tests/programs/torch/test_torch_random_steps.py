# mypy: ignore-errors
"""Random training steps: network, optimizer, schedule, clipping, scaler, accumulation and the rest are drawn.

Each step is compiled as one function and trained beside eager PyTorch, whose runs with changed last bits tell how far
values may differ.
"""

import random
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler, swa_utils
from torch.utils._pytree import keystr, tree_flatten_with_path

import compiler_core
from compiler_core.api.compile import record_of
from tests.sampling import always

pytestmark = pytest.mark.slow

STEPS, NOISES, SEEDS = 6, 2, 100
NETWORKS = {
    "perceptron": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "normalised": lambda: nn.Sequential(
        nn.BatchNorm1d(6), nn.Linear(6, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 3)
    ),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(8, 3)
    ),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Softplus(), nn.Linear(8, 3)),
}
OPTIMIZERS = {
    "SGD": {
        "lr": 0.05,
        "momentum": [0, 0.9],
        "dampening": [0, 0, 0.1],
        "weight_decay": [0, 0.01],
        "fused": [None, True],
    },
    "Adam": {"lr": 0.01, "amsgrad": [False, True], "weight_decay": [0, 0.01], "fused": [None, True]},
    "AdamW": {"lr": 0.01, "betas": [(0.9, 0.99), (0.5, 0.9)], "fused": [None, True]},
    "RMSprop": {"lr": 0.01, "momentum": [0, 0.5], "centered": [False, True]},
    "Adagrad": {"lr": 0.05, "lr_decay": [0, 0.1]},
    "NAdam": {"lr": 0.01, "weight_decay": [0, 0.01]},
    "Adamax": {"lr": 0.01, "weight_decay": [0, 0.01]},
    "Adadelta": {"lr": 1.0, "rho": [0.9, 0.5]},
}
SCHEDULES = {
    "none": lambda o: None,
    "warm-up": lambda o: lr_scheduler.LambdaLR(o, lambda n: min(1.0, (n + 1) / 4)),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "steps": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20, cycle_momentum=False),
}
CLIPS = {
    "none": lambda parameters: None,
    "norm": lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.5),
    "greatest": lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.1, norm_type=float("inf"), foreach=False),
    "values": lambda parameters: nn.utils.clip_grad_value_(parameters, 0.05),
}


def drawn(seed):
    """Returns what a seed chooses."""
    draw = random.Random(seed)
    name = draw.choice(list(OPTIMIZERS))
    options = {k: draw.choice(v) if isinstance(v, list) else v for k, v in OPTIMIZERS[name].items()}
    if not options.get("fused"):
        options.pop("fused", None)
        options["foreach"] = draw.choice([None, False, True])
    options["maximize"] = draw.random() < 0.2
    return SimpleNamespace(
        network=draw.choice(list(NETWORKS)),
        optimizer=name,
        options=options,
        groups=draw.random() < 0.3,
        schedule=draw.choice(list(SCHEDULES)),
        clip=draw.choice(list(CLIPS)),
        scales=draw.random() < 0.3,
        infinite=draw.choice([(), (0,), (2,), (1, 4)]),
        parts=draw.choice([1, 1, 2, 3]),
        keeps_gradients=draw.random() < 0.3,
        zeroes_last=draw.random() < 0.3,
        penalty=draw.random() < 0.2,
        averages=draw.random() < 0.3,
        logs=draw.random() < 0.3,
    )


def step(training, x, y):
    chosen, model, optimizer, scaler = training.chosen, training.model, training.optimizer, training.scaler
    if not chosen.zeroes_last:
        optimizer.zero_grad(set_to_none=not chosen.keeps_gradients)
    total = 0.0
    for part, labels in zip(x.chunk(chosen.parts), y.chunk(chosen.parts), strict=True):
        loss = F.cross_entropy(model(part), labels) / chosen.parts
        if chosen.penalty:
            gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            loss = loss + 0.1 * sum(g.square().sum() for g in gradients)
        (scaler.scale(loss) if chosen.scales else loss).backward()
        total = total + loss.detach()
    if chosen.scales and chosen.clip != "none":
        scaler.unscale_(optimizer)
    CLIPS[chosen.clip](list(model.parameters()))
    if chosen.scales:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    if training.scheduler is not None:
        training.scheduler.step()
    if chosen.averages:
        training.average.update_parameters(model)
    if chosen.zeroes_last:
        optimizer.zero_grad(set_to_none=not chosen.keeps_gradients)
    if chosen.logs:
        training.logged.append(total.item())
    return total


def trained(seed, run, noise=None):
    """Returns what some steps of a drawn training leave."""
    torch.manual_seed(0)
    chosen = drawn(seed)
    model = NETWORKS[chosen.network]()
    parameters = list(model.parameters())
    if noise is not None:
        bits = torch.Generator().manual_seed(noise)
        for p in parameters:
            p.data.mul_(1 + torch.randint(-1, 2, p.shape, generator=bits) * torch.finfo(p.dtype).eps)
    groups = [{"params": parameters[:1], "lr": 0.02}, {"params": parameters[1:]}] if chosen.groups else parameters
    training = SimpleNamespace(
        chosen=chosen,
        model=model,
        optimizer=getattr(optim, chosen.optimizer)(groups, **chosen.options),
        scaler=torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2),
        average=swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
        logged=[],
    )
    training.scheduler = SCHEDULES[chosen.schedule](training.optimizer)
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number + 1)
        x, y = torch.randn(6, 6), torch.randint(3, (6,))
        if chosen.scales and number in chosen.infinite:
            x[0] = float("inf")
        losses.append(run(training, x, y))
    return {
        "model": model.state_dict(),
        "gradients": [p.grad for p in parameters],
        "flags": [(p.requires_grad, p.is_leaf) for p in parameters],
        "optimizer": training.optimizer.state_dict(),
        "rates": training.scheduler and training.scheduler.get_last_lr(),
        "scaler": training.scaler.state_dict(),
        "average": training.average.state_dict(),
        "logged": torch.tensor(training.logged or [0.0]),
        "losses": torch.stack(losses),
        "random numbers": torch.get_rng_state(),
    }


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("seed", always([*range(SEEDS), 197], (197).__eq__))  # its first step makes no state
def test_a_random_step(seed):
    run = compiler_core.compile(step, capture_backward=True, strict=True)
    eager = [trained(seed, step, noise) for noise in (None, *range(NOISES))]
    found = trained(seed, run)
    flat = [tree_flatten_with_path(each) for each in (found, *eager)]
    assert all(spec == flat[0][1] for _, spec in flat)
    for (path, ours), (_, wanted), *others in zip(*(leaves for leaves, _ in flat), strict=True):
        where = f"{keystr(path)} of {drawn(seed)}"
        assert type(ours) is type(wanted), where
        if not isinstance(ours, torch.Tensor):
            assert ours == wanted, where
            continue
        assert (ours.dtype, ours.shape, ours.stride()) == (wanted.dtype, wanted.shape, wanted.stride()), where
        if not ours.is_floating_point():
            assert torch.equal(ours, wanted), where
            continue
        assert torch.equal(ours.isfinite(), wanted.isfinite()), where
        ours, wanted, *others = (t.nan_to_num(0, 0, 0) for t in (ours, wanted, *(other for _, other in others)))
        noise = max((other - wanted).abs().max() for other in others)
        assert (ours - wanted).abs().max() <= 4 * noise + 2e-5 * wanted.abs().max() + 1e-8, where
    chosen, compiles = drawn(seed), list(record_of(run).compiles)
    torch.testing.assert_close(trained(seed, run), found, rtol=0, atol=0, equal_nan=True)  # another model
    assert chosen.scales or len(record_of(run).compiles) == len(compiles), chosen
    warns = chosen.scales and 0 in chosen.infinite and chosen.schedule != "none"  # of an order of steps
    allowed = {name for name, may in {"optimizer": chosen.scales, "print": warns}.items() if may}
    assert {each.reason for compile_ in compiles for each in compile_.breaks} <= allowed, chosen
    assert not [each for each in compiles if each.frame == 0][-1].breaks, chosen
