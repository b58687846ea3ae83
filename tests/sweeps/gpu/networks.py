"""Trains architectures of timm and torchvision with random weights for a step, eagerly and compiled."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.autograd.passes import gpu_rewrites
from compiler_core.tools import testing

IMAGES = 4
"""Batch norm over two images divides by variances of two values, which tell nothing."""

NOISES = 8
"""Runs of eager, moved by last bits, that say what its error is: of three runs, one in ten networks of eager's own errs
more than twice as much as the others somewhere.  Every second one has channels_last, which our convolutions have too:
on a GPU, cuDNN then computes in TF32 where it does not otherwise."""

OUTLIERS = 0.01
"""The share of tensors, of some hundreds, in which a single activation may be on the other side of a kink."""

# One small model of each family, those first in which kernels differ most.
TIMM = """
    resnet18 resnet26d resnext26ts seresnext26ts mobilenetv3_small_050 mobilenetv2_050 efficientnet_b0
    efficientnet_lite0 tf_efficientnetv2_b0 mnasnet_small fbnetc_100 spnasnet_100 hardcorenas_a tinynet_e
    lcnet_050 ghostnet_050
    repghostnet_050 mobileone_s0 repvgg_a0 regnetx_002 regnety_002 densenet121 dla46_c dpn48b hrnet_w18_small
    res2net50_14w_8s cspresnet50 cspdarknet53 darknet17 vovnet39a ese_vovnet19b_dw selecsls42 skresnet18 ecaresnet26t
    gcresnext26ts botnet26t_256 halonet26t lambda_resnet26t haloregnetz_b eca_botnext26ts_256 rexnet_100 nf_regnet_b0
    dm_nfnet_f0 xception41 inception_v3 vgg11_bn convnext_atto convnextv2_atto convnext_atto_ols edgenext_xx_small
    fastvit_t8 mobilevit_xxs mobilevitv2_050 efficientvit_b0 efficientvit_m0 efficientformer_l1 efficientformerv2_s0
    repvit_m0_9 starnet_s1 levit_128s vit_tiny_patch16_224 deit_tiny_patch16_224 cait_xxs24_224 crossvit_tiny_240
    swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swin_s3_tiny_224 pit_ti_224 pvt_v2_b0 poolformer_s12
    poolformerv2_s12 convformer_s18 caformer_s18 coat_tiny coat_lite_tiny convit_tiny twins_svt_small twins_pcpvt_small
    tnt_s_patch16_224 visformer_tiny xcit_nano_12_p16_224 mixer_s32_224 gmixer_12_224 gmlp_ti16_224 resmlp_12_224
    sequencer2d_s focalnet_tiny_srf davit_tiny gcvit_xxtiny maxvit_rmlp_pico_rw_256 coatnet_pico_rw_224
    hgnetv2_b0 inception_next_atto mambaout_femto nest_tiny volo_d1_224 tiny_vit_5m_224 hiera_tiny_224 sehalonet33ts
""".split()
TORCHVISION = """
    alexnet resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 efficientnet_v2_s densenet121 vgg11_bn googlenet
    inception_v3 shufflenet_v2_x0_5 squeezenet1_1 mnasnet0_5 regnet_y_400mf convnext_tiny swin_t swin_v2_t vit_b_32
    maxvit_t resnext50_32x4d
""".split()


def names() -> list[str]:
    """Returns the architectures of the installed libraries."""
    found = []
    if importlib.util.find_spec("timm") is not None:
        known = set(importlib.import_module("timm").list_models())
        found += [f"timm:{name}" for name in TIMM if name in known]
    if importlib.util.find_spec("torchvision") is not None:
        known = set(importlib.import_module("torchvision").models.list_models())
        found += [f"torchvision:{name}" for name in TORCHVISION if name in known]
    return found


def build(name: str, device: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Returns a model and the arguments of a call."""
    library, _, model = name.partition(":")
    torch.manual_seed(0)
    if library == "timm":
        result = importlib.import_module("timm").create_model(model, pretrained=False, num_classes=10)
        size = result.default_cfg["input_size"][-2:]
    else:
        extra = {"init_weights": False} if model in ("googlenet", "inception_v3") else {}
        result = importlib.import_module("torchvision").models.get_model(model, weights=None, num_classes=10, **extra)
        size = (299, 299) if model == "inception_v3" else (224, 224)
    for module in result.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0  # float64 draws other numbers
    return result.to(device), {"x": torch.randn(IMAGES, 3, *size).to(device)}


def _noisy(model: torch.nn.Module, arguments: dict[str, Any], seed: int) -> testing.ObservedRun:
    """Trains eagerly from arguments that are moved by last bits."""
    copied, laid = copy.deepcopy(model), dict(arguments)
    if seed % 2:
        for tensor in (*copied.parameters(), *copied.buffers()):
            tensor.data = _channels_last(tensor.data)
        laid = {name: _channels_last(value) for name, value in arguments.items()}
    return testing.observe_training(copied, laid, lambda each: each, noise=seed)


def _channels_last(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def check_channels_last(name: str, device: str) -> dict[str, Any]:
    """`check` with convolutions in channels_last, as for tensor cores, but in float32, where errors are small."""
    with mock.patch.object(gpu_rewrites, "_is_faster_channels_last", return_value=True):
        return check(name, device)


def check(name: str, device: str, make: Callable[..., Any] = build) -> dict[str, Any]:
    """Raises AssertionError if a training step differs from eager's; returns graphs, breaks and compiles."""
    model, arguments = make(name, device)
    compiled: list[Any] = []

    def compile(copy: torch.nn.Module) -> Any:
        compiled.append(compiler_core.compile(copy))
        return compiled[0]

    want = testing.observe_training(model, arguments, lambda copy: copy)
    got = testing.observe_training(model, arguments, compile)
    judge = testing.Float64Error(
        lambda: testing.observe_training(model, arguments, lambda copy: copy, wide=True),
        lambda: [_noisy(model, arguments, seed) for seed in range(NOISES)],
        OUTLIERS,
    )
    found = testing.Comparison(judge).compare("", want, got)
    record = record_of(compiled[0])
    failures = [f.detail or f.message for c in record.compiles for f in c.failures]
    assert found is None, found
    assert not failures, "\n".join(failures)
    return {
        "graphs": testing.graph_count(record),
        "breaks": testing.break_kinds(record),
        "compiles": len(record.compiles),
        "outliers": judge.outliers,
    }
