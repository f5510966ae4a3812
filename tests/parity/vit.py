# SPDX-License-Identifier: MIT
"""Records what transformers makes of ViT-B/16-224's real shape, and small folders as it saves them.

    pip install transformers safetensors   # recorded with transformers 5.23, torch 2.11
    python tests/parity/vit.py             # writes tests/parity/data/vit/

The large model's weights are not stored: each tensor is noise(shape, number) by its place among the sorted names, which
tests/unit/spectrogram_gan_vit/vit/hugging_face_test.cpp makes from the same integers. All weights have an exact float16.
"""
import pathlib
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import ViTConfig, ViTForImageClassification, ViTModel

DATA = pathlib.Path(__file__).parent / "data" / "vit"
TOKENS = 16  # of the hidden states each 16th token is recorded


def noise(shape, number, scale):
    """Odd multiples of scale / 2 from -127.5 to 127.5 times scale, by integer arithmetic that wraps."""
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.int64) + 1_000_003_000 * (number + 1)
    x = x * 6364136223846793005
    x = (x ^ (x >> 33)) * -49064778989728563
    x = x ^ (x >> 29)
    return (((x & 255).float() - 127.5) * scale).reshape(shape)


def weight(name, shape, number):
    if "layernorm" in name and name.endswith("weight"):
        return 1 + noise(shape, number, 2.0**-9)
    if "token" in name or "position" in name:
        return noise(shape, number, 2.0**-7)
    return noise(shape, number, 2.0**-10 if name.endswith("bias") else 2.0**-11)


def load_real_shape():
    """Writes such a folder, and loads it as users do: transformers' own names differ from those that it saves."""
    config = ViTConfig(num_labels=2, attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        ViTForImageClassification(config).save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        shapes = {name: tensor.shape for name, tensor in sorted(load_file(file).items())}
        weights = {name: weight(name, shape, i) for i, (name, shape) in enumerate(shapes.items())}
        assert all(torch.equal(tensor, tensor.half().float()) for tensor in weights.values())
        save_file(weights, file, {"format": "pt"})
        return ViTForImageClassification.from_pretrained(folder, attn_implementation="eager").eval(), shapes


def record_real_shape(out):
    model, shapes = load_real_shape()
    lines = [f"{name} {' '.join(map(str, shape))}" for name, shape in shapes.items()]
    (DATA / "base_names.txt").write_text("\n".join(lines) + "\n")
    for name, height, width in (("square", 224, 224), ("wide", 96, 320)):
        images = noise((1, 3, height, width), 1000, 2.0**-6)
        with torch.no_grad():
            result = model.vit(images, interpolate_pos_encoding=True, output_attentions=True)
            out[f"base.{name}.hidden"] = result.last_hidden_state[0, ::TOKENS].contiguous()
            out[f"base.{name}.attention"] = result.attentions[-1][0, :, 0].contiguous()
            out[f"base.{name}.logits"] = model(images, interpolate_pos_encoding=True).logits


def small_config(**changes):
    return ViTConfig(**{**dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                               image_size=16, patch_size=4, num_labels=2), **changes})


def record_folders(out):
    folders = {"classifier": (ViTForImageClassification, {}), "model": (ViTModel, {}),
               "no_bias": (ViTModel, {"qkv_bias": False, "layer_norm_eps": 1e-3})}
    for number, (name, (kind, changes)) in enumerate(folders.items()):
        torch.manual_seed(number)
        model = kind(small_config(**changes)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.5)
        model.save_pretrained(DATA / name)
        images = noise((2, 3, 16, 16), 1001, 2.0**-6)
        with torch.no_grad():
            out[f"{name}.hidden"] = model.base_model(images).last_hidden_state


def record_resizing(out):
    spectrograms = noise((2, 1, 12, 50), 1002, 2.0**-6)
    for height, width in ((24, 16), (7, 64)):
        out[f"images.{height}x{width}"] = F.interpolate(spectrograms, size=(height, width), mode="bilinear")
    positions = noise((1, 3, 4, 5), 1003, 2.0**-6)
    out["positions.from"] = positions
    out["positions.to"] = F.interpolate(positions, size=(7, 3), mode="bicubic", align_corners=False)


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    recorded = {}
    record_real_shape(recorded)
    record_folders(recorded)
    record_resizing(recorded)
    save_file({name: tensor.clone() for name, tensor in recorded.items()}, DATA / "recorded.safetensors")
