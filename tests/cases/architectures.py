"""Real architectures with tiny random configurations: Hugging Face transformers and torchvision.

`MODELS[name]()` makes a fresh model and the keyword arguments of a call, always the same ones.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import torch


def _has_torchvision() -> bool:
    """Wheels of torchvision hold C++ operators that only a CUDA build of PyTorch can load.  The models
    need none of them, but the import (which transformers does too) wants the schemas of two."""
    if importlib.util.find_spec("torchvision") is None:
        return False
    try:
        import torchvision.models
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision.models
    return bool(torchvision.models)


HAS_TORCHVISION = _has_torchvision()
if HAS_TORCHVISION:
    import torchvision

import transformers  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

transformers.logging.set_verbosity_error()  # it warns once, in the first of two runs that are compared

Made = tuple[torch.nn.Module, dict[str, Any]]
Maker = Callable[[], Made]
Parts = dict[str, Callable[[], Any]]
NONE: Parts = {}
MODELS: dict[str, Maker] = {}

# The architectures that the project promises first, each one graph with stock torch.compile
FIRST = "bert gpt2 llama vit t5 whisper clip resnet convnext mixtral mamba distilbert qwen3".split()

TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 99}
GROUPED = TEXT | {"num_key_value_heads": 2}
VISION = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
SEQ2SEQ = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 40,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip


def tokens(rows: int = 2, length: int = 8, vocabulary: int = 99) -> torch.Tensor:
    return torch.randint(3, vocabulary, (rows, length))


def text(prefix: str, config: dict[str, Any], head: str = "Model", more: Parts = NONE) -> Maker:
    """Class ``<prefix><head>`` on two sentences of eight tokens."""

    def make() -> Made:
        model = build(prefix, head, config)
        return model, {"input_ids": tokens(), **_made(more)}

    return make


def image(prefix: str, config: dict[str, Any], head: str = "Model", size: int = 32) -> Maker:
    """Class ``<prefix><head>`` on two images."""

    def make() -> Made:
        model = build(prefix, head, config)
        return model, {"pixel_values": torch.randn(2, 3, size, size)}

    return make


def build(prefix: str, head: str, config: dict[str, Any]) -> torch.nn.Module:
    settings = getattr(transformers, f"{prefix}Config")(**config)
    model: torch.nn.Module = getattr(transformers, prefix + head)(settings)
    return model


def attention_mask() -> torch.Tensor:
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 6:] = 0
    return mask


def classes() -> torch.Tensor:
    return torch.tensor([0, 1])


def _made(parts: Parts) -> dict[str, Any]:
    return {k: v() for k, v in parts.items()}


def _vision(name: str, size: int = 64, **settings: Any) -> Maker:
    """A model of torchvision's, with random weights."""
    return lambda: (getattr(torchvision.models, name)(weights=None, **settings), {"x": torch.randn(2, 3, size, size)})


MASK: Parts = {"attention_mask": attention_mask}
LABELS: Parts = {"labels": tokens}
CLASSES: Parts = {"labels": classes}
DECODER: Parts = {"decoder_input_ids": tokens}
MODELS |= {
    # --- the first thirteen
    "bert": text("Bert", TEXT, more=MASK),
    "gpt2": text("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}),
    "llama": text("Llama", GROUPED),
    "vit": image("ViT", VISION),
    "t5": text(
        "T5", {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 40, "vocab_size": 99}, more=DECODER
    ),
    "whisper": lambda: (
        build(
            "Whisper", "Model", SEQ2SEQ | {"max_source_positions": 20, "num_mel_bins": 16, "max_target_positions": 40}
        ),
        {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": tokens()},
    ),
    "clip": lambda: (
        build("CLIP", "Model", {"text_config": TEXT | {"max_position_embeddings": 20}, "vision_config": VISION}),
        {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    "resnet": image("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]}),
    "convnext": image("ConvNext", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}, size=64),
    "mixtral": text("Mixtral", GROUPED | {"num_local_experts": 4}),
    "mamba": text("Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 8}),
    "distilbert": text("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "vocab_size": 99}),
    "qwen3": text("Qwen3", GROUPED | {"head_dim": 8}),
}
MODELS |= {
    # --- encoders
    "roberta": text("Roberta", TEXT, "ForMaskedLM", more=LABELS),
    "albert": text("Albert", TEXT | {"embedding_size": 16}),
    "electra": text("Electra", TEXT | {"embedding_size": 16}, "ForSequenceClassification", more=CLASSES),
    "deberta_v2": text(
        "DebertaV2",
        TEXT
        | {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"], "share_att_key": True},
        more=MASK,
    ),
    "xlnet": text("XLNet", {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 40}),
    "funnel": text(
        "Funnel",
        {
            "vocab_size": 99,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 40,
        },
    ),
    "longformer": lambda: (
        build("Longformer", "Model", TEXT | {"attention_window": 4}),
        {"input_ids": tokens(), **_made(MASK)},
    ),
    "mpnet": text("MPNet", TEXT),
    "fnet": text("FNet", {k: v for k, v in TEXT.items() if k != "num_attention_heads"}),
    "modernbert": text("ModernBert", TEXT | {"pad_token_id": 0, "local_attention": 4, "global_attn_every_n_layers": 2}),
    # --- decoders
    "gpt2_loss": text(
        "GPT2",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64},
        "LMHeadModel",
        more=LABELS,
    ),
    "llama_loss": text("Llama", GROUPED, "ForCausalLM", more=LABELS | MASK),
    "opt": text("OPT", TEXT | {"ffn_dim": 40, "word_embed_proj_dim": 32, "max_position_embeddings": 40}),
    "gemma": text("Gemma", GROUPED | {"head_dim": 8}),
    "gemma2": text("Gemma2", GROUPED | {"head_dim": 8, "sliding_window": 4}),
    "gemma3": text("Gemma3Text", GROUPED | {"head_dim": 8, "sliding_window": 4}),
    "phi": text("Phi", TEXT),
    "phi3": text("Phi3", GROUPED | {"pad_token_id": 0}),
    "mistral": text("Mistral", GROUPED | {"sliding_window": 4}),
    "qwen2_moe": text(
        "Qwen2Moe",
        GROUPED
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
    "falcon": text("Falcon", TEXT),
    "bloom": text("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}, more=MASK),
    "gpt_neox": text("GPTNeoX", TEXT),
    "gptj": text(
        "GPTJ", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64, "rotary_dim": 4}
    ),
    "gpt_neo": text(
        "GPTNeo",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 99,
            "window_size": 4,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 40,
        },
    ),
    "mamba2": text(
        "Mamba2",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 99,
            "state_size": 8,
            "head_dim": 16,
            "num_heads": 4,
            "n_groups": 1,
            "chunk_size": 4,
        },
    ),
    "rwkv": text("Rwkv", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "attention_hidden_size": 32}),
    "olmo2": text("Olmo2", GROUPED),
    # --- encoder-decoders
    "bart": text("Bart", SEQ2SEQ, "ForConditionalGeneration", more=LABELS),
    "pegasus": text("Pegasus", SEQ2SEQ, more=DECODER),
    "marian": text("Marian", SEQ2SEQ, more=DECODER),
    "t5_loss": text(
        "T5",
        {
            "d_model": 32,
            "num_layers": 2,
            "num_heads": 4,
            "d_kv": 8,
            "d_ff": 40,
            "vocab_size": 99,
            "decoder_start_token_id": 0,
        },
        "ForConditionalGeneration",
        more=LABELS,
    ),
    # --- vision
    "deit": image("DeiT", VISION),
    "beit": image("Beit", VISION),
    "dinov2": image("Dinov2", VISION),
    "swin": image(
        "Swin",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    "segformer": image(
        "Segformer",
        {
            "hidden_sizes": [8, 16],
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "num_attention_heads": [1, 2],
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "mobilevit": image(
        "MobileViT",
        {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32], "image_size": 32},
        size=64,
    ),
    "regnet": image("RegNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "groups_width": 4}),
    "poolformer": image("PoolFormer", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}, size=64),
    "detr": lambda: (
        build(
            "Detr",
            "Model",
            {
                "use_timm_backbone": False,
                "use_pretrained_backbone": False,
                "backbone": None,
                "d_model": 32,
                "backbone_config": transformers.ResNetConfig(
                    embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
                ),
                "encoder_layers": 1,
                "decoder_layers": 1,
                "encoder_ffn_dim": 40,
                "decoder_ffn_dim": 40,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "num_queries": 6,
            },
        ),
        {"pixel_values": torch.randn(1, 3, 32, 32), "pixel_mask": torch.ones(1, 32, 32, dtype=torch.long)},
    ),
    # --- sound
    "wav2vec2": lambda: (
        build(
            "Wav2Vec2",
            "Model",
            {k: v for k, v in TEXT.items() if k != "vocab_size"}
            | {
                "conv_dim": [16, 16],
                "conv_stride": [5, 2],
                "conv_kernel": [10, 3],
                "num_feat_extract_layers": 2,
                "num_conv_pos_embeddings": 8,
                "num_conv_pos_embedding_groups": 2,
                "mask_time_prob": 0.0,
            },
        ),
        {"input_values": torch.randn(2, 400)},
    ),
    "audio_spectrogram": lambda: (
        build(
            "AST",
            "Model",
            VISION | {"num_mel_bins": 16, "max_length": 32, "patch_size": 8, "frequency_stride": 8, "time_stride": 8},
        ),
        {"input_values": torch.randn(2, 32, 16)},
    ),
}


MODELS |= {
    "tv_resnet18": _vision("resnet18"),
    "tv_mobilenet_v3": _vision("mobilenet_v3_small"),
    "tv_efficientnet": _vision("efficientnet_b0"),
    "tv_densenet": lambda: (
        torchvision.models.DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=8),
        {"x": torch.randn(2, 3, 64, 64)},
    ),
    "tv_vgg": _vision("vgg11_bn", size=32, num_classes=10),
    "tv_googlenet": _vision("googlenet", init_weights=False),
    "tv_inception": _vision("inception_v3", size=299, init_weights=False),
    "tv_shufflenet": _vision("shufflenet_v2_x0_5"),
    "tv_squeezenet": _vision("squeezenet1_1"),
    "tv_mnasnet": _vision("mnasnet0_5"),
    "tv_regnet": _vision("regnet_y_400mf"),
    "tv_convnext": lambda: (
        torchvision.models.ConvNeXt(
            [
                torchvision.models.convnext.CNBlockConfig(8, 16, 1),
                torchvision.models.convnext.CNBlockConfig(16, None, 1),
            ]
        ),
        {"x": torch.randn(2, 3, 64, 64)},
    ),
    "tv_swin": lambda: (
        torchvision.models.SwinTransformer([4, 4], 16, [1, 1], [2, 4], [4, 4]),
        {"x": torch.randn(2, 3, 32, 32)},
    ),
    "tv_vit": lambda: (torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 40), {"x": torch.randn(2, 3, 32, 32)}),
    "tv_maxvit": lambda: (
        torchvision.models.MaxVit((64, 64), 8, 4, [8, 16], [1, 1], 8, 0.1),
        {"x": torch.randn(2, 3, 64, 64)},
    ),
    "tv_deeplab": lambda: (
        torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=3
        ),
        {"x": torch.randn(2, 3, 64, 64)},
    ),
    "tv_fcn": lambda: (
        torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=3),
        {"x": torch.randn(2, 3, 32, 32)},
    ),
}


SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "embedding_size": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 40, "ffn_dim": 40, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "d_ff": 40, "d_kv": 8,
    "d_inner": 40, "hidden_dim": 40, "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64,
    "image_size": 32, "patch_size": 8, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "sliding_window": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Small values for settings that configurations have in common."""


def small(kind: str) -> Made:
    """The base model of a type, as `AutoModel` names it, with those values of `SMALL` for which it has settings."""
    cls: Any = CONFIG_MAPPING[kind]
    default, other_names = cls(), getattr(cls, "attribute_map", {})
    own = [name for name in SMALL if isinstance(getattr(default, name, None), int) and name not in other_names]
    own += ["pad_token_id"] if hasattr(default, "pad_token_id") and "pad_token_id" not in own else []
    model = transformers.AutoModel.from_config(cls(**{name: SMALL[name] for name in own}))
    inputs = {"input_ids": tokens, "decoder_input_ids": tokens, "pixel_values": lambda: torch.randn(2, 3, 32, 32)}
    taken = inspect.signature(model.forward).parameters
    return model, {name: make() for name, make in inputs.items() if name in taken}


MODELS |= {
    kind: functools.partial(small, kind)
    for kind in """
    apertus arcee aria_text bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small camembert
    canine clip_text_model cohere cohere2 convbert ctrl data2vec-text data2vec-vision deberta dinov2_with_registers
    dinov3_vit doge dpr dpt ernie ernie4_5 ernie4_5_moe eurobert exaone4 falcon_h1 flex_olmo glm glm4 glm4_moe
    gpt_bigcode gpt_neox_japanese gpt_oss granite granitemoe granitemoeshared helium ibert ijepa imagegpt jetmoe
    layoutlm led lfm2 llama4_text m2m_100 mbart megatron-bert minimax ministral3 modernbert-decoder mpt mra mt5 mvp
    nanochat nllb-moe nomic_bert nystromformer olmo olmo3 olmoe persimmon phimoe pixtral plbart prophetnet qwen2
    qwen3_moe rembert roberta-prelayernorm roformer seed_oss siglip_vision_model smollm3 splinter squeezebert stablelm
    starcoder2 switch_transformers umt5 vit_mae xglm xlm-roberta
    """.split()
    if kind in CONFIG_MAPPING  # others are of later versions of transformers
}

if not HAS_TORCHVISION:
    MODELS = {name: make for name, make in MODELS.items() if not name.startswith("tv_")}


def loss_of(output: Any) -> torch.Tensor:
    """One number that depends on all floating-point tensors of a model's output."""
    parts = [t.float().square().mean() for t in _tensors(output) if t.is_floating_point() and t.requires_grad]
    return torch.stack(parts).sum()


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    held = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
    return [t for part in held for t in _tensors(part)]
