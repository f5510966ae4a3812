# SPDX-License-Identifier: MIT
"""Records the operations that PyTorch's FlopCounterMode counts, for calls of each kind and for models of the examples' shapes.

    pip install transformers              # recorded with transformers 5.24, torch 2.11
    python tests/parity/flops.py     # writes tests/parity/data/flops/counts.json

Each entry has the operations of forward and of forward with backward. FlopCounterMode has no formula for the CPU's fused
attention: it gets the one of CUDA's. `corrected` has backward of a convolution in groups by its own arithmetic:
PyTorch's formula for the gradient of the weight counts each group's outputs as if they saw all inputs.
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_backward_flop, sdpa_backward_flop, sdpa_flop
from transformers import ViTConfig, ViTModel, WhisperConfig, WhisperForConditionalGeneration

from nets import Discriminator, Generator, KonkaniVani

FILE = pathlib.Path(__file__).parent / "data" / "operations" / "counts.json"
aten = torch.ops.aten
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}


def grouped_backward(grad, x, weight, bias, stride, padding, dilation, transposed, out_padding, groups, mask, out_val=None,
                     **_):
    places = math.prod((x if transposed else grad).shape[2:])
    return (mask[0] + mask[1]) * 2 * x.shape[0] * places * weight.numel()


for formula in (sdpa_flop, sdpa_backward_flop, grouped_backward):
    formula._get_raw = True  # FlopCounterMode would turn tensors into shapes; PyTorch's own formulas do so themselves


def counted(step, formulas):
    """Returns the operations of forward alone, and of forward with backward."""
    counts = []
    for backward in (False, True):
        with FlopCounterMode(display=False, custom_mapping={**ATTENTION, **formulas}) as counter:
            loss = step()
            if backward:
                loss.backward()
        counts.append(counter.get_total_flops())
    return counts


def record(out, name, step):
    torch.manual_seed(1)
    (forward, both), (_, corrected) = counted(step, {}), counted(step, {aten.convolution_backward: grouped_backward})
    out[name] = {"forward": forward, "both": both, "corrected": corrected}


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype).requires_grad_()


def record_calls(out):
    record(out, "mm", lambda: (leaf(3, 4) @ leaf(4, 5)).sum())
    record(out, "bmm", lambda: (leaf(2, 3, 4) @ leaf(2, 4, 5)).sum())
    record(out, "linear", lambda: F.linear(leaf(2, 7, 4), leaf(5, 4), leaf(5)).sum())
    record(out, "addmm", lambda: torch.addmm(leaf(3, 5), leaf(3, 4), leaf(4, 5)).sum())
    record(out, "baddbmm", lambda: torch.baddbmm(leaf(2, 3, 5), leaf(2, 3, 4), leaf(2, 4, 5)).sum())
    record(out, "einsum", lambda: torch.einsum("bij,kj->bik", leaf(2, 3, 4), leaf(5, 4)).sum())
    record(out, "conv1d", lambda: F.conv1d(leaf(2, 3, 20), leaf(5, 3, 4), leaf(5), 2, 1, 2).sum())
    record(out, "conv2d", lambda: F.conv2d(leaf(2, 3, 9, 11), leaf(5, 3, 3, 2), None, (2, 1), (1, 0)).sum())
    record(out, "conv2d.frozen_input", lambda: F.conv2d(torch.randn(2, 3, 9, 11), leaf(5, 3, 3, 2)).sum())
    record(out, "conv3d", lambda: F.conv3d(leaf(1, 2, 5, 6, 7), leaf(3, 2, 2, 3, 2)).sum())
    record(out, "grouped", lambda: F.conv2d(leaf(2, 6, 8, 8), leaf(9, 2, 3, 3), padding="same", groups=3).sum())
    record(out, "depthwise", lambda: F.conv1d(leaf(2, 6, 20), leaf(6, 1, 5), leaf(6), padding=2, groups=6).sum())
    record(out, "transposed", lambda: F.conv_transpose2d(leaf(2, 6, 5, 4), leaf(6, 3, 4, 4), None, 2, 1).sum())
    record(out, "attention", lambda: F.scaled_dot_product_attention(*(leaf(2, 3, n, 8) for n in (5, 7, 7))).sum())

    def plain():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return F.scaled_dot_product_attention(*(leaf(2, 3, n, 8) for n in (5, 7, 7))).sum()

    record(out, "attention.math", plain)
    lstm, gru = nn.LSTM(6, 5, num_layers=2, dtype=torch.float64), nn.GRU(6, 5, bidirectional=True, dtype=torch.float64)
    record(out, "lstm", lambda: lstm(leaf(7, 3, 6, dtype=torch.float64))[0].sum())
    record(out, "gru", lambda: gru(leaf(7, 3, 6, dtype=torch.float64))[0].sum())
    second = leaf(3, 4)

    def twice():
        gradient, = torch.autograd.grad((second @ second.t()).pow(2).sum(), second, create_graph=True)
        return gradient.pow(2).sum()

    record(out, "second_derivative", twice)


def record_whisper(out):
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=64, num_mel_bins=80, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=16,
        max_target_positions=8, pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=1, dropout=0.0,
        attn_implementation="sdpa"))
    mel, tokens = torch.randn(3, 80, 32), torch.randint(2, 64, (3, 8))
    record(out, "whisper", lambda: model(input_features=mel, decoder_input_ids=tokens, labels=tokens).loss)


def record_vit(out):
    model = ViTModel(ViTConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=128,
                               image_size=32, patch_size=8, attn_implementation="sdpa"), add_pooling_layer=False)
    images = torch.randn(3, 3, 32, 32)
    record(out, "vit", lambda: model(images).last_hidden_state.sum())


def record_konkanivani(out):
    vocabulary, mels, frames, characters, batch = 12, 20, 40, 6, 3
    for relative in (False, True):
        net = KonkaniVani(vocabulary, width=24, layers=(2, 2), heads=2, inner=96, kernel=7, mels=mels, relative=relative)
        mel, text = torch.randn(batch, mels, frames), torch.randint(vocabulary, (batch, characters))
        mel_lengths, text_lengths = torch.full((batch,), frames), torch.full((batch,), characters)

        def step():
            states, valid = net.encode(mel, mel_lengths)
            return net.head(states).sum() + net.decode(text, text_lengths, states, valid).sum()

        record(out, "konkanivani.relative" if relative else "konkanivani", step)


def record_gan(out):
    size, batch = (16, 48), 3
    generator, discriminator = Generator(16, 5, 2, 5, size), Discriminator(16, size[0])
    z, conditions, real = torch.randn(batch, 5), torch.randn(batch, 2), torch.randn(batch, 1, *size)

    def judged(pictures):
        logits, emotions = discriminator(pictures, conditions)
        return logits.sum() + emotions.sum()

    record(out, "gan.discriminator", lambda: judged(real))
    discriminator.requires_grad_(False)
    record(out, "gan.generator", lambda: judged(generator(z, conditions)))


def main():
    out = {}
    record_calls(out)
    record_whisper(out)
    record_vit(out)
    record_konkanivani(out)
    record_gan(out)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
