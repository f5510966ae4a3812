# SPDX-License-Identifier: MIT
"""The peers of step_overhead: the same MLP, batches and fused AdamW on one thread, trained by PyTorch, Accelerate,
Lightning and HF Trainer, all reports and checkpoints off. Prints one JSON object a peer; tests/bench/run.sh has the
environment."""
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import torch
from torch import nn
from torch.nn.functional import cross_entropy

STEPS = 1000
ROUNDS = 5

rows, sys.stdout = sys.stdout, sys.stderr  # HF Trainer has things to say too

torch.set_num_threads(1)
torch.manual_seed(1)
features = torch.randn(STEPS, 32, 64)
labels = torch.randint(0, 10, (STEPS, 32))
batches = list(zip(features, labels))


class Batches(torch.utils.data.Dataset):
    """What a DataLoader with batch_size=None hands on as it is."""

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return batches[index]


def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), fused=True)


def pytorch():
    model = mlp()
    optimizer = adamw(model)

    def epoch():
        for x, y in batches:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()

    return torch.__version__.split("+")[0], epoch


def accelerate():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = mlp()
    model, optimizer = accelerator.prepare(model, adamw(model))

    def epoch():
        for x, y in batches:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(cross_entropy(model(x), y))
                optimizer.step()

    return accelerate.__version__, epoch


def lightning():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = mlp()

        def training_step(self, batch, index):
            return cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return adamw(self)

    def epoch():
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(Module(), torch.utils.data.DataLoader(Batches(), batch_size=None))

    return lightning.__version__, epoch


def hf_trainer():
    import transformers

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = mlp()

        def forward(self, x, labels):
            return {"loss": cross_entropy(self.model(x), labels)}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return [{"x": x, "labels": y} for x, y in batches]

    folder = tempfile.TemporaryDirectory()

    def epoch():
        arguments = transformers.TrainingArguments(
            folder.name, max_steps=STEPS, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no",
            disable_tqdm=True, optim="adamw_torch_fused")
        Trainer(model=Module(), args=arguments, train_dataset=Batches()).train()

    return transformers.__version__, epoch


def timed(epoch):
    begin = time.perf_counter()
    epoch()
    return (time.perf_counter() - begin) / STEPS * 1e6


# Each peer beside our row of the name `of`. The peers take turns; the first round warms up.
peers = [("PyTorch", pytorch), ("Accelerate", accelerate), ("Lightning", lightning), ("HF Trainer", hf_trainer)]
epochs = []
for name, make in peers:
    version, epoch = make()
    print(f"    {name} {version}", flush=True)
    epoch()
    epochs.append((f"{name} {version}", epoch, []))
for _ in range(ROUNDS):
    for _, epoch, times in epochs:
        times.append(timed(epoch))
for (name, _), (peer, _, times) in zip(peers, epochs):
    row = {"name": f"no policy vs {name}", "of": "no policy", "peer": peer, "peer_value": statistics.median(times)}
    print(json.dumps(row), file=rows)
