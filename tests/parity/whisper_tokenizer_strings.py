# SPDX-License-Identifier: MIT
"""Records what the Python package `tokenizers` makes of 10,000 drawn strings: Latin, Devanagari, CJK, Arabic, emoji,
control characters, all of them mixed, and bytes that are not UTF-8.

usage: python tests/parity/whisper_tokenizer_strings.py FOLDER MULTILINGUAL  (needs tokenizers, tiktoken, openai-whisper,
                                                                             torch and safetensors)
       python tests/parity/whisper_tokenizer_strings.py FOLDER MULTILINGUAL NUMBER...  (prints the strings of these numbers
                                                                             and their ids, and writes nothing)

FOLDER holds Whisper tiny.en's tokenizer.json. MULTILINGUAL is a file that becomes the tokenizer.json of the multilingual
Whispers, made of openai-whisper's ranks; tests/unit/whisper/text/tokenizer_strings_test.cpp finds it by
LOOPTORCH_WHISPER_MULTILINGUAL. Writes data/whisper_tokenizer_strings.safetensors: for each vocabulary a hash of each
string's ids, and the offset of each string's first byte that is not UTF-8, or -1. The strings themselves are drawn again by
the test, by the same rule from the same fragments, which stand in the metadata.

Python's str cannot hold such bytes: recorded are the ids of what decode(errors="replace") makes of them. Each id is checked
against tiktoken, and that tiktoken gives the text back.
"""
import json
import pathlib
import sys

import tiktoken
import torch
import whisper.tokenizer
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

DATA = pathlib.Path(__file__).parent / "data"
COUNT = 10_000
SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Each kind of text: code points to draw from, and words.
KINDS = {
    "latin": {
        "ranges": [[0x20, 0x7E], [0x61, 0x7A], [0xA0, 0x24F], [0x1E00, 0x1EFF]],
        "words": ["the", " turn", " left", "heading", " seven", " zero", " niner", "Juliett", "HELLO", " na\u00efve",
                  " stra\u00dfe", "\u0130zmir", " caf\u00e9", "cafe\u0301", "\u2019s", "\ufb01ve", " \u2014 ", "(a)", "x_y",
                  "e.g.", " https://a.b/c?d=1", "0x1F", "1,234.56"],
    },
    "devanagari": {
        "ranges": [[0x900, 0x97F], [0xA8E0, 0xA8FF], [0x1CD0, 0x1CFA]],
        "words": ["\u0939\u093e\u0902\u0935", " \u0918\u0930\u093e", " \u0935\u0924\u093e\u0902", "\u0915\u094b\u0902\u0915\u0923\u0940",
                  " \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f", "\u0928\u092e\u0938\u094d\u0924\u0947", " \u0936\u094d\u0930\u0940", "\u0930\u094d\u200d\u092f", "\u0915\u094d\u200c\u0937",
                  "\u0967\u0968\u0969", "\u0964", " \u0965 ", "\u0921\u093c", "\u095c"],
    },
    "cjk": {
        "ranges": [[0x3000, 0x30FF], [0x3400, 0x9FFF], [0xAC00, 0xD7A3], [0x1100, 0x11FF], [0xFF01, 0xFF9F], [0x20000, 0x2A6DF]],
        "words": ["\u4f60\u597d", "\u4e16\u754c\u3002", "\u65e5\u672c\u8a9e\u306e", "\u30c6\u30ad\u30b9\u30c8", "\ud55c\uad6d\uc5b4", " \ud14d\uc2a4\ud2b8", "\u1112\u1161\u11ab",
                  "\u4e00\u4e8c\u4e09", "\u3007", "\uff11\uff12", "\u300c\u306f\u3044\u300d", "\u304b\u3099"],
    },
    "arabic": {
        "ranges": [[0x600, 0x6FF], [0x750, 0x77F], [0x590, 0x5FF], [0xFB50, 0xFDFF], [0xFE70, 0xFEFF]],
        "words": ["\u0645\u0631\u062d\u0628\u0627", " \u0628\u0643", "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629", "\u0661\u0662\u0663", "\u06f4\u06f5", "\u060c ", "\u061f", "\u0644\u0627",
                  "\u0640\u0640", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u200f\u0633\u0644\u0627\u0645\u200f"],
    },
    "emoji": {
        "ranges": [[0x1F300, 0x1FAFF], [0x2600, 0x27BF], [0x1F1E6, 0x1F1FF], [0x1F3FB, 0x1F3FF], [0xFE00, 0xFE0F], [0xE0020, 0xE007F]],
        "words": ["\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", " \u2764\ufe0f\u200d\U0001f525",
                  "\U0001f1ee\U0001f1f3", "\U0001f1fa\U0001f1f8\U0001f1ec", "1\ufe0f\u20e3", "\U0001f3f3\ufe0f\u200d\U0001f308", " \U0001f600",
                  "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "\U0001f9d1\U0001f3ff\u200d\U0001f4bb", "\u200d"],
    },
    "control": {
        "ranges": [[0x00, 0x1F], [0x7F, 0xA0], [0x2000, 0x200F], [0x2028, 0x202F], [0x2060, 0x206F], [0xFFF0, 0xFFFD], [0xE000, 0xE010],
                   [0x10FFF0, 0x10FFFF]],
        "words": ["\x00", "\x1b[0m", "\r\n", "\n\n", "\t\t", " \t ", "\u00a0", "\u3000", "\ufeff", "\u200b", "\u00ad", "\u0085",
                  "\u1680", "\u180e", "\u202e", "   ", " \n "],
    },
}
COMMON = [" ", "  ", "\n", ".", ", ", "'s", "'ll", "'T", "\u2019", "7", " 42", "a", " I", "!?", "<|endoftext|>",
          "<|startoftranscript|>", "<|en", "|>", "<|notimestamps|>"]
# As hexadecimal digits: lone trailing and lead bytes, cut characters, overlong forms, surrogates, beyond U+10FFFF.
BROKEN = ["80", "bf", "c0", "c1", "f5", "ff", "fe", "c3", "e0a4", "f09f98", "f09f", "f0", "c080", "e08080", "f0808080",
          "eda080", "edbfbf", "eda0bdedb880", "f4908080", "f7bfbfbf", "e4bd", "2080", "c328", "e28228", "fffe"]
SPEC = {"seed": 20_240_511, "count": COUNT, "kinds": list(KINDS.values()), "common": COMMON, "broken": BROKEN}


class Random:
    """SplitMix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (z ^ (z >> 31)) % bound


def draw_strings(spec):
    """String i is of kind i modulo their number and two: then all kinds mixed, then all of them among broken bytes."""
    random, kinds = Random(spec["seed"]), spec["kinds"]
    for i in range(spec["count"]):
        style = i % (len(kinds) + 2)
        text = b""
        for _ in range(1 + random.below(12)):
            source = random.below(8)
            kind = kinds[style] if style < len(kinds) else kinds[random.below(len(kinds))]
            if style == len(kinds) + 1 and source < 3:
                text += bytes.fromhex(spec["broken"][random.below(len(spec["broken"]))])
            elif source == 7:
                text += spec["common"][random.below(len(spec["common"]))].encode()
            elif source % 2:
                text += kind["words"][random.below(len(kind["words"]))].encode()
            else:
                first, last = kind["ranges"][random.below(len(kind["ranges"]))]
                text += chr(first + random.below(last - first + 1)).encode()
        yield text


def fault_of(text):
    try:
        text.decode()
        return -1
    except UnicodeDecodeError as error:
        return error.start


def hash_of(ids):
    value = 2166136261
    for number in ids:
        value = ((value ^ number) * 16777619) & 0xFFFFFFFF
    return value - (1 << 32 if value >> 31 else 0)


def spelled(alphabet, token):
    return "".join(alphabet[byte] for byte in token)


def tokenizer_of(encoding):
    """A tiktoken Encoding as a tokenizer.json: each token's merges are its cuts into two tokens, the earlier first."""
    alphabet = byte_alphabet()
    ranks = encoding._mergeable_ranks
    merges = []
    for token, rank in ranks.items():
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(rank, ranks[a], ranks[b], spelled(alphabet, a), spelled(alphabet, b)) for a, b in cuts]
    merges.sort()
    tokenizer = Tokenizer(models.BPE({spelled(alphabet, t): r for t, r in ranks.items()}, [m[3:] for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    specials = sorted(encoding._special_tokens, key=encoding._special_tokens.get)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in specials])
    return tokenizer


def byte_alphabet():
    printable = [b for b in range(256) if 0x20 < b < 0x7F or 0xA0 < b != 0xAD]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def encoding_of(tokenizer):
    """A tokenizer whose ids are in the order in which its tokens were learnt, as a tiktoken Encoding."""
    bytes_by_character = {character: byte for byte, character in byte_alphabet().items()}
    added = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
    ranks = {bytes(map(bytes_by_character.get, token)): id
             for token, id in tokenizer.get_vocab(with_added_tokens=False).items() if token not in added}
    return tiktoken.Encoding("reference", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens=added)


def hashes_of(tokenizer, encoding, texts):
    hashes = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if encoding:
            assert ids == encoding.encode(text, allowed_special="all"), (text, ids)
            assert encoding.decode(ids) == text, (text, ids)
        hashes.append(hash_of(ids))
    return torch.tensor(hashes, dtype=torch.int32)


if __name__ == "__main__":
    english = Tokenizer.from_file(str(pathlib.Path(sys.argv[1]) / "tokenizer.json"))
    multilingual = tokenizer_of(whisper.tokenizer.get_encoding("multilingual"))
    small = Tokenizer.from_file(str(DATA / "small_tokenizer.json"))
    strings = list(draw_strings(SPEC))
    texts = [string.decode(errors="replace") for string in strings]
    for number in map(int, sys.argv[3:]):
        print(number, strings[number], repr(texts[number]))
        for name, tokenizer in (("small", small), ("english", english), ("multilingual", multilingual)):
            print(f"  {name}: {tokenizer.encode(texts[number], add_special_tokens=False).ids}")
    if len(sys.argv) == 3:
        multilingual.save(sys.argv[2], pretty=False)
        tensors = {
            "small": hashes_of(small, None, texts),
            "english": hashes_of(english, encoding_of(english), texts),
            "multilingual": hashes_of(multilingual, whisper.tokenizer.get_encoding("multilingual"), texts),
            "fault": torch.tensor([fault_of(string) for string in strings], dtype=torch.int32),
        }
        save_file(tensors, DATA / "whisper_tokenizer_strings.safetensors", metadata={"strings": json.dumps(SPEC)})
        print(f"{len(strings)} strings, {sum(map(len, strings))} bytes, {int((tensors['fault'] >= 0).sum())} of them not UTF-8")
