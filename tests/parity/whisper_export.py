# SPDX-License-Identifier: MIT
"""Checks what whisper_export writes with the programs that it is for.

    python tests/parity/whisper_export.py PROGRAMS HF_DIR [--clips N] [--language CODE]

PROGRAMS is the folder of the built programs, HF_DIR a Hugging Face folder of Whisper. Needs torch, transformers,
faster-whisper, ctranslate2 4.8, pywhispercpp, jiwer, openai-whisper (its normaliser), and the programs espeak-ng and sox.

In each type, model.bin must be what CTranslate2's own converter writes, byte for byte, and vocabulary.json and config.json
must say the same. Then faster-whisper and whisper.cpp transcribe N clips of read text (sentences of the GPL, in the
voices of espeak-ng), greedily, as whisper_transcribe does. faster-whisper's word error rate may differ from its by 0.2
points; with 8 bits, and by whisper.cpp, which computes attention in 16 bits, it may be higher by 1 point.
"""
import argparse
import json
import multiprocessing
import pathlib
import re
import subprocess
import tempfile


TYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8"}
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f3")


def sentences(count):
    text = re.sub(r"\s+", " ", TEXT.read_text())
    found = [s.strip() for s in re.split(r"[.;:]\s", text)]
    found = [s for s in found if 6 <= len(s.split()) <= 28 and re.fullmatch(r"[A-Za-z,' -]+", s)]
    assert len(found) >= count, f"the text has {len(found)} sentences"
    return found[:count]


def read_aloud(folder, count):
    """Returns (file, text) of each clip, at 16 kHz and padded to a window of 30 s with silence. faster-whisper pads the features of a
    shorter clip with zeros instead, which are not those of silence, and transcribes some words otherwise."""
    clips = []
    for i, text in enumerate(sentences(count)):
        raw, clip = folder / "raw.wav", folder / f"clip{i:03}.wav"
        subprocess.run(["espeak-ng", "-v", VOICES[i % len(VOICES)], "-s", "150", "-w", raw, text], check=True)
        subprocess.run(["sox", "-G", raw, "-r", "16000", "-c", "1", "-b", "16", clip, "pad", "0", "30", "trim", "0", "30"], check=True)
        clips.append((str(clip), text))
    return clips


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def compare_with_converter(model, export, kind, folder):
    reference = folder / f"reference-{kind}"
    run("ct2-transformers-converter", "--model", model, "--output_dir", reference, "--quantization", TYPES[kind])
    assert (export / "model.bin").read_bytes() == (reference / "model.bin").read_bytes(), f"{kind}: other bytes"
    ours, theirs = (json.loads((path / "config.json").read_text()) for path in (export, reference))
    for field in theirs:
        assert ours[field] == theirs[field] or field == "lang_ids" and not theirs[field], f"{kind}: {field}"
    ours, theirs = (json.loads((path / "vocabulary.json").read_text()) for path in (export, reference))
    assert ours == theirs, f"{kind}: another vocabulary"
    print(f"{kind}: model.bin is CTranslate2's own, byte for byte", flush=True)


def ours(programs, model, clips, language):
    lines = run(programs / "whisper_transcribe", "--model", model, "--no-fallback", "--language", language,
                *[file for file, _ in clips])
    return [line.split("\t", 1)[1] for line in lines.splitlines()]


def in_own_process(function, *arguments):
    """Calls a function in a new process: whisper.cpp and PyTorch bring an OpenMP each, which may wait for each other."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


def faster_whisper_texts(export, clips, language, kind):
    from faster_whisper import WhisperModel
    model = WhisperModel(str(export), device="cpu", compute_type=TYPES[kind] if kind == "int8" else "float32")
    options = dict(beam_size=1, temperature=0, without_timestamps=True, condition_on_previous_text=False, language=language)
    return [" ".join(s.text.strip() for s in model.transcribe(file, **options)[0]) for file, _ in clips]


def whisper_cpp_texts(file, clips, language):
    from pywhispercpp.model import Model
    model = Model(str(file), n_threads=2, print_progress=False, print_realtime=False, redirect_whispercpp_logs_to=None,
                  language=language, temperature_inc=0.0, no_timestamps=True, no_context=True, suppress_nst=True,
                  greedy={"best_of": 1})
    return [" ".join(s.text.strip() for s in model.transcribe(clip)) for clip, _ in clips]


def word_error_rate(texts, clips):
    import jiwer
    from whisper.normalizers import EnglishTextNormalizer
    normalise = EnglishTextNormalizer()
    return jiwer.wer([normalise(text) for _, text in clips], [normalise(text) for text in texts])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--language", default="en")
    options = parser.parse_args()
    rates = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        clips = read_aloud(folder, options.clips)
        texts = {"ours": ours(options.programs, options.model, clips, options.language)}
        for kind in TYPES:
            export, ggml = folder / kind, folder / f"ggml-{kind}.bin"
            run(options.programs / "whisper_export", "--model", options.model, "--ctranslate2", export, f"--{kind}",
                *([] if kind == "fp32" else ["--ggml", ggml]))
            compare_with_converter(options.model, export, kind, folder)
            texts[f"faster-whisper {kind}"] = in_own_process(faster_whisper_texts, export, clips, options.language, kind)
            report(f"faster-whisper {kind}", texts, clips, rates)
            if kind == "fp32":
                continue
            texts[f"whisper.cpp {kind}"] = in_own_process(whisper_cpp_texts, ggml, clips, options.language)
            report(f"whisper.cpp {kind}", texts, clips, rates)
    own = word_error_rate(texts["ours"], clips)
    for program, rate in rates.items():
        is_exact = program in ("faster-whisper fp32", "faster-whisper fp16")
        assert abs(rate - own) <= 0.002 if is_exact else rate <= own + 0.01, program


def report(program, texts, clips, rates):
    from whisper.normalizers import EnglishTextNormalizer
    rates[program] = word_error_rate(texts[program], clips)
    normalise = EnglishTextNormalizer()
    same = sum(normalise(a) == normalise(b) for a, b in zip(texts[program], texts["ours"]))
    words = sum(len(normalise(text).split()) for _, text in clips)
    print(f"{program}: word error rate {rates[program]:.4f} (ours {word_error_rate(texts['ours'], clips):.4f}), "
          f"{words} words; {same} of {len(clips)} texts are the same", flush=True)


if __name__ == "__main__":
    main()
