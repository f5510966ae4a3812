# SPDX-License-Identifier: MIT
"""Records what transformers computes with Whisper tiny.en, for tests/unit/whisper/{model/model,decoding/decoding}_test.cpp.

    python tests/parity/whisper_model.py HF_DIR

HF_DIR is the folder that `whisper_import` wrote (config.json, generation_config.json, model.safetensors). Needs torch,
transformers, safetensors, openai-whisper (its log-mel), and the programs espeak-ng and sox. Writes next to this file:
data/whisper_model.safetensors and data/whisper_parameter_names.txt.

Inputs that a closed formula gives are computed on both sides and not stored. Gradients are kept as a norm and 32
entries a parameter, at flat positions k * numel // 32.
"""
import pathlib
import subprocess
import sys
import tempfile

import soundfile
import torch
import whisper
from safetensors.torch import save_file
from transformers import WhisperForConditionalGeneration

DATA = pathlib.Path(__file__).parent / "data"
SAMPLES = 32
IGNORED = -100
SENTENCES = (
    ("en-us", "juliett delta foxtrot turn left heading seven zero fife"),
    ("en-gb", "cleared to land runway two tree"),
)


def wave_mel(frames):
    """[2, 80, frames], a closed formula in place of audio."""
    b = torch.arange(2, dtype=torch.float64)[:, None, None]
    m = torch.arange(80, dtype=torch.float64)[None, :, None]
    t = torch.arange(frames, dtype=torch.float64)[None, None, :]
    return (0.5 * torch.sin(0.37 * m + 0.011 * t + 1.7 * b) + 0.3 * torch.sin(0.003 * m * t + b) - 0.2).float()


def speech_mel():
    """[2, 80, 400]: two spoken sentences of at most 4 s, rounded to half precision."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for voice, text in SENTENCES:
            wav = f"{folder}/{voice}.wav"
            subprocess.run(["espeak-ng", "-v", voice, "-w", f"{wav}.raw.wav", text], check=True)
            subprocess.run(["sox", f"{wav}.raw.wav", "-r", "16000", "-c", "1", wav], check=True)
            audio = whisper.pad_or_trim(read(wav), 4 * whisper.audio.SAMPLE_RATE)
            rows.append(whisper.log_mel_spectrogram(audio))
    return torch.stack(rows).half()


def read(path):
    return torch.from_numpy(soundfile.read(path, dtype="float32")[0])


def with_positions(directory, positions):
    model = WhisperForConditionalGeneration.from_pretrained(directory).eval()
    table = model.model.encoder.embed_positions
    table.weight = torch.nn.Parameter(table.weight[:positions].clone(), requires_grad=False)
    table.num_embeddings = positions
    model.config.max_source_positions = model.model.encoder.config.max_source_positions = positions
    return model


def training_tokens(config):
    """Decoder inputs and labels [2, 12]: the second row is shorter, and its real end of text counts."""
    text = torch.arange(300, 310)
    sot, eot, pad = config.decoder_start_token_id, config.eos_token_id, config.pad_token_id
    no_timestamps = 50362
    inputs = [[sot, no_timestamps, *text], [sot, no_timestamps, *text[:6], *[pad] * 4]]
    labels = [[no_timestamps, *text, eot], [no_timestamps, *text[:6], eot, *[IGNORED] * 4]]
    return torch.tensor(inputs), torch.tensor(labels)


def flat_samples(tensor):
    return tensor.flatten()[torch.arange(SAMPLES) * tensor.numel() // SAMPLES].clone()


def record(directory):
    torch.manual_seed(0)
    out = {}
    speech = speech_mel()
    out["speech_mel"] = speech
    for frames in (3000, 800):
        model = with_positions(directory, frames // 2)
        inputs, labels = training_tokens(model.config)
        mel = wave_mel(frames)
        result = model(input_features=mel, decoder_input_ids=inputs, labels=labels)
        result.loss.backward()
        out[f"states_{frames}"] = result.encoder_last_hidden_state.detach()[:, ::50, ::8].contiguous()
        out[f"logits_{frames}"] = result.logits.detach()[:, :, ::101].contiguous()
        out[f"loss_{frames}"] = result.loss.detach()
        trained = [p for _, p in sorted(model.named_parameters()) if p.requires_grad]
        out[f"gradient_norms_{frames}"] = torch.stack([p.grad.norm() for p in trained])
        if frames == 3000:
            out["gradient_samples_3000"] = torch.stack([flat_samples(p.grad) for p in trained])

        padded = torch.full((2, 80, frames), float(speech.min()))
        padded[:, :, :400] = speech.float()
        with torch.no_grad():
            out[f"generated_{frames}"] = model.generate(padded, do_sample=False, num_beams=1, max_new_tokens=60)
        print(frames, "loss", float(result.loss), "generated", out[f"generated_{frames}"].tolist())
    save_file(out, DATA / "whisper_model.safetensors")
    (DATA / "whisper_parameter_names.txt").write_text("\n".join(sorted(n for n, _ in model.named_parameters())) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
