# SPDX-License-Identifier: MIT
"""Records what PyTorch makes of spectral norm, channel attention and the losses of the spectrogram GAN.

    python tests/parity/spectrogram_gan.py        # writes tests/parity/data/spectrogram_gan.safetensors

Weights and inputs are sin(0.7 i + phase), as reference.hpp's wave() makes them, in float64.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.utils.parametrizations import spectral_norm


def wave(shape, phase):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.7 + phase).sin().reshape(shape)


def record_spectral_norm(out, name, layer, inputs, dim, iterations=1):
    """Three passes in training, differentiated together, then one in eval mode."""
    with torch.no_grad():
        layer.weight.copy_(wave(layer.weight.shape, 0.3))
        layer.bias.copy_(wave(layer.bias.shape, 0.4))
    torch.manual_seed(5)
    layer = spectral_norm(layer, n_power_iterations=iterations, dim=dim)
    norm = layer.parametrizations.weight[0]
    out[f"{name}.begin.u"], out[f"{name}.begin.v"] = norm._u.clone(), norm._v.clone()
    total = 0
    for i in range(3):
        y = layer(inputs)
        out[f"{name}.output.{i}"] = y.detach().clone()
        total = total + (y * wave(y.shape, i)).sum()
    total.backward()
    out[f"{name}.end.u"], out[f"{name}.end.v"] = norm._u.clone(), norm._v.clone()
    out[f"{name}.gradient"] = layer.parametrizations.weight.original.grad
    out[f"{name}.output.eval"] = layer.eval()(inputs).detach().clone()
    assert torch.equal(norm._u, out[f"{name}.end.u"])


def record_attention(out):
    x = wave((2, 16, 3, 5), 0.1).requires_grad_()
    squeeze, excite = wave((2, 16), 0.2).requires_grad_(), wave((16, 2), 0.3).requires_grad_()

    def mlp(pooled):
        return F.linear(F.relu(F.linear(pooled, squeeze)), excite)

    scores = mlp(F.adaptive_avg_pool2d(x, 1).flatten(1)) + mlp(F.adaptive_max_pool2d(x, 1).flatten(1))
    y = x * torch.sigmoid(scores)[:, :, None, None]
    (y * wave(y.shape, 0.9)).sum().backward()
    out.update({"attention.output": y.detach().clone(), "attention.x": x.grad, "attention.squeeze": squeeze.grad,
                "attention.excite": excite.grad})


def record_losses(out):
    for name in ("hinge", "bce"):
        real, fake = (3 * wave((7,), 0.1)).requires_grad_(), (3 * wave((7,), 1.1)).requires_grad_()
        if name == "hinge":
            critic, player = F.relu(1 - real).mean() + F.relu(1 + fake).mean(), -fake.mean()
        else:
            ones, zeros = torch.ones_like(real), torch.zeros_like(real)
            critic = F.binary_cross_entropy_with_logits(real, ones) + F.binary_cross_entropy_with_logits(fake, zeros)
            player = F.binary_cross_entropy_with_logits(fake, ones)
        critic_gradients = torch.autograd.grad(critic, (real, fake), retain_graph=True)
        out.update({f"{name}.discriminator": critic.detach(), f"{name}.generator": player.detach(),
                    f"{name}.real": critic_gradients[0], f"{name}.fake": critic_gradients[1],
                    f"{name}.player": torch.autograd.grad(player, fake)[0]})


def record_penalty(out):
    """R1 of a score tanh(x A) b, as the papers' code has it, and its gradient by the weights."""
    real, a, b = wave((3, 1, 2, 4), 0.2), wave((8, 5), 0.5).requires_grad_(), wave((5,), 0.6).requires_grad_()
    x = real.clone().requires_grad_()
    scores = torch.tanh(x.flatten(1) @ a) @ b
    (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    penalty = slope.pow(2).reshape(3, -1).sum(1).mean()
    penalty.backward()
    out.update({"penalty": penalty.detach(), "penalty.a": a.grad, "penalty.b": b.grad})


def main():
    out = {}
    double = {"dtype": torch.float64}
    record_spectral_norm(out, "conv", torch.nn.Conv2d(3, 4, 3, **double), wave((2, 3, 5, 6), 0.7), 0)
    record_spectral_norm(out, "linear", torch.nn.Linear(6, 4, **double), wave((3, 6), 0.7), 0, iterations=2)
    record_spectral_norm(out, "transposed", torch.nn.ConvTranspose2d(3, 4, 3, **double), wave((2, 3, 5, 6), 0.7), 1)
    record_attention(out)
    record_losses(out)
    record_penalty(out)
    save_file({name: tensor.contiguous() for name, tensor in out.items()},
              pathlib.Path(__file__).parent / "data" / "spectrogram_gan.safetensors")


main()
