# SPDX-License-Identifier: MIT
"""host_time.py PROGRAM: asks host_time.cpp's PROGRAM and the same nets in PyTorch for steps in each mode by turns, for
several rounds, and prints one JSON object a row. Both sides must have as many parameters."""
import contextlib
import json
import pathlib
import statistics
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from support.by_turns import Program

WIDTH, HEADS, BATCH, TOKENS, FRAMES, VOCABULARY, LAYERS = 32, 2, 2, 8, 16, 64, 12
WARMUP, STEPS, ROUNDS = 3, 10, 5
# "light" has no equal in PyTorch, and is compared with its plain step; the ViT keeps no products, so that it has none.
MODES = {"whisper": ["plain", "light", "recomputed", "bf16"], "vit": ["plain", "recomputed", "bf16"]}


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


class Peer:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.AdamW(net.parameters(), 1e-5, fused=True)

    def step(self, mode):
        self.net.recompute = mode == "recomputed"
        precision = torch.autocast("cpu", torch.bfloat16) if mode == "bf16" else contextlib.nullcontext()

        def step():
            with precision:
                loss = self.net.loss()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

        for _ in range(WARMUP):
            step()
        begin = time.thread_time()
        for _ in range(STEPS):
            step()
        us = (time.thread_time() - begin) / STEPS * 1e6
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
        calls = sum(event.name.startswith("aten::") for event in profile.events())
        return {"us": us, "calls": calls, "elements": sum(p.numel() for p in self.net.parameters() if p.requires_grad)}


def print_row(name, unit, ours, peers):
    print(json.dumps({"name": name, "value": ours, "unit": unit, "peer": f"PyTorch {torch.__version__}", "peer_value": peers}),
          flush=True)


torch.set_num_threads(1)
warnings.filterwarnings("ignore")
program = Program(pathlib.Path(sys.argv[1]))
for name, net in (("whisper", Whisper()), ("vit", ViT())):
    peer, made = Peer(net), {mode: ([], []) for mode in MODES[name]}
    for _ in range(ROUNDS):
        for mode in made:
            ours, theirs = program.step(f"{name} {mode}"), peer.step(mode)
            if ours["elements"] != theirs["elements"]:
                sys.exit(f"{name}: {ours['elements']} parameters here, {theirs['elements']} in PyTorch: not the same net")
            for side, step in zip(made[mode], (ours, theirs)):
                side.append(step)
    for mode, sides in made.items():
        us, calls = ([statistics.median(step[of] for step in side) for side in sides] for of in ("us", "calls"))
        print_row(f"{name}, {mode}", "us a step", *us)
        print_row(f"{name}, {mode}: operators", "calls a step", *calls)
program.finish()
