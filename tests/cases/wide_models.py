"""Architectures of transformers in the widths that people train, with few layers and random weights.

`MODELS[name](device)` makes a model without dropout and the keyword arguments of a call; `decoder` makes one that
decodes a token with a static cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

transformers.logging.set_verbosity_error()

Made = tuple[torch.nn.Module, dict[str, Any]]
LAYERS, BATCH, TOKENS, VOCABULARY = 2, 4, 256, 32_000
PROMPT, CACHE = 100, 512
"""Tokens in the static cache before the decoded one, and its size."""
NO_DROPOUT = dict.fromkeys(
    """attention_dropout hidden_dropout dropout attention_probs_dropout_prob hidden_dropout_prob resid_pdrop embd_pdrop
    attn_pdrop activation_dropout layerdrop classifier_dropout embedding_dropout mlp_dropout drop_path_rate dropout_rate
    encoder_layerdrop decoder_layerdrop feat_proj_dropout final_dropout mask_time_prob""".split(),
    0.0,
)


def _config(name: str, **settings: Any) -> Any:
    config = getattr(transformers, f"{name}Config")(**settings)
    for each in (
        config,
        *(getattr(config, part, None) for part in ("text_config", "vision_config", "mask_decoder_config")),
    ):
        for key, value in NO_DROPOUT.items():
            if isinstance(getattr(each, key, None), float):
                setattr(each, key, value)
    return config


def _model(name: str, head: str, device: str, settings: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    config = _config("Gemma3Text" if name == "Gemma3" else name, **settings)
    with torch.device(device):
        model: torch.nn.Module = getattr(transformers, name + head)(config)
    return model


def tokens(device: str, rows: int = BATCH, length: int = TOKENS, vocabulary: int = VOCABULARY) -> torch.Tensor:
    return torch.randint(3, vocabulary, (rows, length), device=device)


def _text(name: str, head: str, **settings: Any) -> Callable[[str], Made]:
    """A language model on sentences, whose loss is that of the next or of masked tokens."""

    def make(device: str) -> Made:
        model = _model(name, head, device, {"vocab_size": VOCABULARY} | settings)
        ids = tokens(device)
        return model, {"input_ids": ids, "labels": ids}

    return make


def _causal(name: str, hidden: int, inner: int, heads: int, groups: int, **settings: Any) -> Callable[[str], Made]:
    known = {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": groups,
        "num_hidden_layers": LAYERS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return _text(name, "ForCausalLM", **known | settings)


def _masked(name: str, hidden: int = 768, heads: int = 12, inner: int = 3072, **settings: Any) -> Callable[[str], Made]:
    known = {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_hidden_layers": LAYERS,
        "max_position_embeddings": 514, "pad_token_id": 0,
    }  # fmt: skip
    return _text(name, "ForMaskedLM", **known | settings)


def _image(name: str, head: str = "Model", size: int = 224, **settings: Any) -> Callable[[str], Made]:
    def make(device: str) -> Made:
        model = _model(name, head, device, settings)
        return model, {"pixel_values": torch.randn(BATCH, 3, size, size, device=device)}

    return make


def _vision(hidden: int, heads: int, inner: int, patch: int, size: int = 224) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner, "num_hidden_layers": LAYERS,
        "image_size": size, "patch_size": patch,
    }  # fmt: skip


def _two_towers(name: str, hidden: int) -> Callable[[str], Made]:
    def make(device: str) -> Made:
        text = {
            "hidden_size": hidden, "num_attention_heads": hidden // 64, "intermediate_size": 4 * hidden,
            "num_hidden_layers": LAYERS,
            "vocab_size": VOCABULARY, "max_position_embeddings": 77,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        }  # fmt: skip
        model = _model(name, "Model", device, {"text_config": text, "vision_config": _vision(768, 12, 3072, 32)})
        images = torch.randn(BATCH, 3, 224, 224, device=device)
        return model, {"input_ids": tokens(device, length=64, vocabulary=VOCABULARY - 1), "pixel_values": images}

    return make


def _sequence_to_sequence(name: str, **settings: Any) -> Callable[[str], Made]:
    def make(device: str) -> Made:
        model = _model(name, "ForConditionalGeneration", device, settings)
        ids = tokens(device, length=128)
        return model, {"input_ids": ids, "labels": ids}

    return make


def _whisper(device: str) -> Made:
    settings = {
        "d_model": 512, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": 8,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 51_865,
    }  # fmt: skip
    model = _model("Whisper", "ForConditionalGeneration", device, settings)
    return model, {"input_features": torch.randn(2, 80, 3000, device=device), "labels": tokens(device, 2, 64)}


def _wav2vec2(device: str) -> Made:
    model = _model("Wav2Vec2", "Model", device, {"num_hidden_layers": LAYERS})
    return model, {"input_values": torch.randn(2, 32_000, device=device)}


def _sam(device: str) -> Made:
    vision = _config("SamVision", num_hidden_layers=LAYERS, global_attn_indexes=[1])
    model = _model("Sam", "Model", device, {"vision_config": vision.to_dict()})
    points = torch.rand(1, 1, 2, 2, device=device) * 1000
    return model, {"pixel_values": torch.randn(1, 3, 1024, 1024, device=device), "input_points": points}


def _detr(device: str) -> Made:
    backbone = transformers.ResNetConfig(depths=[1, 1, 1, 1], out_features=["stage4"])
    settings = {
        "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": backbone,
        "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    }  # fmt: skip
    model = _model("Detr", "Model", device, settings)
    mask = torch.ones(2, 512, 512, dtype=torch.long, device=device)
    return model, {"pixel_values": torch.randn(2, 3, 512, 512, device=device), "pixel_mask": mask}


EXPERTS = {"num_experts_per_tok": 2}
DECODERS: dict[str, Callable[[str], Made]] = {
    "llama": _causal("Llama", 2048, 8192, 32, 8),
    "qwen2": _causal("Qwen2", 1536, 8960, 12, 2),
    "qwen3": _causal("Qwen3", 1024, 3072, 16, 8, head_dim=128),
    "gemma2": _causal("Gemma2", 2304, 9216, 8, 4, head_dim=256, sliding_window=128),
    "gemma3": _causal("Gemma3", 1152, 6912, 4, 1, head_dim=256, sliding_window=128),
    "mistral": _causal("Mistral", 4096, 14_336, 32, 8, sliding_window=128),
    "mixtral": _causal("Mixtral", 1024, 3584, 16, 8, num_local_experts=8, **EXPERTS),
    "deepseek_v3": _causal(
        "DeepseekV3", 1024, 4096, 16, 16, n_routed_experts=8, moe_intermediate_size=512, first_k_dense_replace=1,
        q_lora_rank=384, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, n_group=2,
        topk_group=1, **EXPERTS,
    ),
    "phi3": _causal("Phi3", 3072, 8192, 32, 32),
    "olmo2": _causal("Olmo2", 2048, 8192, 16, 16),
    "gpt2": _text("GPT2", "LMHeadModel", n_layer=LAYERS),
    "gpt_neox": _text(
        "GPTNeoX", "ForCausalLM", hidden_size=1024, intermediate_size=4096, num_attention_heads=16,
        num_hidden_layers=LAYERS,
    ),
    "opt": _text(
        "OPT", "ForCausalLM", hidden_size=768, ffn_dim=3072, num_attention_heads=12, num_hidden_layers=LAYERS,
        word_embed_proj_dim=768,
    ),
}  # fmt: skip
MODELS: dict[str, Callable[[str], Made]] = DECODERS | {
    "bert": _masked("Bert"),
    "modernbert": _masked("ModernBert", intermediate_size=1152),
    "roberta": _masked("Roberta"),
    "electra": _masked("Electra", 256, 4, 1024),
    "deberta_v2": _masked(
        "DebertaV2", relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"], share_att_key=True
    ),
    "mamba2": _text(
        "Mamba2", "ForCausalLM", hidden_size=768, num_hidden_layers=LAYERS, num_heads=24, head_dim=64, n_groups=1,
        state_size=128,
    ),
    "t5": _sequence_to_sequence(
        "T5", d_model=512, num_layers=LAYERS, num_heads=8, d_ff=2048, vocab_size=VOCABULARY, decoder_start_token_id=0
    ),
    "bart": _sequence_to_sequence(
        "Bart", d_model=768, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=VOCABULARY,
    ),
    "whisper": _whisper,
    "wav2vec2": _wav2vec2,
    "vit": _image("ViT", **_vision(768, 12, 3072, 16)),
    "dinov2": _image("Dinov2", **_vision(384, 6, 1536, 14)),
    "swin": _image("Swin", depths=[2, 2, 2, 2]),
    "clip": _two_towers("CLIP", 512),
    "siglip": _two_towers("Siglip", 768),
    "sam": _sam,
    "detr": _detr,
}  # fmt: skip


def decoder(name: str, device: str) -> tuple[torch.nn.Module, Callable[[Any], torch.Tensor]]:
    """Returns a model in bfloat16, and a function of the compiled model that decodes one token after `PROMPT` others.

    Each call of the function begins with the same cache, whose keys and values are written in place.
    """
    model, _ = DECODERS[name](device)
    model = model.to(torch.bfloat16).eval()
    cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
    prompt, token = tokens(device, 1, PROMPT), tokens(device, 1, 1)
    with torch.no_grad():
        model(input_ids=prompt, past_key_values=cache, use_cache=True)
    counters = [
        (layer, key, value.clone() if isinstance(value, torch.Tensor) else value)
        for layer in cache.layers
        for key, value in vars(layer).items()
        if "length" in key
    ]
    places = torch.arange(PROMPT, PROMPT + 1, device=device)

    def decode(run: Any) -> torch.Tensor:
        for layer, key, value in counters:
            known = getattr(layer, key)
            if isinstance(known, torch.Tensor):
                known.copy_(value)
            else:
                setattr(layer, key, value)
        arguments = {"input_ids": token, "past_key_values": cache, "use_cache": True, "position_ids": places[None]}
        with torch.no_grad():
            logits: torch.Tensor = run(**arguments).logits
        return logits

    return model, decode
