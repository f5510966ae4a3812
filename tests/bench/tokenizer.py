# SPDX-License-Identifier: MIT
"""The peers of tokenizer: the same texts and the same vocabulary on one thread, encoded by tiktoken and by Hugging Face's
tokenizers, in the process's time as there. Prints one JSON object a peer and text; tests/bench/run.sh has the
environment."""
import json
import os
import pathlib
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiktoken
import tokenizers

ROUNDS = 9
SOURCE = pathlib.Path(__file__).parents[2]
TOKENIZER = pathlib.Path(os.environ["LOOPTORCH_WHISPER_CT2"]) / "tokenizer.json"
SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def texts():
    english = "".join(path.read_text(encoding="utf-8") for path in sorted((SOURCE / "docs").glob("*.md")))
    sentences = (SOURCE / "tests/bench/support/devanagari.txt").read_text(encoding="utf-8")
    of_english, of_devanagari = english.removesuffix("\n").split("\n"), sentences.removesuffix("\n").split("\n")
    mixed = "".join(f"{line} {of_devanagari[i % len(of_devanagari)]} \U0001F44D\U0001F3FD\n"
                    for i, line in enumerate(of_english))
    return {"encode English": english, "encode Devanagari": sentences * 20, "encode mixed": mixed}


def ranks_of(tokenizer):
    """The bytes of each learnt token, whose ids are in the order in which they were learnt."""
    printable = [byte for byte in range(256) if 0x20 < byte < 0x7F or 0xA0 < byte != 0xAD]
    others = [byte for byte in range(256) if byte not in printable]
    bytes_by_character = {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    return {bytes(map(bytes_by_character.get, token)): id
            for token, id in tokenizer.get_vocab(with_added_tokens=False).items() if token not in added}


def timed(encode, text):
    begin = time.process_time()
    encode(text)
    return (time.process_time() - begin) / len(text.encode()) * 1e9


hugging_face = tokenizers.Tokenizer.from_file(str(TOKENIZER))
open_ai = tiktoken.Encoding("tiny.en", pat_str=SPLIT, mergeable_ranks=ranks_of(hugging_face), special_tokens={})
peers = [("tiktoken", tiktoken.__version__, open_ai.encode_ordinary),
         ("tokenizers", tokenizers.__version__, lambda text: hugging_face.encode(text, add_special_tokens=False).ids)]
for of, text in texts().items():
    if len({tuple(encode(text)) for _, _, encode in peers}) != 1:
        sys.exit(f"{of}: the peers do not give the same ids")
    times = {peer: [] for peer, _, _ in peers}
    for _ in range(ROUNDS):
        for peer, _, encode in peers:
            times[peer].append(timed(encode, text))
    for peer, version, _ in peers:
        row = {"name": f"{of} vs {peer}", "of": of, "peer": f"{peer} {version}", "peer_value": statistics.median(times[peer])}
        print(json.dumps(row))
