# SPDX-License-Identifier: MIT
"""The nets of host_time.cpp in PyTorch, with its inputs: `updates()` of a net says what a step computes."""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.append(str(pathlib.Path(__file__).parents[2] / "parity"))
import nets

WIDTH, HEADS, BATCH, TOKENS, FRAMES, VOCABULARY, LAYERS = 32, 2, 2, 8, 16, 64, 12


class Attention(nn.Module):
    def __init__(self, key_bias=True):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=key_bias)
        self.v_proj, self.out_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, source, causal=False):
        def heads(projected):
            return projected.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        queries, keys, values = heads(self.q_proj(x)), heads(self.k_proj(source)), heads(self.v_proj(source))
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        return self.out_proj(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm block: an encoder's, or with `cross` a decoder's."""

    def __init__(self, cross=False, causal=False, key_bias=True):
        super().__init__()
        self.attention, self.norm, self.causal = Attention(key_bias), nn.LayerNorm(WIDTH), causal
        self.cross = Attention(key_bias) if cross else None
        self.cross_norm = nn.LayerNorm(WIDTH) if cross else None
        self.up, self.down, self.last_norm = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, states=None):
        normed = self.norm(x)
        x = x + self.attention(normed, normed, self.causal)
        if self.cross is not None:
            x = x + self.cross(self.cross_norm(x), states)
        return x + self.down(F.gelu(self.up(self.last_norm(x))))


class Net(nn.Module):
    recompute = False

    def through(self, blocks, x, *states):
        for block in blocks:
            x = checkpoint(block, x, *states, use_reentrant=False, preserve_rng_state=False) if self.recompute else block(x, *states)
        return x

    def updates(self):
        """Returns the updates of a step: how each computes its loss, and its optimizer."""
        return [(self.loss, torch.optim.AdamW(self.parameters(), 1e-5, fused=True))]


class Whisper(Net):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.register_buffer("frames", torch.randn(FRAMES, WIDTH))
        self.encoder = nn.ModuleList(Block(key_bias=False) for _ in range(LAYERS))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.decoder = nn.ModuleList(Block(cross=True, causal=True, key_bias=False) for _ in range(LAYERS))
        self.batch = (torch.randn(BATCH, 80, 2 * FRAMES), torch.randint(2, VOCABULARY, (BATCH, TOKENS)),
                      torch.randint(2, VOCABULARY, (BATCH, TOKENS)))

    def loss(self):
        mel, tokens, labels = self.batch
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2) + self.frames
        states = self.encoder_norm(self.through(self.encoder, x))
        y = self.tokens(tokens) + self.positions.weight
        y = self.decoder_norm(self.through(self.decoder, y, states))
        return F.cross_entropy(F.linear(y, self.tokens.weight).flatten(0, 1), labels.flatten())


class ViT(Net):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.batch = torch.randn(BATCH, 3, 32, 32), torch.randn(BATCH, WIDTH)

    def loss(self):
        images, labels = self.batch
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return F.mse_loss(self.norm(self.through(self.blocks, x))[:, 0], labels)


class KonkaniVani(nets.KonkaniVani):
    """Of the default configuration's depth; the loss is the example's, over characters and ends."""

    recompute = False

    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, layers=(12, 6), heads=HEADS, inner=4 * WIDTH, kernel=3, mels=80, dropout=0.1)
        characters = torch.randint(5, VOCABULARY, (BATCH, TOKENS - 1))
        border = torch.full((BATCH, 1), 2)
        self.mel, self.characters = torch.randn(BATCH, 80, 4 * FRAMES), characters
        self.text, self.labels = torch.cat((border, characters), 1), torch.cat((characters, border + 1), 1)
        self.lengths = torch.full((BATCH,), 4 * FRAMES), torch.full((BATCH,), TOKENS)

    def through(self, block, *inputs):
        return checkpoint(block, *inputs, use_reentrant=False) if self.recompute else block(*inputs)

    def loss(self):
        states, valid = self.encode(self.mel, self.lengths[0])
        by_frame = self.head(states).float().log_softmax(-1).transpose(0, 1)
        ctc = F.ctc_loss(by_frame, self.characters, BATCH * (FRAMES,), BATCH * (TOKENS - 1,), 1, "sum", zero_infinity=True)
        scores = self.decode(self.text, self.lengths[1], states, valid).float()
        attention = F.cross_entropy(scores.flatten(0, 1), self.labels.flatten(), reduction="sum", label_smoothing=0.1)
        return (0.3 * ctc + 0.7 * attention) / self.labels.numel()

    updates = Net.updates


class Gan(nn.Module):
    """Both players; the losses are the example's, hinge with the emotions of others and those predicted."""

    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = nets.Generator(WIDTH, 8, 2, 2, (16, 32)), nets.Discriminator(WIDTH, 16)
        self.real, self.conditions = torch.randn(BATCH, 1, 16, 32), torch.rand(BATCH, 2) * 2 - 1
        self.accepted, self.fooled = torch.tensor(0.5), torch.tensor(0.5)

    @staticmethod
    def observe(share, logits):
        share.lerp_((logits.detach() > 0).float().mean(), 0.1)

    def generate(self):
        return self.generator(torch.randn(BATCH, 8), self.conditions)

    def discriminator_loss(self):
        with torch.no_grad():
            fake = self.generate()
        real_logits, predicted = self.discriminator(self.real, self.conditions)
        fake_logits, _ = self.discriminator(fake, self.conditions)
        self.observe(self.accepted, real_logits)
        others = self.conditions.roll(1 + torch.randint(BATCH - 1, (1,)).item(), 0)
        wrong_logits, _ = self.discriminator(self.real, others)

        def hinge(wrong):
            return F.relu(1 - real_logits).mean() + F.relu(1 + wrong).mean()

        return torch.lerp(hinge(fake_logits), hinge(wrong_logits), 0.5) + F.mse_loss(predicted, self.conditions)

    def generator_loss(self):
        self.discriminator.requires_grad_(False)
        logits, predicted = self.discriminator(self.generate(), self.conditions)
        self.discriminator.requires_grad_(True)
        self.observe(self.fooled, logits)
        return F.mse_loss(predicted, self.conditions) - logits.mean()

    def updates(self):
        def adam(player, rate):
            return torch.optim.Adam(player.parameters(), rate, (0.5, 0.999), fused=True)

        return [(self.discriminator_loss, adam(self.discriminator, 1e-4)), (self.generator_loss, adam(self.generator, 2e-4))]
