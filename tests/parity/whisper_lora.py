# SPDX-License-Identifier: MIT
"""Records adapters that peft writes for transformers' Whisper, and the scores and gradients that it computes with them.

usage: python tests/parity/whisper_lora.py         (needs torch, transformers and peft; writes data/whisper_lora and
                                                    data/whisper_lora.safetensors)
       python tests/parity/whisper_lora.py FOLDER
           (checks that peft loads the adapters in FOLDER onto transformers' Whisper, and computes
            FOLDER/scores.safetensors with them)

The model is data/tiny_whisper. tests/unit/whisper/model/adapters_test.cpp computes the same from the same inputs.
"""
import json
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import WhisperForConditionalGeneration

DATA = pathlib.Path(__file__).parent / "data"


def wave(sizes, phase):
    count = int(torch.Size(sizes).numel())
    return torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + phase).reshape(sizes).float()


def base():
    return WhisperForConditionalGeneration.from_pretrained(DATA / "tiny_whisper").eval()


def scores(model, mel, tokens):
    return model(input_features=mel, decoder_input_ids=tokens).logits


def record():
    config = LoraConfig(r=2, lora_alpha=6, lora_dropout=0.1, target_modules=["q_proj", "v_proj", "fc1"])
    model = get_peft_model(base(), config).eval()
    adapters = sorted((n, p) for n, p in model.named_parameters() if "lora_" in n)
    with torch.no_grad():
        for number, (_, tensor) in enumerate(adapters):
            tensor.copy_(0.4 * wave(tensor.shape, number))
    mel = wave((2, 8, 100), 0.5)
    tokens = torch.tensor([[296, 298, 40, 41, 42], [296, 298, 7, 8, 9]])
    found = scores(model, mel, tokens)
    (found * wave(found.shape, 2.5)).sum().backward()
    gradients = {n.replace("base_model.model.", "grad.").replace(".default", ""): p.grad for n, p in adapters}
    model.save_pretrained(DATA / "whisper_lora")
    (DATA / "whisper_lora" / "README.md").unlink(missing_ok=True)
    file = DATA / "whisper_lora" / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = "../tiny_whisper"
    file.write_text(json.dumps(config, indent=2) + "\n")
    save_file({"mel": mel, "tokens": tokens, "scores": found.detach(), **gradients}, DATA / "whisper_lora.safetensors")


def check(folder):
    expected = load_file(pathlib.Path(folder) / "scores.safetensors")
    mel, tokens = expected["mel"], expected["tokens"]
    model = PeftModel.from_pretrained(base(), folder).eval()
    found = scores(model, mel, tokens)
    torch.testing.assert_close(found, expected["scores"], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, scores(base(), mel, tokens), atol=1e-2)
    torch.testing.assert_close(scores(model.merge_and_unload(), mel, tokens), expected["scores"], rtol=1e-4, atol=1e-4)
    print(f"{folder}: loaded by peft onto transformers' Whisper, scores equal")


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else record()
