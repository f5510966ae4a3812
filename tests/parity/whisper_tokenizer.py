# SPDX-License-Identifier: MIT
"""Records what the Python package `tokenizers` makes of some 300 strings and 60 lists of ids.

usage: python tests/parity/whisper_tokenizer.py FOLDER       (needs tokenizers)

FOLDER holds Whisper tiny.en's tokenizer.json. Writes data/whisper_tokenizer.json, and data/small_tokenizer.json: a
tokenizer of 256 byte tokens and a few merges, trained on two sentences, with its own references, so that the tests that
have no FOLDER still test something.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = pathlib.Path(__file__).parent / "data"

HAND_PICKED = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a", "a  b", "a   b", "\n", "\n\n", "a\n", "a\n\nb", " \n a", "a \n", "\t\ta",
    "a\t b", "\r\n", "a\r\nb", "\u00a0", "a\u00a0b", "a \u00a0 b", "\u3000\u3000a", "\u2003b", "\u0085x", "\u200b", "a\u200bb",
    "I'm", "you're we've they'll he'd it's don't", "I'M", "YOU'RE", "'s", "''s", "'", "' s", "a's b'", "rock'n'roll", "l'll'll",
    " 's", "!'s", "1's", "\u2019s", "'t't", "'ss", "'re'", "'l", "'r", "'v",
    "123", " 123", "12 34", "1,234.56", "3rd", "a1b2", "\u0967\u0968\u0969", "\u00b2\u00b3\u00bd", "\u2167 \u2460", "\u4e00\u4e8c",
    "hello world", "Hello, World!", "HELLO", "hello-world", "e.g. this", "...", " ...", "a...b", "?!?!", "---", "a_b", "$5.00",
    "juliett delta foxtrot turn left heading seven zero fife", "The quick brown fox jumps over the lazy dog.",
    "caf\u00e9", "cafe\u0301", "na\u00efve co\u00f6perate", "\u00dcber stra\u00dfe", "\u0130stanbul", "\u01c5", "\ufb01sh", "\u00aa\u00ba",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0915\u094b\u0902\u0915\u0923\u0940", "\u092e\u094d\u0939\u091c\u0947\u0902 \u0928\u093e\u0902\u0935", "\u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f \u0964", "\u0939\u093e\u0902\u0935 \u0918\u0930\u093e \u0935\u0924\u093e\u0902.",
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u4f60\u597d\u4e16\u754c", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", "\u4f60\u597d world",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd ok", "\u2764\ufe0f", "\U0001f1ee\U0001f1f3", "a\U0001f600b", "\U00020000\U0002a6d6",
    "\x00", "a\x00b", "\x01\x02", "\x07", "\x1b[0m", "\x7f", "\u0080\u009f", "\u00ad", "\ufeffa", "\ufffd", "\U0010ffff", "\ue000",
    "<|endoftext|>", "a<|endoftext|>b", "<|startoftranscript|><|notimestamps|> hi<|endoftext|>", "<|endoftext", "<|en|>x<|xx|>",
    "<|endoftext|><|endoftext|>", "<<|en|>>", " <|en|> ", "<|EN|>", "<|en|", "|>",
    "a" * 50, "ab" * 40, " " * 40, " " * 40 + "a", "\n" * 17, "!" * 33, "1" * 30, "\u0915" * 20, "\U0001f600" * 9, "the " * 20,
    "aaaaaaaaaaaaaaaaaaaab", "supercalifragilisticexpialidocious", "antidisestablishmentarianism", "https://example.org/a?b=c&d=%20",
    "def f(x):\n    return x ** 2  # square\n", "{\"a\": [1, 2]}", "a\u0301\u0302\u0303", "\u0301", " \u0301", "x\u093e", "\u2028\u2029", "a\u2028b", "\u180e", "\u1680\u1680x",
]

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz  ", "ABCabc123 .,!?'", "'stremvld ", "\u0905\u0906\u0915\u0916\u0917\u093e\u093f\u0940\u0902\u094d \u0967", "\u4e00\u56fd\u4eba\u3042\u30a2 ",
    "\u0627\u0628\u062a\u064e\u0651 \u0661", "\U0001f600\U0001f680\u2764\ufe0f\u200d ", " \t\n\r\u00a0\u3000a", "\x00\x01\x1f\x7f\u0080\u00ff ", "\u00e9\u00fc\u00df\u0433\u0436\u03c9 -\u2014", "0123456789 \u00bd\u2163",
]


def strings():
    random.seed(7)
    drawn = ["".join(random.choices(random.choice(ALPHABETS), k=random.randint(1, 30))) for _ in range(100)]
    mixed = ["".join(random.choices("".join(ALPHABETS), k=random.randint(1, 20))) for _ in range(50)]
    anything = ["".join(chr(random.choice([random.randrange(0x20, 0x3000), random.randrange(0x10000, 0x1F000)]))
                        for _ in range(8)) for _ in range(40)]
    return HAND_PICKED + drawn + mixed + anything


def id_lists(size):
    random.seed(8)
    return [[]] + [random.choices(range(size), k=random.randint(1, 12)) for _ in range(40)] + [
        random.choices(range(256), k=random.randint(1, 9)) for _ in range(20)]


def record(tokenizer):
    size = tokenizer.get_vocab_size()
    encoded = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in strings()]
    decoded = [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                "plain": tokenizer.decode(ids, skip_special_tokens=True)}
               for ids in id_lists(size) + [[size - 1, size, size + 100, 0]] + [e["ids"][:-1] for e in encoded[::9]]]
    return {"encoded": encoded, "decoded": decoded}


def small_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat's hat 1234 \u0928\u092e\u0938\u094d\u0924\u0947 hello hello there aaaa"] * 4, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|notimestamps|>"])
    tokenizer.add_tokens([AddedToken("<|en|>x", normalized=False), AddedToken("two words", normalized=False)])
    return tokenizer


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    small = small_tokenizer()
    dump(DATA / "small_tokenizer.json", json.loads(small.to_str()))
    dump(DATA / "small_tokenizer_reference.json", record(small))
    dump(DATA / "whisper_tokenizer.json", record(Tokenizer.from_file(str(pathlib.Path(sys.argv[1]) / "tokenizer.json"))))
