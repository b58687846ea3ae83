"""Ready lists of cases: torchvision, timm, transformers, PyTorch's operator database, a folder of captured graphs.

Weights are random: nothing is downloaded.  Each list needs its package, both here and where the cases run.
"""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.tools.sweep.cases import Case

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]

_TEXT_SIZES = {
    "hidden_size": 64, "n_embd": 64, "d_model": 64, "dim": 64, "embedding_size": 64,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "head_dim": 16, "d_kv": 16,
    "intermediate_size": 128, "n_inner": 128, "d_ff": 128, "hidden_dim": 128, "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128, "vocab_size": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
"""Sizes of a small model, by the names that configurations give them."""
TRANSFORMERS = (
    "albert", "bart", "bert", "bloom", "distilbert", "electra", "gemma", "gpt2", "gpt_neox", "llama",
    "mistral", "mpt", "opt", "phi", "qwen2", "roberta", "stablelm", "t5", "xlm-roberta",
)  # fmt: skip
"""Text models of transformers that are built from a small configuration."""


def torchvision(patterns: Sequence[str] = ("*",), batch: int = 1) -> list[Case]:
    """Returns cases of torchvision's models of classification whose names match one of the patterns."""
    _need("torchvision")
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    return _cases("torchvision", _matching(names, patterns), "make_torchvision", batch)


def make_torchvision(name: str, batch: int) -> Made:
    """Makes a model of torchvision, and images for it."""
    import torchvision

    size = 299 if name == "inception_v3" else 224
    return torchvision.models.get_model(name, weights=None).eval(), (torch.randn(batch, 3, size, size),), {}


def timm(patterns: Sequence[str] = ("*",), batch: int = 1) -> list[Case]:
    """Returns cases of timm's models whose names match one of the patterns."""
    _need("timm")
    import timm

    return _cases("timm", _matching(timm.list_models(), patterns), "make_timm", batch)


def make_timm(name: str, batch: int) -> Made:
    """Makes a model of timm, and images for it."""
    import timm

    model: Any = timm.create_model(name, pretrained=False).eval()
    return model, (torch.randn(batch, *model.default_cfg["input_size"]),), {}


def transformers(patterns: Sequence[str] = ("*",), batch: int = 1) -> list[Case]:
    """Returns cases of transformers' text models in `TRANSFORMERS` whose names match; small, with random weights."""
    _need("transformers")
    return _cases("transformers", _matching(TRANSFORMERS, patterns), "make_transformers", batch)


def make_transformers(name: str, batch: int) -> Made:
    """Makes a small model of transformers, and tokens for it."""
    from transformers import AutoConfig, AutoModel

    known = set(AutoConfig.for_model(name).to_dict()) | set(getattr(AutoConfig.for_model(name), "attribute_map", ()))
    sizes = {key: value for key, value in _TEXT_SIZES.items() if key in known}
    make: Any = AutoModel.from_config
    model = make(AutoConfig.for_model(name, **sizes)).eval()
    tokens = torch.randint(3, 256, (batch, 16))
    kwargs: dict[str, Any] = {"input_ids": tokens, "use_cache": False, "return_dict": False}
    if model.config.is_encoder_decoder:
        kwargs["decoder_input_ids"] = tokens
    return model, (), kwargs


def operators(patterns: Sequence[str] = ("*",), batch: int = 0) -> list[Case]:
    """Returns cases of the operators in PyTorch's database that take float32: the first sample of each."""
    from compiler_core.torch_private import op_db

    names = [each.formatted_name for each in op_db if torch.float32 in each.dtypes]
    return _cases("operators", _matching(names, patterns), "make_operator", batch)


def make_operator(name: str, sample: int) -> Made:
    """Makes a call of an operator of PyTorch's database with one of its samples."""
    from compiler_core.torch_private import op_db

    info: Any = next(each for each in op_db if each.formatted_name == name)
    inputs = list(info.sample_inputs("cpu", torch.float32))[sample]

    def call(*args: Any, **kwargs: Any) -> Any:
        return info.op(*args, **kwargs)

    return call, (inputs.input, *inputs.args), inputs.kwargs


def graphs(folder: str | Path) -> list[Case]:
    """Returns cases of the captured graphs in a folder.

    These are exported programs (``*.pt2``, with the example inputs that `torch.export` keeps), and folders with a
    ``model.py`` that defines the module ``GraphModule`` and with descriptions of its tensors, as GraphNet has.  Their
    code is run: use it for files that you trust.

    Raises UsageError if the folder has no captured graph.
    """
    root = Path(folder).resolve()
    files = sorted([*root.rglob("*.pt2"), *root.rglob("model.py")])
    if not files:
        raise UsageError(f"{folder} has no captured graphs: no *.pt2, and no folder with model.py")
    made = {file: "make_exported" if file.suffix == ".pt2" else "make_graph_folder" for file in files}
    names = {file: file.relative_to(root) for file in files}
    return [
        Case(f"graph {names[file].parent if function == 'make_graph_folder' else names[file]}",
             f"{__name__}:{function}", (str(file),))
        for file, function in made.items()
    ]  # fmt: skip


def make_exported(path: str) -> Made:
    """Loads an exported program, with its example inputs; raises UsageError if it has none."""
    program = torch.export.load(path)
    if program.example_inputs is None:
        raise UsageError(f"{path} has no example inputs")
    args, kwargs = program.example_inputs
    return program.module(), tuple(args), dict(kwargs)


def make_graph_folder(path: str) -> Made:
    """Makes the graph of a ``model.py``, with random tensors as the files beside it describe them.

    Raises UsageError if they do not describe an argument of the graph.
    """
    import inspect
    import runpy

    folder = Path(path).parent
    model = runpy.run_path(path)["GraphModule"]().eval()
    described: dict[str, Any] = {}
    for file in ("weight_meta.py", "input_meta.py"):
        if (folder / file).is_file():
            classes: list[Any] = [
                each for each in runpy.run_path(str(folder / file)).values() if isinstance(each, type)
            ]
            described.update({each.name: each for each in classes if hasattr(each, "shape")})
    names = [name for name in inspect.signature(model.forward).parameters if name != "self"]
    if missing := [name for name in names if name not in described]:
        raise UsageError(f"{folder} does not describe {', '.join(missing[:5])}")
    return model, tuple(_tensor(described[name]) for name in names), {}


def _tensor(described: Any) -> torch.Tensor:
    """Makes a tensor of a described shape, type, mean and deviation, or with the described values."""
    dtype = getattr(torch, str(described.dtype).removeprefix("torch."))
    if getattr(described, "data", None) is not None:
        return torch.tensor(described.data, dtype=dtype).reshape(described.shape)
    if dtype.is_floating_point:
        mean, deviation = getattr(described, "mean", None) or 0.0, getattr(described, "std", None) or 1.0
        return (torch.randn(described.shape) * deviation + mean).to(dtype)
    return torch.zeros(described.shape, dtype=dtype)


LISTS: dict[str, Callable[..., list[Case]]] = {
    "torchvision": torchvision, "timm": timm, "transformers": transformers, "operators": operators,
}  # fmt: skip
"""The lists by name, for ``cutaway sweep --models NAME:PATTERN``; `graphs` takes a folder instead of patterns."""


def _cases(source: str, names: Iterable[str], function: str, *args: Any) -> list[Case]:
    return [Case(f"{source} {name}", f"{__name__}:{function}", (name, *args)) for name in names]


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{package} is not installed: pip install {package}")
