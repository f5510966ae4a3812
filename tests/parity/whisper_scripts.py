# SPDX-License-Identifier: MIT
"""Records what Whisper's multilingual vocabulary makes of one sentence a script, with a blank before it and without.

usage: python tests/parity/whisper_scripts.py       (needs tiktoken and openai-whisper)

Writes data/whisper_scripts.json: for each sentence its ids by tiktoken as it is, which is what transformers trains on, and
behind a blank, as OpenAI's own transcripts begin; what openai-whisper suppresses at the beginning; and a tokenizer.json of
only those tokens and merges that can occur in the sentences, so that its ids are those of the whole vocabulary.
WHISPER_ASSETS names the folder of multilingual.tiktoken where openai-whisper is not installed.
"""
import base64
import json
import os
import pathlib

import tiktoken

DATA = pathlib.Path(__file__).parent / "data"
SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LANGUAGES = 99  # of all multilingual Whispers before large-v3

# "The weather is fine today", more or less.
SENTENCES = {
    "en": "the weather is fine today", "ru": "сегодня хорошая погода", "el": "σήμερα ο καιρός είναι καλός",
    "hy": "այսօր լավ եղանակ է", "ka": "დღეს კარგი ამინდია", "he": "היום מזג האוויר טוב", "ar": "الطقس جميل اليوم",
    "hi": "आज मौसम अच्छा है", "mr": "आज हवामान छान आहे", "bn": "আজ আবহাওয়া ভালো", "pa": "ਅੱਜ ਮੌਸਮ ਚੰਗਾ ਹੈ", "gu": "આજે હવામાન સારું છે",
    "ta": "இன்று வானிலை நன்றாக உள்ளது", "te": "ఈ రోజు వాతావరణం బాగుంది", "kn": "ಇಂದು ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ",
    "ml": "ഇന്ന് കാലാവസ്ഥ നല്ലതാണ്", "si": "අද කාලගුණය හොඳයි", "th": "วันนี้อากาศดี", "lo": "ມື້ນີ້ອາກາດດີ",
    "bo": "དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག", "my": "ဒီနေ့ ရာသီဥတု ကောင်းတယ်", "km": "ថ្ងៃនេះអាកាសធាតុល្អ", "am": "ዛሬ አየሩ ጥሩ ነው",
    "ko": "오늘 날씨가 좋습니다", "ja": "今日は良い天気です", "zh": "今天天气很好",
}


def assets():
    if folder := os.environ.get("WHISPER_ASSETS"):
        return pathlib.Path(folder)
    import whisper
    return pathlib.Path(whisper.__file__).parent / "assets"


def byte_alphabet():
    printable = [b for b in range(256) if 0x20 < b < 0x7F or 0xA0 < b != 0xAD]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def special_tokens(first):
    """In openai-whisper's order, without timestamps; the languages that no sentence has keep their places."""
    codes = list(SENTENCES)
    languages = [f"<|{codes[i] if i < len(codes) else f'other{i}'}|>" for i in range(LANGUAGES)]
    names = ["<|endoftext|>", "<|startoftranscript|>", *languages, "<|translate|>", "<|transcribe|>", "<|startoflm|>",
             "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    ids = {name: first + i for i, name in enumerate(names)}
    return {name: id for name, id in ids.items() if not name.startswith("<|other")}


def reduced(ranks, texts, specials):
    """As a dictionary: what lies in none of the texts cannot take part in a merge of theirs."""
    parts = {text[i:j] for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    kept = {token: rank for token, rank in ranks.items() if len(token) == 1 or token in parts}
    alphabet = byte_alphabet()
    spelled = lambda token: "".join(alphabet[byte] for byte in token)
    merges = sorted((rank, spelled(token[:i]), spelled(token[i:])) for token, rank in kept.items()
                    for i in range(1, len(token)) if token[:i] in kept and token[i:] in kept)
    return {"added_tokens": [{"id": id, "content": name, "special": True} for name, id in specials.items()],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": {spelled(token): rank for token, rank in kept.items()},
                      "merges": [f"{left} {right}" for _, left, right in merges]}}


if __name__ == "__main__":
    lines = (assets() / "multilingual.tiktoken").read_text().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
    encoding = tiktoken.Encoding("multilingual", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={})
    specials = special_tokens(len(ranks))
    entries = [{"language": language, "text": text, "plain": encoding.encode(text), "after_blank": encoding.encode(" " + text)}
               for language, text in SENTENCES.items()]
    tokenizer = reduced(ranks, [(" " + text).encode() for text in SENTENCES.values()], specials)
    begin_suppress = encoding.encode(" ") + [specials["<|endoftext|>"]]  # SuppressBlank of openai-whisper's decoding.py
    (DATA / "whisper_scripts.json").write_text(
        json.dumps({"begin_suppress_tokens": begin_suppress, "sentences": entries, "tokenizer": tokenizer},
                   ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    lonely = [entry["language"] for entry in entries if entry["after_blank"][0] == begin_suppress[0]]
    print(f"{len(entries)} sentences, {len(tokenizer['model']['vocab'])} tokens; a blank stands alone before", *lonely)
