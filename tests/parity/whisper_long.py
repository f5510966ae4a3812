# SPDX-License-Identifier: MIT
"""Records what openai-whisper's `transcribe` makes of a recording of some minutes with Whisper tiny.en, for
openai_transcribe_test.cpp and transcript_files_test.cpp of tests/unit/whisper/transcription.

    python tests/parity/whisper_long.py HF_DIR [--keep-sound [--missing] | --writers]

HF_DIR is the folder that `whisper_import` wrote. Needs torch, safetensors, soundfile 0.13, openai-whisper 20250625, and the
programs espeak-ng and sox. Writes next to this file: data/whisper_long.opus (the recording; --keep-sound takes the one that is
there), data/whisper_long.json (segments and words by settings) and data/whisper_long/ (what openai-whisper's writers make of
them and of texts that need care; --writers records these alone). --missing records only settings that the JSON lacks.
"""
import io
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import soundfile
import whisper
from whisper_decoding import load
from whisper.utils import get_writer

DATA = pathlib.Path(__file__).parent / "data"
SOUND = DATA / "whisper_long.opus"
RATE = 16000
PIECES = [  # voice, words a minute, text; or seconds of silence
    ("en-us", 150, "Good morning, and welcome to the harbour. My name is Edward, and I have kept this lighthouse for thirty-one years. "
     "Every evening, at half past six, I climb two hundred and twelve steps and light the lamp."),
    1.5,
    ("en-gb", 165, "The first thing that visitors ask is always the same: were you ever afraid? Of course I was! In the winter of "
     "nineteen eighty-seven, a storm broke four windows, and the water came in as far as the kitchen."),
    0.7,
    ("en-us", 175, "We had no telephone, no radio, and hardly any food. My wife read stories to the children until the wind calmed "
     "down. \"It will pass,\" she said, and in the morning it had."),
    56.0,
    ("en-gb-scotland", 160, "Later we bought a small boat, painted it blue and white, and sailed to the islands in the north. There are "
     "seals, puffins, and sometimes a whale."),
    4.0,
    ("en-us", 150, "People say that a machine could do my work today. Perhaps they are right. A machine does not tell stories, though, "
     "and it does not make coffee for a tired sailor at three o'clock in the morning."),
    2.5,
    ("en-gb", 170, "So, if you ever come to this coast, knock on my door. I will show you the lamp, the old books, and the best view in "
     "the whole country. Thank you for listening, and good night."),
]
SETTINGS = {
    "default": {},
    "words": {"word_timestamps": True},
    "unconditioned": {"condition_on_previous_text": False},
    "prompted": {"initial_prompt": "An interview with Edward, the lighthouse keeper.", "beam_size": 2},
    "untimed": {"without_timestamps": True},
    "clips": {"clip_timestamps": "3.3,21,30.504,58,95"},
    "carried": {"initial_prompt": "An interview with Edward, the lighthouse keeper.", "carry_initial_prompt": True,
                "clip_timestamps": "0,12,16,28,95,113"},
}
WRITERS = {  # file: setting, format, options of the writer
    "plain.txt": ("default", "txt", {}), "plain.srt": ("default", "srt", {}), "plain.vtt": ("default", "vtt", {}),
    "plain.tsv": ("default", "tsv", {}), "plain.json": ("default", "json", {}), "words.json": ("words", "json", {}),
    "words.srt": ("words", "srt", {}), "lines.srt": ("words", "srt", {"max_line_width": 42, "max_line_count": 2}),
    "width.vtt": ("words", "vtt", {"max_line_width": 30}), "few.vtt": ("words", "vtt", {"max_words_per_line": 4}),
    "lit.vtt": ("words", "vtt", {"max_line_width": 42, "max_line_count": 1, "highlight_words": True}),
}
for _form in ("txt", "srt", "vtt", "tsv", "json"):
    WRITERS[f"odd.{_form}"] = ("odd", _form, {})
    if _form in ("srt", "vtt"):
        WRITERS[f"odd_words.{_form}"] = ("odd_words", _form, {"max_line_width": 12, "max_line_count": 2, "highlight_words": True})


def odd_results():
    def segment(number, start, end, text, words=None, **figures):
        made = {"id": number, "seek": int(start * 100), "start": start, "end": end, "text": text, "tokens": [50364, number],
                "temperature": 0.2, "avg_logprob": -0.1234567890123, "compression_ratio": 1.0, "no_speech_prob": 8.4e-05, **figures}
        return made if words is None else {**made, "words": words}

    def words(start, *texts):
        return [{"word": text, "start": start + i * 0.4, "end": start + i * 0.4 + (0.4 if i % 2 else 0.3), "probability": 1e-4 * 7 ** i}
                for i, text in enumerate(texts)]

    plain = [
        segment(0, 0.0, 1.0005, " A --> B\tand \"quotes\" \\ "), segment(1, 1.0005, 59.9996, "\u00a0\u3000caf\u00e9 \u4f60\u597d \U0001f600\u2028"),
        segment(2, 59.9996, 59.9996, "", words=[]), segment(3, 3599.9994, 3600.0125, " an hour\x7f\x1f", no_speech_prob=1e-17),
        segment(4, 123456.789, 123457.0, " days", avg_logprob=-2e16, compression_ratio=12345678901234567.0)]
    spoken = [
        segment(0, 0.0, 4.0, "", words=words(0.5, " Grüße", ",", " mein", " \u4f60\u597d\u4e16\u754c", " and", " extraordinarily", " long", ".")),
        segment(1, 4.0, 5.0, "", words=[]), segment(2, 9.0, 12.0, "", words=words(9.5, " Later", " on", " it", " rained", "!"))]
    return {"odd": {"text": "".join(s["text"] for s in plain), "segments": plain, "language": "de"},
            "odd_words": {"text": "", "segments": spoken, "language": "de"}}


def speak(folder, voice, speed, text):
    subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", f"{folder}/raw.wav", text], check=True)
    subprocess.run(["sox", "-R", f"{folder}/raw.wav", "-r", str(RATE), "-c", "1", f"{folder}/c.wav"], check=True)
    return soundfile.read(f"{folder}/c.wav", dtype="float32")[0]


def make_sound():
    with tempfile.TemporaryDirectory() as folder:
        pieces = [numpy.zeros(int(piece * RATE), "float32") if isinstance(piece, float) else speak(folder, *piece) for piece in PIECES]
    soundfile.write(SOUND, numpy.concatenate(pieces), RATE, format="OGG", subtype="OPUS", compression_level=0.965)


def transcribe_all(directory, settings):
    sound, rate = soundfile.read(SOUND, dtype="float32")
    assert rate == RATE
    print(f"{len(sound) / rate:.1f} s, {SOUND.stat().st_size} bytes")
    model = load(directory)
    config = json.loads((directory / "generation_config.json").read_text())
    heads = model.alignment_heads.to_dense() & False
    for layer, head in config["alignment_heads"]:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    results = {}
    for setting, options in settings.items():
        results[setting] = whisper.transcribe(model, sound, fp16=False, language="en", **options)
        assert all(segment["temperature"] == 0 for segment in results[setting]["segments"]), f"{setting}: drawn texts differ"
        print(f"--- {setting}")
        for segment in results[setting]["segments"]:
            print(f"{segment['seek']:6} {segment['start']:7.2f} {segment['end']:7.2f} {segment['avg_logprob']:6.2f} "
                  f"{segment['no_speech_prob']:5.2f}{segment['text']}")
    return results


def main(directory, flags):
    recorded = DATA / "whisper_long.json"
    if "--writers" in flags:
        results = json.loads(recorded.read_text())
    else:
        if "--keep-sound" not in flags:
            make_sound()
        known = json.loads(recorded.read_text()) if "--missing" in flags else {}
        known = {setting: result for setting, result in known.items() if setting in SETTINGS}
        results = known | transcribe_all(directory, {s: o for s, o in SETTINGS.items() if s not in known})
    results |= odd_results()
    recorded.write_text(json.dumps(results, ensure_ascii=False, separators=(",", ":")) + "\n")
    (DATA / "whisper_long").mkdir(exist_ok=True)
    for name, (setting, form, options) in WRITERS.items():
        out = io.StringIO()
        get_writer(form, ".").write_result(results[setting], file=out, options=options)
        (DATA / "whisper_long" / name).write_text(out.getvalue())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
