# SPDX-License-Identifier: MIT
"""Makes a tokenizer's folder without tokenizer.json, as transformers' WhisperTokenizer saves it, and records what it encodes.

usage: python tests/parity/whisper_tokenizer_folder.py       (needs transformers 4: from 5 on it saves tokenizer.json)

Writes data/small_tokenizer_folder: vocab.json, merges.txt and three files about added tokens, of data/small_tokenizer.json's
tokens; and reference.json, the ids of the strings of whisper_tokenizer.py and what they decode to without special tokens.
"""
import json
import tempfile

from transformers import WhisperTokenizer
from whisper_tokenizer import DATA, HAND_PICKED, dump

if __name__ == "__main__":
    small = json.loads((DATA / "small_tokenizer.json").read_text(encoding="utf-8"))
    special = [token["content"] for token in small["added_tokens"] if token["special"]]
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as vocab, tempfile.NamedTemporaryFile("w", encoding="utf-8") as merges:
        json.dump(small["model"]["vocab"], vocab)
        merges.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in small["model"]["merges"]))
        vocab.flush(), merges.flush()
        tokenizer = WhisperTokenizer(vocab.name, merges.name, additional_special_tokens=special[1:])
    folder = DATA / "small_tokenizer_folder"
    tokenizer.save_pretrained(folder)
    encoded = []
    for text in HAND_PICKED:
        ids = tokenizer.encode(text, add_special_tokens=False)
        plain = bytes(tokenizer.byte_decoder[c] for id in ids if id not in tokenizer.all_special_ids
                      for c in tokenizer.convert_ids_to_tokens(id)).decode(errors="replace")
        encoded.append({"text": text, "ids": ids, "plain": plain})
    dump(folder / "reference.json", encoded)
