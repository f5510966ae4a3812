# SPDX-License-Identifier: MIT
"""Records PyTorch's CTC and label-smoothed cross-entropy, and their gradients, on a small padded batch.

    python tests/parity/konkanivani_loss.py        # writes tests/parity/data/konkanivani_loss.safetensors

Scores are 2 sin(0.7 i + phase), as reference.hpp's wave() makes them. The texts are those of loss_test.cpp: one is
empty, one has equal neighbours and just enough frames, one has a frame too few.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

TEXTS = [[5, 6, 7], [6, 6, 5], [], [7, 7]]
FRAMES = [6, 4, 5, 2]  # the last text needs 3
VOCABULARY, BLANK, START, END, IGNORED = 9, 1, 2, 3, -100


def wave(shape, phase):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.7 + phase).sin().reshape(shape)


def main():
    out = {}
    ctc_scores = (2 * wave((4, 6, VOCABULARY), 0.1)).requires_grad_()
    decoder_scores = (2 * wave((4, 4, VOCABULARY), 0.2)).requires_grad_()
    characters = torch.zeros(4, 3, dtype=torch.long)
    labels = torch.full((4, 4), IGNORED)
    for row, text in enumerate(TEXTS):
        characters[row, : len(text)] = torch.tensor(text, dtype=torch.long)
        labels[row, : len(text) + 1] = torch.tensor(text + [END])
    ctc_by_clip = F.ctc_loss(
        ctc_scores.log_softmax(-1).transpose(0, 1), characters, torch.tensor(FRAMES),
        torch.tensor([len(text) for text in TEXTS]), blank=BLANK, reduction="none", zero_infinity=True)
    ctc = ctc_by_clip.sum()
    attention = F.cross_entropy(
        decoder_scores.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORED, label_smoothing=0.1)
    joint = 0.3 * ctc + 0.7 * attention
    joint.backward()
    out.update(ctc_by_clip=ctc_by_clip.detach(), ctc=ctc.detach(), attention=attention.detach(), joint=joint.detach(),
               ctc_gradient=ctc_scores.grad, decoder_gradient=decoder_scores.grad)
    save_file(out, pathlib.Path(__file__).parent / "data" / "konkanivani_loss.safetensors")


main()
