# SPDX-License-Identifier: MIT
"""Records what transformers computes with a Whisper of each published size, and of two that a test can afford.

    pip install transformers safetensors       # recorded with transformers 5.23, torch 2.11
    python tests/parity/whisper_sizes.py       # 8 GB of memory; writes data/whisper_sizes.{json,safetensors}

The weights are not stored: each is noise(shape, number) by its place among the sorted names, which
tests/unit/whisper/model/sizes_test.cpp makes from the same integers, and has an exact float16. The encoder's positions are
transformers' own table.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import WhisperConfig, WhisperForConditionalGeneration

DATA = pathlib.Path(__file__).parent / "data"
TOKENS = 8


def shape(width, layers, heads, vocabulary, mel_bins=80, **changes):
    return dict(d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
                decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width,
                vocab_size=vocabulary, num_mel_bins=mel_bins) | changes


ENGLISH, MULTILINGUAL, LARGE_V3 = 51864, 51865, 51866
SHAPES = {
    "tiny, 2 s": shape(384, 4, 6, MULTILINGUAL, max_source_positions=100),
    "large-v3, one layer, 2 s": shape(1280, 1, 20, LARGE_V3, mel_bins=128, max_source_positions=100),
    "tiny.en": shape(384, 4, 6, ENGLISH), "tiny": shape(384, 4, 6, MULTILINGUAL),
    "base.en": shape(512, 6, 8, ENGLISH), "base": shape(512, 6, 8, MULTILINGUAL),
    "small.en": shape(768, 12, 12, ENGLISH), "small": shape(768, 12, 12, MULTILINGUAL),
    "medium.en": shape(1024, 24, 16, ENGLISH), "medium": shape(1024, 24, 16, MULTILINGUAL),
    "large-v2": shape(1280, 32, 20, MULTILINGUAL), "large-v3": shape(1280, 32, 20, LARGE_V3, mel_bins=128),
    "turbo": shape(1280, 32, 20, LARGE_V3, mel_bins=128, decoder_layers=4),
}


def noise(shape, number, scale):
    """Odd multiples of scale / 2 from -127.5 to 127.5 times scale, by integer arithmetic that wraps."""
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.int64).add_(1_000_003_000 * (number + 1))
    x.mul_(6364136223846793005)
    x.bitwise_xor_(x >> 33).mul_(-49064778989728563)
    x.bitwise_xor_(x >> 29).bitwise_and_(255)
    return x.float().sub_(127.5).mul_(scale).reshape(shape)


def weight(name, shape, number):
    if "layer_norm" in name and name.endswith("weight"):
        return noise(shape, number, 2.0**-9).add_(1)
    if "embed" in name:
        return noise(shape, number, 2.0**-9)
    return noise(shape, number, 2.0**-10 if name.endswith("bias") else 2.0**-11)


def make_model(config):
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    positions = "model.encoder.embed_positions.weight"
    model.model.encoder.embed_positions.to_empty(device="cpu")
    model.model.encoder._init_weights(model.model.encoder)
    names = sorted(name for name, _ in model.named_parameters())
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    made = {name: weight(name, shapes[name], i) for i, name in enumerate(names) if name != positions}
    made["proj_out.weight"] = made["model.decoder.embed_tokens.weight"]
    report = model.load_state_dict(made, strict=False, assign=True)
    assert report.missing_keys == [positions] and not report.unexpected_keys, report
    model.tie_weights()
    return model.eval()


@torch.no_grad()
def record(name, sizes, out):
    config = WhisperConfig(**sizes, bos_token_id=50257, eos_token_id=50257, pad_token_id=50257)
    model = make_model(config)
    mel = noise((1, config.num_mel_bins, 2 * config.max_source_positions), 1000, 2.0**-6)
    tokens = (torch.arange(TOKENS) * 7919 + 13)[None] % config.vocab_size
    result = model(input_features=mel, decoder_input_ids=tokens)
    out[f"{name}.states"] = result.encoder_last_hidden_state[0, ::97, ::61].contiguous()
    out[f"{name}.logits"] = result.logits[0, ::3, ::503].contiguous()
    out[f"{name}.positions"] = model.model.encoder.embed_positions.weight[::97, ::61].contiguous()
    print(name, sum(p.numel() for p in model.parameters()), result.logits.abs().max(), flush=True)
    return config.to_dict()


if __name__ == "__main__":
    recorded, configs = {}, {}
    for name, sizes in SHAPES.items():
        config = record(name, sizes, recorded)
        configs[name] = {key: config[key] for key in ("model_type", "activation_function", "scale_embedding",
                                                      "tie_word_embeddings", "pad_token_id", "bos_token_id",
                                                      "eos_token_id", "decoder_start_token_id",
                                                      "max_source_positions", "max_target_positions", *sizes)}
    (DATA / "whisper_sizes.json").write_text(json.dumps(configs, indent=1) + "\n")
    save_file(recorded, DATA / "whisper_sizes.safetensors")
