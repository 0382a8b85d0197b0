# SPDX-License-Identifier: Apache-2.0
"""Converts an encoder to GGUF for FreeToken.

    python -m freetoken.convert all-MiniLM-L6-v2/          --out minilm.gguf    (config.json, model.safetensors, vocab.txt)
    python -m freetoken.convert deit_tiny.safetensors      --out deit.gguf      (timm names; .pth and .npz too)
    python -m freetoken.convert kwt1/non_stream.tflite     --out kwt1.gguf --labels kwt1/labels.txt
    python -m freetoken.convert whisper-tiny.en/model.bin  --out whisper.gguf   (CTranslate2)
"""
import argparse
import json
import pathlib
import sys

import numpy as np

from . import ctranslate2, families, kwt
from .write import Refused


def read_safetensors(path):
    from safetensors import safe_open
    with safe_open(str(path), framework="np") as f:
        return {k: f.get_tensor(k) for k in f.keys()}


def read_state_dict(path):
    if path.suffix == ".npz":
        return dict(np.load(path, allow_pickle=False))
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    try:
        import torch
    except ImportError as error:
        raise Refused(f"{path.name} needs PyTorch to be read; save it as safetensors or npz instead") from error
    state = torch.load(str(path), map_location="cpu")
    state = state.get("model", state.get("state_dict", state))
    return {k: v.numpy() for k, v in state.items()}


def convert(args):
    path = args.input
    name = args.name or path.resolve().stem
    labels = args.labels.read_text(encoding="utf-8").split("\n") if args.labels else None
    labels = [x.strip() for x in labels if x.strip()] if labels else None
    if path.is_dir():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if config.get("model_type") != "bert":
            raise Refused(f"model_type '{config.get('model_type')}' is not supported; of folders bert is")
        vocab = (path / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
        pooling, pool_file = args.pooling or "mean", path / "1_Pooling" / "config.json"
        if pool_file.exists() and not args.pooling:
            modes = json.loads(pool_file.read_text(encoding="utf-8"))
            pooling = "cls" if modes.get("pooling_mode_cls_token") else "mean"
        lower = True
        if (path / "tokenizer_config.json").exists():
            lower = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8")).get("do_lower_case", True)
        return families.bert(read_safetensors(path / "model.safetensors"), config, vocab, name, pooling, labels, lower)
    if path.suffix == ".tflite":
        return kwt.kwt(path, labels, name)
    if path.name.endswith("model.bin"):
        spec, tensors = ctranslate2.read(path)
        if spec != "WhisperSpec":
            raise Refused(f"{path.name} is a {spec}, only WhisperSpec is supported")
        width = tensors["encoder/conv1/weight"].shape[0]
        return families.whisper_encoder(tensors, args.heads or width // 64, name)
    if path.suffix in (".safetensors", ".npz", ".pth", ".pt", ".bin"):
        extra = {"mean": args.mean, "std": args.std} if args.mean and args.std else {}
        return families.vit(read_state_dict(path), name, args.heads, args.image_size, args.pooling or "cls", labels=labels,
                            crop=args.crop, **extra)
    raise Refused(f"{path.name}: not a folder, .safetensors, .npz, .pth, .tflite or model.bin")


def main():
    parser = argparse.ArgumentParser(prog="python -m freetoken.convert", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--type", choices=("f32", "f16", "q8_0"), default="q8_0", help="of matrices; default q8_0")
    parser.add_argument("--name")
    parser.add_argument("--labels", type=pathlib.Path, help="a label a line")
    parser.add_argument("--pooling", choices=("cls", "mean"), help="default: what the model's files say")
    parser.add_argument("--heads", type=int, help="attention heads; default: a head per 64 dimensions")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--crop", type=float, default=0.9)
    parser.add_argument("--mean", type=float, nargs=3)
    parser.add_argument("--std", type=float, nargs=3)
    args = parser.parse_args()
    try:
        convert(args).write(args.out, args.type)
    except (Refused, OSError, KeyError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
