# SPDX-License-Identifier: MIT
"""Records learning-rate schedules of transformers and PyTorch, transformers' early stopping, and a run with gradual
unfreezing in PyTorch, in data/schedules.safetensors.

usage: python tests/parity/schedules.py      (needs torch, transformers, safetensors)

Everything follows closed formulas, so that the C++ tests make the same inputs without a random generator.
"""
import pathlib
import types

import torch
import transformers
from safetensors.torch import save_file
from torch.optim.lr_scheduler import (CosineAnnealingWarmRestarts, LambdaLR, OneCycleLR, ReduceLROnPlateau, SequentialLR,
                                      StepLR)
from transformers import optimization

FULL_RATE = 0.5
NAN = float("nan")
# Improves, stalls, improves by less than any threshold, is NaN, improves a lot, stalls for good.
FALLING = [3.0, 2.0, 2.0, 2.5, 1.99999, 1.5, NAN, 1.6, 1.49, 1.7, 1.5, 1.5, 0.5, 0.499] + [0.6] * 8
LONG = FALLING + [0.6] * 16
STALLED = [NAN, NAN, 1.0, NAN, 1.0, 1.0, 0.9]


def wave(shape, phase):
    count = int(torch.tensor(shape).prod())
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).reshape(shape)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=FULL_RATE)


def by_step(make):
    """The rate of each of 25 updates."""
    optimizer = sgd()
    scheduler = make(optimizer)
    rates = []
    for step in range(25):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < 24:  # a OneCycleLR ends there
            scheduler.step()
    return tensor(rates)


def warm_step_lr(optimizer):
    warmup = LambdaLR(optimizer, lambda step: step / 5)
    return SequentialLR(optimizer, [warmup, StepLR(optimizer, 4, 0.5)], milestones=[5])


def by_metric(values, **options):
    """The rate after each value of the metric."""
    optimizer = sgd()
    scheduler = ReduceLROnPlateau(optimizer, **options)
    rates = []
    for value in values:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    return tensor(rates)


def stops_after(values, patience, greater_is_better=False):
    """How many values transformers' early stopping looks at; its Trainer keeps the best."""
    stopping = transformers.EarlyStoppingCallback(early_stopping_patience=patience)
    arguments = types.SimpleNamespace(metric_for_best_model="loss", greater_is_better=greater_is_better)
    state, control = transformers.TrainerState(), transformers.TrainerControl()
    for count, value in enumerate(values, start=1):
        stopping.on_evaluate(arguments, state, control, {"eval_loss": value})
        if control.should_training_stop:
            return count
        better = state.best_metric is None or (value > state.best_metric if greater_is_better else value < state.best_metric)
        if better:
            state.best_metric = value
    return -1


def unfreezing(data):
    """One epoch of everything, then the first layer frozen for two epochs and trained at a rate of its own after."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = wave(parameter.shape, i)
    optimizer = torch.optim.AdamW([{"params": net[0].parameters()}, {"params": net[2].parameters()}], lr=1e-2)

    def epoch():
        for k in range(3):
            optimizer.zero_grad()
            (net(wave((5, 4), 0.2 * k)) - wave((5, 3), k)).pow(2).mean().backward()
            optimizer.step()

    def snapshot(when):
        data[f"unfreeze.{when}.parameters"] = torch.cat([p.detach().flatten().clone() for p in net.parameters()])
        data[f"unfreeze.{when}.moments"] = torch.cat([optimizer.state[p]["exp_avg"].flatten() for p in net.parameters()])

    epoch()
    snapshot("before")
    net[0].requires_grad_(False)
    epoch(), epoch()
    snapshot("frozen")
    net[0].requires_grad_(True)
    optimizer.param_groups[0]["lr"] = 3e-3
    epoch(), epoch()
    snapshot("unfrozen")


def main():
    data = {
        "linear": by_step(lambda o: optimization.get_linear_schedule_with_warmup(o, 5, 20)),
        "linear_no_warmup": by_step(lambda o: optimization.get_linear_schedule_with_warmup(o, 0, 20)),
        "linear_to_a_tenth": by_step(
            lambda o: optimization.get_polynomial_decay_schedule_with_warmup(o, 5, 20, lr_end=0.05, power=1.0)),
        "cosine": by_step(lambda o: optimization.get_cosine_schedule_with_warmup(o, 5, 20)),
        "polynomial": by_step(
            lambda o: optimization.get_polynomial_decay_schedule_with_warmup(o, 5, 20, lr_end=0.05, power=2.0)),
        "constant": by_step(lambda o: optimization.get_constant_schedule_with_warmup(o, 5)),
        "step": by_step(lambda o: StepLR(o, 4, 0.5)),
        "step_warmup": by_step(warm_step_lr),
        "metric.falling": tensor(FALLING),
        "metric.long": tensor(LONG),
        "metric.stalled": tensor(STALLED),
        "plateau.default": by_metric(LONG),
        "plateau.relative": by_metric(FALLING, factor=0.5, patience=1, threshold=0.01),
        "plateau.absolute": by_metric(FALLING, factor=0.5, patience=1, threshold=0.1, threshold_mode="abs"),
        "plateau.cooldown": by_metric(FALLING, factor=0.5, patience=0, threshold=0.0, cooldown=2),
        "plateau.floor": by_metric(FALLING, factor=0.3, patience=0, min_lr=0.05),
        "plateau.stalled": by_metric(STALLED, factor=0.5, patience=0),
    }
    cycle = lambda **options: by_step(lambda o: OneCycleLR(o, max_lr=FULL_RATE, total_steps=25, cycle_momentum=False, **options))
    data["one_cycle"] = cycle()
    data["one_cycle_linear"] = cycle(anneal_strategy="linear", pct_start=0.2, div_factor=10, final_div_factor=100)
    data["one_cycle_three"] = cycle(three_phase=True, pct_start=0.4)
    data["restarts"] = by_step(lambda o: CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.05))
    data["restarts_warmup"] = by_step(  # three cycles of 5 steps; at its end the rate is 0 and stays so
        lambda o: optimization.get_cosine_with_hard_restarts_schedule_with_warmup(o, 5, 20, num_cycles=3))[:20]
    data["inverse_sqrt"] = by_step(lambda o: optimization.get_inverse_sqrt_schedule(o, 5))
    data["inverse_sqrt_timescale"] = by_step(lambda o: optimization.get_inverse_sqrt_schedule(o, 5, timescale=40))
    data["inverse_sqrt_no_warmup"] = by_step(lambda o: optimization.get_inverse_sqrt_schedule(o, 0))
    data["function"] = by_step(lambda o: LambdaLR(o, lambda step: 1.5 / (1 + step) + step / 25))
    rising = [1 / value for value in FALLING]
    data["metric.rising"] = tensor(rising)
    data["plateau.higher_relative"] = by_metric(rising, mode="max", factor=0.5, patience=1, threshold=0.01)
    data["plateau.higher_absolute"] = by_metric(
        rising, mode="max", factor=0.5, patience=2, threshold=0.05, threshold_mode="abs")
    # Up to its end: transformers' cosines rise again afterwards.
    data["cosine_to_a_tenth"] = by_step(
        lambda o: optimization.get_cosine_with_min_lr_schedule_with_warmup(o, 5, 20, min_lr_rate=0.1))[:21]
    for patience in (1, 2, 3, 4):
        data[f"stop.falling.{patience}"] = tensor(stops_after(FALLING, patience))
        data[f"stop.rising.{patience}"] = tensor(stops_after(rising, patience, greater_is_better=True))
    unfreezing(data)
    target = pathlib.Path(__file__).parent / "data" / "schedules.safetensors"
    save_file({key: value.contiguous() for key, value in data.items()}, target)


if __name__ == "__main__":
    main()
