# SPDX-License-Identifier: MIT
"""random_small.py TINY OUTPUT: a Whisper of small's shape with random weights, and the tokenizer of the Hugging Face folder TINY."""
import json
import pathlib
import shutil
import sys

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

tiny, output = map(pathlib.Path, sys.argv[1:])
torch.manual_seed(7)
config = json.loads((tiny / "config.json").read_text())
config |= {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
for part in ("encoder", "decoder"):
    config |= {f"{part}_layers": 12, f"{part}_attention_heads": 12}
WhisperForConditionalGeneration(WhisperConfig(**config)).save_pretrained(output)
for file in tiny.iterdir():
    if file.name not in ("config.json", "model.safetensors"):
        shutil.copy(file, output)
