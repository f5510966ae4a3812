# SPDX-License-Identifier: MIT
"""KonkaniVani and the players of the spectrogram GAN in PyTorch, with the examples' layers and as many parameters. Sizes are
arguments; weights begin as PyTorch's layers do. flops.py counts their operations, and tests/bench/host_time.py times them.

Shapes: B batch, M mel bins, F mel frames, T encoder frames, L characters, D width, C channels.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


def valid_places(lengths, count):
    return torch.arange(count, device=lengths.device) < lengths[:, None]


def sinusoids(count, width):
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)


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
            scores = padded.unflatten(2, (frames, 2 * frames - 1))[..., :frames] * q.shape[-1] ** -0.5
            q, mask = q + self.content_bias, scores.masked_fill(mask.logical_not(), -math.inf)
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


def feed_forward(width, inner, act, dropout):
    return nn.Sequential(nn.Linear(width, inner), act, nn.Dropout(dropout), nn.Linear(inner, width), nn.Dropout(dropout))


class MaskedBatchNorm(nn.BatchNorm1d):
    """BatchNorm1d of [B, D, T] in training, whose mean and variance are those of the valid frames."""

    def forward(self, x, valid):
        x, share = x.float(), valid[:, None].float()
        count = share.sum()
        mean = (x * share).sum((0, 2)) / count
        centred = x - mean[:, None]
        variance = (centred * share).square().sum((0, 2)) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1).clamp_min(1)), self.momentum)
        return centred * ((variance + self.eps).rsqrt() * self.weight)[:, None] + self.bias[:, None]


class Conformer(nn.Module):
    def __init__(self, width, heads, inner, kernel, relative, dropout):
        super().__init__()
        self.first, self.second = (feed_forward(width, inner, nn.SiLU(), dropout) for _ in range(2))
        self.attention = Attention(width, heads, relative)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.pointwise_in, self.pointwise_out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.dropout = MaskedBatchNorm(width), nn.Dropout(dropout)

    def convolve(self, x, valid):
        x = F.glu(self.pointwise_in(x)).masked_fill(valid.logical_not()[..., None], 0)
        with torch.autocast(x.device.type, enabled=False):  # as in the example: oneDNN never makes some kernels in bf16
            mixed = self.depthwise(x.float().transpose(1, 2))
        return self.dropout(self.pointwise_out(F.silu(self.batch_norm(mixed, valid)).transpose(1, 2)))

    def forward(self, x, valid, distances=None):
        x = x + 0.5 * self.first(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.dropout(self.attention(y, y, valid[:, None, None], distances))
        x = x + self.convolve(self.norms[2](x), valid)
        return self.norms[4](x + 0.5 * self.second(self.norms[3](x)))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        self.own, self.cross = Attention(width, heads), Attention(width, heads)
        self.rest, self.dropout = feed_forward(width, inner, nn.ReLU(), dropout), nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, states, earlier, visible):
        x = self.norms[0](x + self.dropout(self.own(x, x, earlier)))
        x = self.norms[1](x + self.dropout(self.cross(x, states, visible)))
        return self.norms[2](x + self.rest(x))


class KonkaniVani(nn.Module):
    """`through(block, x, ...)` calls a Conformer block, and may compute it again in backward."""

    CHANNELS = 16  # of the stem

    def __init__(self, vocabulary, width, layers, heads, inner, kernel, mels, relative=False, dropout=0.0, longest=64):
        super().__init__()
        self.stem = nn.ModuleList(nn.Conv2d(channels, self.CHANNELS, 3, 2, 1) for channels in (1, self.CHANNELS))
        self.project = nn.Linear(self.CHANNELS * (mels // 4), width)
        self.blocks = nn.ModuleList(Conformer(width, heads, inner, kernel, relative, dropout) for _ in range(layers[0]))
        self.head, self.embedding = nn.Linear(width, vocabulary), nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, inner, dropout) for _ in range(layers[1]))
        self.scores, self.dropout, self.relative = nn.Linear(width, vocabulary), nn.Dropout(dropout), relative
        self.register_buffer("table", sinusoids(longest, width))

    def through(self, block, *inputs):
        return block(*inputs)

    def encode(self, mel, lengths):
        """Converts [B, M, F] to states [B, T, D] and true for those that are not padding, [B, T]."""
        x = mel.transpose(1, 2)[:, None]
        for convolution in self.stem:
            silent = valid_places(lengths, x.shape[2]).logical_not()
            x, lengths = F.silu(convolution(x.masked_fill(silent[:, None, :, None], 0))), (lengths + 1) // 2
        x = self.project(x.transpose(1, 2).flatten(2)) * math.sqrt(self.table.shape[1])
        frames = x.shape[1]
        valid, distances = valid_places(lengths, frames), None
        if self.relative:
            distances = self.table[torch.arange(1 - frames, frames).abs()]
        else:
            x = x + self.table[:frames]
        x = self.dropout(x)
        for block in self.blocks:
            x = self.through(block, x, valid, distances)
        return x, valid

    def decode(self, text, lengths, states, valid):
        length = text.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=text.device).tril()
        earlier = earlier & valid_places(lengths, length)[:, None, None]
        y = self.dropout(self.embedding(text) * math.sqrt(self.table.shape[1]) + self.table[:length])
        for layer in self.layers:
            y = layer(y, states, earlier, valid[:, None, None])
        return self.scores(y)


class Condition(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden, self.output = nn.Linear(2, width // 2), nn.Linear(width // 2, width)

    def forward(self, conditions):
        x = self.output(F.leaky_relu(self.hidden(conditions), 0.2))
        return F.layer_norm(x, x.shape[1:])


class ChannelAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(channels, max(channels // 8, 1), bias=False), nn.ReLU(),
                                    nn.Linear(max(channels // 8, 1), channels, bias=False))

    def forward(self, x):
        return x * (self.scores(x.mean((2, 3))) + self.scores(x.amax((2, 3)))).sigmoid()[..., None, None]


def upsampling(channels):
    half = channels // 2
    return nn.Sequential(nn.ConvTranspose2d(channels, half, 4, 2, 1, bias=False),
                         nn.GroupNorm(half // 8 if half % 8 == 0 else 1, half), nn.LeakyReLU(0.2), ChannelAttention(half))


class Generator(nn.Module):
    def __init__(self, channels, latent, rows, columns, size):
        super().__init__()
        self.start, self.size, self.condition = (channels, rows, columns), size, Condition(channels)
        self.seed = nn.Linear(latent + channels, channels * rows * columns)
        self.blocks = nn.Sequential(*(upsampling(channels >> i) for i in range(3)))
        narrow = channels // 8
        self.refine, self.output = nn.Conv2d(narrow, narrow, 3, padding=1), nn.Conv2d(narrow, 1, 3, padding=1)

    def forward(self, z, conditions):
        x = F.leaky_relu(self.seed(torch.cat((z, self.condition(conditions)), 1)), 0.2)
        x = self.blocks(x.unflatten(1, self.start))
        x = x if x.shape[2:] == self.size else F.interpolate(x, self.size, mode="bilinear")
        return self.output(F.leaky_relu(self.refine(x), 0.2)).float()


class Discriminator(nn.Module):
    def __init__(self, channels, rows):
        super().__init__()
        widths = [1] + [channels >> i for i in (3, 2, 1, 0)]
        self.convolutions = nn.Sequential(*(nn.Sequential(spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2))
                                            for a, b in zip(widths, widths[1:])))
        self.condition, pooled = Condition(channels), 2 * channels * rows // 16
        self.hidden, self.output = spectral_norm(nn.Linear(pooled + channels, channels)), spectral_norm(nn.Linear(channels, 1))
        self.emotion = nn.Linear(pooled, 2)

    def forward(self, x, conditions):
        """Returns logits [B], and the emotions [B, 2] that the spectrograms show."""
        variance, mean = torch.var_mean(self.convolutions(x), 3, correction=0)
        pooled = torch.cat((mean.flatten(1), (variance + 1e-5).sqrt().flatten(1)), 1)
        wanted = self.condition(conditions)
        h = F.leaky_relu(self.hidden(torch.cat((pooled, wanted), 1)), 0.2)
        match = (h * wanted).sum(1) / math.sqrt(h.shape[1])
        return (self.output(h).squeeze(1) + match).float(), self.emotion(F.layer_norm(pooled, pooled.shape[1:])).float()
