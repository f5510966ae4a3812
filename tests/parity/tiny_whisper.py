# SPDX-License-Identifier: MIT
"""Makes a Whisper model and a corpus so small that a whole fine-tuning takes half a second.

usage: python tests/parity/tiny_whisper.py       (needs torch, transformers)

Writes data/tiny_whisper: a Hugging Face folder of random weights without its tokenizer, which is
data/small_tokenizer.json; clips.wav, ten tones one after the other; and clips.jsonl, a line for each.
"""
import json
import math
import pathlib
import struct
import wave

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

FOLDER = pathlib.Path(__file__).parent / "data" / "tiny_whisper"
END_OF_TEXT, START, NO_TIMESTAMPS = 295, 296, 298  # of data/small_tokenizer.json
CLIPS, SECONDS, RATE = 10, 0.1, 8000


def write_model():
    torch.manual_seed(1)
    config = WhisperConfig(
        vocab_size=301, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=8, max_source_positions=50,
        max_target_positions=24, pad_token_id=END_OF_TEXT, bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT,
        decoder_start_token_id=START)
    WhisperForConditionalGeneration(config).save_pretrained(FOLDER)
    (FOLDER / "model.safetensors").chmod(0o644)
    generation = {"is_multilingual": False, "no_timestamps_token_id": NO_TIMESTAMPS}
    (FOLDER / "generation_config.json").write_text(json.dumps(generation) + "\n")


def write_clips():
    lines, samples = [], []
    for clip in range(CLIPS):
        hertz = 200 + 150 * clip
        samples += [int(16000 * math.sin(2 * math.pi * hertz * t / RATE)) for t in range(int(SECONDS * RATE))]
        lines.append({"audio_filepath": "clips.wav", "text": "abcdefghij"[clip] * (1 + clip % 4),
                      "start": round(clip * SECONDS, 3), "duration": SECONDS})
    with wave.open(str(FOLDER / "clips.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    (FOLDER / "clips.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


FOLDER.mkdir(exist_ok=True)
write_model()
write_clips()
