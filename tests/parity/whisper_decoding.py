# SPDX-License-Identifier: MIT
"""Records what openai-whisper decodes with Whisper tiny.en, for tests/unit/whisper/decoding/*_test.cpp.

    python tests/parity/whisper_decoding.py HF_DIR

HF_DIR is the folder that `whisper_import` wrote. Needs torch, safetensors, soundfile, openai-whisper 20250625, and the
programs espeak-ng and sox. Writes next to this file: data/whisper_decoding.safetensors (log-mel frames in half
precision) and data/whisper_decoding.json (tokens and figures).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import soundfile
import torch
import whisper
from safetensors.torch import load_file, save_file
from whisper.decoding import DecodingOptions
from whisper.model import ModelDimensions, Whisper

DATA = pathlib.Path(__file__).parent / "data"
WINDOW = 3000  # mel frames
CLIPS = {  # voice, words a minute, text, effects of sox
    "plain": ("en-us", 150, "The old lighthouse keeper walked down to the harbour, where three fishing boats were waiting. "
              "He said that the weather would change before the evening.", []),
    "radio": ("en-gb-scotland", 210, "juliett delta foxtrot turn left heading seven zero fife descend flight level one two zero "
              "contact radar one two fower decimal niner", []),
    "noisy": ("en-029", 230, "golf hotel squawk six tree two one ident wind calm cleared for the option", ["overdrive", "30"]),
    "hum": (None, 0, "", []),
}
NAMES = (  # openai's parameter names from transformers', in this order
    ("model.", ""), ("layers", "blocks"), ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("final_layer_norm", "mlp_ln"),
    ("self_attn_layer_norm", "attn_ln"), ("encoder_attn_layer_norm", "cross_attn_ln"), ("self_attn", "attn"),
    ("encoder_attn", "cross_attn"), ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"),
    ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln"), ("embed_tokens", "token_embedding"),
    ("embed_positions.weight", "positional_embedding"))
SETTINGS = {
    "greedy": {},
    "beam": {"beam_size": 5},
    "patient": {"beam_size": 3, "patience": 2.0, "length_penalty": 0.6},
    "prompted": {"prompt": "Radio: fower, fife, niner."},
    "prompted_beam": {"prompt": "Radio: fower, fife, niner.", "beam_size": 2},
    "timestamps": {"without_timestamps": False},
    "timestamps_beam": {"without_timestamps": False, "beam_size": 5},
    "short": {"sample_len": 4, "beam_size": 4},
}


def load(directory):
    config = json.loads((directory / "config.json").read_text())
    model = Whisper(ModelDimensions(
        config["num_mel_bins"], config["max_source_positions"], config["d_model"], config["encoder_attention_heads"],
        config["encoder_layers"], config["vocab_size"], config["max_target_positions"], config["d_model"],
        config["decoder_attention_heads"], config["decoder_layers"]))
    weights = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        for ours, theirs in NAMES:
            name = name.replace(ours, theirs)
        weights[name] = tensor.float()
    model.load_state_dict(weights)
    return model.eval()


def speak(folder, voice, speed, text, effects):
    if voice is None:
        subprocess.run(["sox", "-R", "-n", "-r", "16000", "-c", "1", f"{folder}/c.wav", "synth", "4", "brownnoise", "vol", "0.02"],
                       check=True)
    else:
        subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", f"{folder}/raw.wav", text], check=True)
        subprocess.run(["sox", "-R", f"{folder}/raw.wav", "-r", "16000", "-c", "1", f"{folder}/c.wav", *effects], check=True)
    audio = torch.from_numpy(soundfile.read(f"{folder}/c.wav", dtype="float32")[0])
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(audio))
    return mel[:, : len(audio) // 160 + 8].half()


def padded(mel):
    window = torch.full((mel.shape[0], WINDOW), float(mel.min()))
    window[:, : mel.shape[1]] = mel.float()
    return window


def record(directory):
    model = load(directory)
    mels, figures = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, clip in CLIPS.items():
            mels[name] = speak(folder, *clip)
    windows = torch.stack([padded(mel) for mel in mels.values()])
    with torch.no_grad():
        states = model.encoder(windows)
        for setting, options in SETTINGS.items():
            options = DecodingOptions(**{"fp16": False, "language": "en", "without_timestamps": True, **options})
            rows = [model.decode(row[None], options)[0] for row in states]  # its beams need a batch of one
            figures[setting] = {
                name: {"tokens": row.tokens, "average_log_probability": row.avg_logprob,
                       "no_speech_probability": row.no_speech_prob, "compression_ratio": row.compression_ratio, "text": row.text}
                for name, row in zip(mels, rows)}
            for name, row in zip(mels, rows):
                print(setting, name, len(row.tokens), round(row.avg_logprob, 3), round(row.compression_ratio, 2),
                      round(row.no_speech_prob, 3), row.text[:150])
    save_file(mels, DATA / "whisper_decoding.safetensors")
    (DATA / "whisper_decoding.json").write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    record(pathlib.Path(sys.argv[1]))
