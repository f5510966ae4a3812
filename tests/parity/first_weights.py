# SPDX-License-Identifier: MIT
"""Writes small checkpoints with which a training program begins (--weights), as Python's scripts leave them.

usage: python tests/parity/first_weights.py   (needs torch; writes data/first_weights/)

tests/unit/app/weights/first_weights_test.cpp, the tests of the two examples and tests/examples/*_cli_test.sh read them.
"""
import math
import pathlib
import shutil

import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent / "data" / "first_weights"
WIDTH, MELS, CHARACTERS = 16, 80, 9


def save(name, value):
    torch.save(value, FOLDER / name)


def half(state):
    return {name: tensor.half() if tensor.is_floating_point() and not name.endswith(".pe") else tensor for name, tensor in state.items()}


def players():
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 8
    generator, discriminator = {"weight": weight, "bias": torch.ones(2)}, {"weight": -weight, "bias": torch.zeros(2)}
    save("gan.pt", {"epoch": 3, "generator": generator, "discriminator": discriminator, "optimizer_g": {"state": {}, "param_groups": []}})
    save("gan_state_dicts.pt", {"generator_state_dict": generator, "netD": discriminator})


def positions(length):
    rates = torch.exp(torch.arange(0, WIDTH, 2).float() * (-math.log(10000.0) / WIDTH))
    angles = torch.arange(length).float()[:, None] * rates
    table = torch.zeros(1, length, WIDTH)
    table[0, :, 0::2], table[0, :, 1::2] = angles.sin(), angles.cos()
    return table


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pe", positions(24))

    def forward(self, x):
        return x + self.pe[:, :x.size(1)]


def feed_forward():
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Identity(), nn.Linear(4 * WIDTH, WIDTH))


class Block(nn.Module):
    """A Conformer block under the public KonkaniVani project's names."""

    def __init__(self):
        super().__init__()
        self.ff1, self.ff2 = feed_forward(), feed_forward()
        self.self_attn_norm, self.conv_norm, self.final_norm = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.self_attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.GLU(dim=1), nn.Conv1d(WIDTH, WIDTH, 31, padding=15, groups=WIDTH),
                                  nn.BatchNorm1d(WIDTH), nn.SiLU(), nn.Conv1d(WIDTH, WIDTH, 1))

    def forward(self, x):
        x = x + self.ff1(x) / 2
        normed = self.self_attn_norm(x)
        x = x + self.self_attn(normed, normed, normed)[0]
        x = x + self.conv(self.conv_norm(x).transpose(1, 2)).transpose(1, 2)
        return self.final_norm(x + self.ff2(x) / 2)


class Public(nn.Module):
    """The public KonkaniVani model in small: two blocks, one decoder layer."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.input_proj = nn.Linear(MELS, WIDTH)
        self.encoder.pos_encoding, self.decoder.pos_encoding = Positions(), Positions()
        self.encoder.layers = nn.ModuleList(Block() for _ in range(2))
        self.ctc_head = nn.Linear(WIDTH, CHARACTERS)
        self.decoder.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.decoder.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 4, 4 * WIDTH, 0.1, batch_first=True), 1)
        self.decoder.output_proj = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, frames, characters):
        x = self.encoder.pos_encoding(self.encoder.input_proj(frames))
        for block in self.encoder.layers:
            x = block(x)
        embedded = self.decoder.pos_encoding(self.decoder.embedding(characters) * math.sqrt(WIDTH))
        later = torch.triu(torch.ones(characters.size(1), characters.size(1)), diagonal=1).bool()
        return self.ctc_head(x), self.decoder.output_proj(self.decoder.decoder(embedded, x, tgt_mask=later))


def konkanivani():
    torch.manual_seed(15)
    model = Public()
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm1d)):
            nn.init.normal_(module.weight, 1, 0.2), nn.init.normal_(module.bias, 0, 0.2)
        if isinstance(module, nn.MultiheadAttention):
            nn.init.normal_(module.in_proj_bias, 0, 0.2)
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.2), module.running_var.uniform_(0.5, 2), module.num_batches_tracked.fill_(30)
    state = half(model.state_dict())
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    save("checkpoint_epoch_15.pt", {"epoch": 15, "model_state_dict": state, "optimizer_state_dict": optimizer.state_dict(),
                                    "scheduler_state_dict": schedule.state_dict(), "scaler_state_dict": {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 12},
                                    "val_loss": 1.25, "config": {"d_model": WIDTH, "mixed_precision": True, "learning_rate": 5e-4}})
    frames, characters = torch.randn(1, 20, MELS), torch.tensor([[2, 5, 6, 8, 7]])
    with torch.no_grad():
        ctc, decoder = model.eval()(frames, characters)
    save("konkanivani_scores.pt", {"frames": frames.transpose(1, 2).contiguous(), "characters": characters, "ctc": ctc, "decoder": decoder})


def gan():
    """Of gan_train --small --channels 8: single tensors, and a layer under both of PyTorch's spectral norms."""
    torch.manual_seed(1)
    modern = nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 1, 4))
    older = nn.utils.spectral_norm(nn.Conv2d(1, 2, 4))
    discriminator = {f"convolutions.0.{name}": tensor for name, tensor in modern.state_dict().items()}
    discriminator.update({f"convolutions.1.{name}": tensor for name, tensor in older.state_dict().items()})
    save("gan_players.pt", {"generator": {"module.output.bias": torch.tensor([0.25])}, "discriminator": discriminator, "epoch": 7})


def vit():
    """Of vit_train --preset small, in transformers' names and DataParallel's: the last norm, and a head of another size."""
    save("vit.pth", {"module.vit.layernorm.weight": torch.full((96,), 1.5), "module.vit.layernorm.bias": torch.full((96,), 0.5),
                     "module.regressor.weight": torch.ones(3, 96)})


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    players()
    konkanivani()
    gan()
    vit()
