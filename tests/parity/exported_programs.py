# SPDX-License-Identifier: MIT
"""Writes small models as torch.export.save does, and records their outputs, gradients and losses in Python.

usage: python tests/parity/exported_programs.py    (needs torch 2.11 or newer, safetensors; writes data/exported_programs)

NAME.pt2 is the program, NAME.safetensors has a case of inputs, outputs, loss, gradients, buffers behind it and the losses of
50 steps of AdamW, outputs under autocast, and for some those of eval mode. The loss is a product of the outputs with waves, see `loss_of`. Weights are small waves, and dropout draws from
the seed 7. Stack traces are left out of the files, since they name folders of the machine.
"""
import copy
import pathlib
import sys
import zipfile

import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

DATA = pathlib.Path(__file__).parent / "data" / "exported_programs"


def wave(sizes, phase):
    count = int(torch.Size(sizes).numel())
    return torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + phase).reshape(sizes).float()


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu_(self.bn(self.conv(x)).add_(x))


class Cnn(nn.Module):
    """A residual net with BatchNorm: buffers that are updated, operations in place."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4, 5)

    def forward(self, image):
        x = self.blocks(self.stem(image))
        return self.fc(self.drop(x.mean((2, 3))))


class Recurrent(nn.Module):
    """A GRU and an LSTM: tuples, lists of weights."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 6, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(12, 5, num_layers=2, batch_first=True)

    def forward(self, x, state=None):
        x, _ = self.gru(x)
        x, (h, c) = self.lstm(x, state)
        return x, (h, c)


class Encoder(nn.Module):
    """A Transformer encoder with tied embeddings, sizes that are computed, a mask that may be left out, a dictionary."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, mask=None, *, factor):
        batch, time = ids.shape
        position = torch.arange(time, device=ids.device, dtype=torch.float32)
        x = self.embed(ids) * self.scale + torch.sin(position)[None, :, None] / (time**0.5)
        x = self.encoder(x, src_key_padding_mask=mask)
        first, second = (x * factor).view(batch * time, 8).chunk(2, -1)
        x = torch.cat([second, first], -1).reshape(batch, time, 8)
        return {"logits": self.head(x[:, : time // 2]), "hidden": [x, x.mean(1)]}


class Scoped(nn.Module):
    """A part without gradients, and one without autocast."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            angle = self.first(x).cos()
        with torch.autocast("cpu", enabled=False):
            y = self.second(x.float()) * 2
        return y * angle


class Picked(nn.Module):
    """Sizes that depend on values."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        rows = x[:, 0].gt(0).nonzero().squeeze(-1)
        return self.fc(x[rows]).sum(0)


class Norms(nn.Module):
    """Norms with and without statistics of their own."""

    def __init__(self):
        super().__init__()
        self.tracked = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
        self.plain = nn.InstanceNorm1d(3)
        self.batch = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x):
        return self.batch(self.plain(self.tracked(x)) + x)


class Channels(nn.Module):
    """Dropout of whole channels, for which decomposed programs call bernoulli."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.drop = nn.Dropout1d(0.5)
        self.alpha = nn.AlphaDropout(0.5)

    def forward(self, x):
        return self.alpha(self.drop(self.conv(x)))


class FixedBias(nn.Module):
    """A linear layer whose bias is a buffer."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4, bias=False)
        del self.fc.bias
        self.fc.register_buffer("bias", wave((4,), 0.5))

    def forward(self, x):
        return self.fc(x)


class Columns(nn.Module):
    """Batch norm of rows: a batch of one row has one value in each column."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3)
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(self.bn(x))


class Twice(nn.Module):
    """One batch norm for two inputs, as in a siamese net, and a buffer whose elements are one number."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3)
        self.register_buffer("scale", torch.full((1,), 0.5).expand(3))

    def forward(self, x):
        return self.bn(x) - self.bn(x.flip(1) * self.scale)


class HalfBias(nn.Module):
    """A linear layer's weight without and with its bias."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return nn.functional.linear(x, self.fc.weight) + self.fc(x)


class WritesView(nn.Module):
    """Writes to a view of its input, which is refused."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        x.view(-1)[:2].mul_(2)
        return self.fc(x)


def models():
    """Yields name, model in the mode in which it is exported, arguments, keywords, dynamic shapes, and a second set."""
    batch = Dim("batch", min=1)
    image = {"image": {0: batch}}
    yield "cnn", Cnn(), (wave((2, 3, 6, 6), 0.1),), {}, image, (wave((3, 3, 6, 6), 0.2),), {}
    yield "cnn_decomposed", Cnn(), (wave((2, 3, 6, 6), 0.1),), {}, image, (wave((3, 3, 6, 6), 0.2),), {}
    yield "cnn_eval", Cnn().eval(), (wave((2, 3, 6, 6), 0.1),), {}, image, (wave((3, 3, 6, 6), 0.2),), {}
    yield ("recurrent", Recurrent(), (wave((2, 5, 4), 0.1),), {}, {"x": {0: Dim.AUTO}}, (wave((3, 5, 4), 0.2),), {})
    ids = lambda *sizes: (torch.arange(sizes[0] * sizes[1]) * 5 % 11).reshape(sizes)
    mask = torch.zeros(3, 8, dtype=torch.bool)
    mask[1, 5:] = True
    yield ("encoder", Encoder(), (ids(2, 6), torch.zeros(2, 6, dtype=torch.bool)), {"factor": torch.tensor(0.5)},
           {"ids": {0: Dim.AUTO, 1: Dim.AUTO}, "mask": {0: Dim.AUTO, 1: Dim.AUTO}, "factor": None},
           (ids(3, 8), mask), {"factor": torch.tensor(0.7)})
    yield "scoped", Scoped(), (wave((2, 4), 0.1),), {}, {"x": {0: batch}}, (wave((3, 4), 0.2),), {}
    yield "picked", Picked(), (wave((5, 4), 0.1),), {}, {"x": {0: batch}}, (wave((9, 4), 0.2),), {}
    for name, make in ("norms", Norms), ("channels", Channels):
        for suffix in "", "_decomposed":
            yield name + suffix, make(), (wave((2, 3, 6), 0.1),), {}, None, (wave((2, 3, 6), 0.2),), {}
    yield "fixed_bias", FixedBias(), (wave((2, 3), 0.1),), {}, {"x": {0: batch}}, (wave((3, 3), 0.2),), {}
    yield "half_bias", HalfBias(), (wave((2, 3), 0.1),), {}, {"x": {0: batch}}, (wave((3, 3), 0.2),), {}
    yield "twice", Twice(), (wave((2, 3), 0.1),), {}, {"x": {0: batch}}, (wave((4, 3), 0.2),), {}
    for suffix in "", "_decomposed":
        yield "columns" + suffix, Columns(), (wave((2, 3), 0.1),), {}, {"x": {0: batch}}, (wave((4, 3), 0.2),), {}


def flat(tree):
    return [leaf for leaf in torch.utils._pytree.tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def loss_of(outputs):
    return sum((output * wave(output.shape, i)).mean() for i, output in enumerate(outputs))


def save(name, program):
    for graph in [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in graph.nodes:
            for key in ("stack_trace", "from_node"):
                node.meta.pop(key, None)
    torch.export.save(program, DATA / f"{name}.pt2")


def record(name, model, args, kwargs, dynamic, other_args, other_kwargs):
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(0.3 * wave(parameter.shape, number))
    program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic)
    if name.endswith("_decomposed"):  # functional: buffers are outputs
        program = program.run_decompositions()
    save(name, program)
    before = copy.deepcopy(model)
    record = {f"input.{i}": tensor for i, tensor in enumerate(flat((other_args, other_kwargs)))}
    if name.startswith(("norms", "channels", "twice")):
        outputs = flat(copy.deepcopy(model).eval()(*other_args))
        record |= {f"eval.{i}": tensor.detach() for i, tensor in enumerate(outputs)}
    torch.manual_seed(7)
    outputs = flat(model(*other_args, **other_kwargs))
    loss = loss_of(outputs)
    loss.backward()
    record |= {f"output.{i}": tensor.detach().clone() for i, tensor in enumerate(outputs)}
    record["loss"] = loss.detach()
    record |= {f"gradient.{key}": p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    record |= {f"buffer.{key}": tensor.clone() for key, tensor in model.named_buffers()}
    torch.manual_seed(7)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        outputs = flat(before(*other_args, **other_kwargs))
    record |= {f"autocast.{i}": tensor for i, tensor in enumerate(outputs)}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    torch.manual_seed(7)
    for _ in range(50):
        optimizer.zero_grad()
        loss = loss_of(flat(model(*other_args, **other_kwargs)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    record["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file({key: tensor.contiguous() for key, tensor in record.items()}, DATA / f"{name}.safetensors")


def main():
    DATA.mkdir(exist_ok=True)
    wanted = sys.argv[1:]
    for name, *rest in models():
        if not wanted or name in wanted:
            record(name, *rest)
    if not wanted or "writes_view" in wanted:
        save("writes_view", torch.export.export(WritesView(), (wave((2, 3), 0.1),)))
    with zipfile.ZipFile(DATA / "compressed.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo("compressed/models/model.json")  # of a fixed time
        archive.writestr(entry, "{}" * 10, zipfile.ZIP_DEFLATED)


main()
