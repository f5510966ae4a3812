# SPDX-License-Identifier: MIT
"""Records the operations that PyTorch's FlopCounterMode counts, for calls of each kind and for models of the examples' shapes.

    pip install transformers              # recorded with transformers 5.24, torch 2.11
    python tests/parity/operations.py     # writes tests/parity/data/operations/counts.json

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


class Attention(nn.Module):
    """Attention with four projections, and Transformer-XL's scores by distance if it is `relative`."""

    def __init__(self, width, heads, relative=False):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        if relative:
            self.distance = nn.Linear(width, width, bias=False)
            self.content_bias, self.distance_bias = (nn.Parameter(torch.zeros(heads, 1, width // heads)) for _ in range(2))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, source, mask, distances=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        if distances is not None:
            table = self.split(self.distance(distances)[None])[0]
            frames = x.shape[1]
            by_distance = (q + self.distance_bias) @ table.transpose(1, 2)
            padded = F.pad(by_distance, (1, 0)).flatten(2)[..., frames:]
            mask = padded.unflatten(2, (frames, 2 * frames - 1))[..., :frames] * q.shape[-1] ** -0.5
            q = q + self.content_bias
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


def feed_forward(width, inner, act):
    return nn.Sequential(nn.Linear(width, inner), act, nn.Linear(inner, width))


class Conformer(nn.Module):
    def __init__(self, width, heads, inner, kernel, relative):
        super().__init__()
        self.first, self.second = feed_forward(width, inner, nn.SiLU()), feed_forward(width, inner, nn.SiLU())
        self.attention = Attention(width, heads, relative)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.pointwise_in, self.pointwise_out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)

    def forward(self, x, mask, distances):
        x = x + 0.5 * self.first(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.attention(y, y, mask, distances)
        mixed = self.depthwise(F.glu(self.pointwise_in(self.norms[2](x))).transpose(1, 2)).transpose(1, 2)
        x = x + self.pointwise_out(F.silu(mixed))
        return self.norms[4](x + 0.5 * self.second(self.norms[3](x)))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.own, self.cross = Attention(width, heads), Attention(width, heads)
        self.rest = feed_forward(width, inner, nn.ReLU())
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, states, earlier):
        x = self.norms[0](x + self.own(x, x, earlier))
        x = self.norms[1](x + self.cross(x, states, None))
        return self.norms[2](x + self.rest(x))


def record_konkanivani(out):
    width, heads, inner, kernel, vocabulary, mels, frames, characters, batch = 24, 2, 96, 7, 12, 20, 40, 6, 3
    channels = 16  # of the stem
    for relative in (False, True):
        stem = nn.ModuleList([nn.Conv2d(1, channels, 3, 2, 1), nn.Conv2d(channels, channels, 3, 2, 1)])
        project = nn.Linear(channels * (mels // 4), width)
        blocks = nn.ModuleList(Conformer(width, heads, inner, kernel, relative) for _ in range(2))
        head, embedding, scores = nn.Linear(width, vocabulary), nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        layers = nn.ModuleList(DecoderLayer(width, heads, inner) for _ in range(2))
        mel, text = torch.randn(batch, 1, frames, mels), torch.randint(vocabulary, (batch, characters))

        def step():
            x = mel
            for convolution in stem:
                x = F.relu(convolution(x))
            x = project(x.transpose(1, 2).flatten(2))
            distances = torch.randn(2 * x.shape[1] - 1, width) if relative else None
            for block in blocks:
                x = block(x, None, distances)
            y = embedding(text)
            earlier = torch.ones(characters, characters, dtype=torch.bool).tril()
            for layer in layers:
                y = layer(y, x, earlier)
            return head(x).sum() + scores(y).sum()

        record(out, "konkanivani.relative" if relative else "konkanivani", step)


class ChannelAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(channels, max(channels // 8, 1), bias=False), nn.ReLU(),
                                    nn.Linear(max(channels // 8, 1), channels, bias=False))

    def forward(self, x):
        return x * (self.scores(x.mean((2, 3))) + self.scores(x.amax((2, 3)))).sigmoid()[..., None, None]


class Generator(nn.Module):
    def __init__(self, channels, latent, rows, columns, size):
        super().__init__()
        self.start, self.size = (channels, rows, columns), size
        self.condition = nn.Sequential(nn.Linear(2, channels // 2), nn.LeakyReLU(0.2), nn.Linear(channels // 2, channels))
        self.seed = nn.Linear(latent + channels, channels * rows * columns)
        widths = [channels >> i for i in range(4)]
        self.blocks = nn.Sequential(*(nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
                                                    ChannelAttention(b)) for a, b in zip(widths, widths[1:])))
        self.refine, self.output = nn.Conv2d(widths[3], widths[3], 3, padding=1), nn.Conv2d(widths[3], 1, 3, padding=1)

    def forward(self, z, conditions):
        x = self.blocks(self.seed(torch.cat((z, self.condition(conditions)), 1)).unflatten(1, self.start))
        x = x if x.shape[2:] == self.size else F.interpolate(x, self.size, mode="bilinear")
        return self.output(self.refine(x))


class Discriminator(nn.Module):
    def __init__(self, channels, rows):
        super().__init__()
        widths = [1] + [channels >> i for i in (3, 2, 1, 0)]
        self.convolutions = nn.Sequential(*(nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.LeakyReLU(0.2))
                                            for a, b in zip(widths, widths[1:])))
        self.condition = nn.Sequential(nn.Linear(2, channels // 2), nn.LeakyReLU(0.2), nn.Linear(channels // 2, channels))
        heard = 2 * channels * rows // 16
        self.hidden, self.output, self.emotion = (
            nn.Linear(heard + channels, channels), nn.Linear(channels, 1), nn.Linear(heard, 2))

    def forward(self, x, conditions):
        x = self.convolutions(x)
        variance, mean = torch.var_mean(x, 3)
        heard, wanted = torch.cat((mean.flatten(1), variance.flatten(1)), 1), self.condition(conditions)
        h = F.leaky_relu(self.hidden(torch.cat((heard, wanted), 1)), 0.2)
        return self.output(h).sum() + (h * wanted).sum() + self.emotion(heard).sum()


def record_gan(out):
    size, batch = (16, 48), 3
    generator, discriminator = Generator(16, 5, 2, 5, size), Discriminator(16, size[0])
    z, conditions, real = torch.randn(batch, 5), torch.randn(batch, 2), torch.randn(batch, 1, *size)
    record(out, "gan.discriminator", lambda: discriminator(real, conditions))

    def learn_to_fool():
        for parameter in discriminator.parameters():
            parameter.requires_grad_(False)
        return discriminator(generator(z, conditions), conditions)

    record(out, "gan.generator", learn_to_fool)


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
