# SPDX-License-Identifier: MIT
"""Checks a folder that whisper_import wrote: transformers loads it completely, and generates and tokenizes with it.

usage: python tests/parity/whisper_import.py FOLDER [OTHER_FOLDER]     (needs torch, transformers, safetensors)

With OTHER_FOLDER, another Hugging Face folder of the same model, all weights must be equal, bit for bit.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import WhisperForConditionalGeneration, WhisperProcessor


def check(folder):
    model, report = WhisperForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    faults = {kind: names for kind, names in report.items() if names}
    assert not faults, faults
    processor = WhisperProcessor.from_pretrained(folder)
    features = processor(torch.zeros(16000).numpy(), sampling_rate=16000, return_tensors="pt").input_features
    ids = model.eval().generate(features, max_new_tokens=8)
    print("generated:", processor.batch_decode(ids, skip_special_tokens=False))


def compare(folder, other):
    ours, theirs = (load_file(pathlib.Path(path) / "model.safetensors") for path in (folder, other))
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    print(len(ours), "tensors equal")


if __name__ == "__main__":
    check(sys.argv[1])
    if len(sys.argv) > 2:
        compare(*sys.argv[1:3])
