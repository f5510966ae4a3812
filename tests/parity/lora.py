# SPDX-License-Identifier: MIT
"""Records adapters that peft writes, and the outputs and gradients that it computes with them.

usage: python tests/parity/lora.py               (needs torch and peft; writes data/lora and data/lora.safetensors)
       python tests/parity/lora.py FOLDER
           (checks that peft loads the adapters in FOLDER, and computes FOLDER/outputs.safetensors with them)

tests/unit/adapters/lora_files_test.cpp builds the same module by the same formulas.
"""
import pathlib
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

DATA = pathlib.Path(__file__).parent / "data"


def wave(sizes, phase):
    count = int(torch.Size(sizes).numel())
    return torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + phase).reshape(sizes).float()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(5, 7)
        self.inner = torch.nn.Module()
        self.inner.fc1 = torch.nn.Linear(7, 7)
        self.out = torch.nn.Linear(7, 3, bias=False)
        with torch.no_grad():
            for number, (_, tensor) in enumerate(sorted(self.named_parameters())):
                tensor.copy_(wave(tensor.shape, number))

    def forward(self, x):
        return self.out(torch.tanh(self.inner.fc1(torch.tanh(self.fc1(x)))))


def record():
    config = LoraConfig(r=2, lora_alpha=5, lora_dropout=0.25, target_modules=r"(fc1|out)", use_rslora=False)
    net = get_peft_model(Net(), config)
    adapters = sorted((n, p) for n, p in net.named_parameters() if "lora_" in n)
    with torch.no_grad():
        for number, (_, tensor) in enumerate(adapters):
            tensor.copy_(0.3 * wave(tensor.shape, 10 + number))
    net.eval()
    x = wave((4, 5), 0.5)
    output = net(x)
    (output * wave(output.shape, 2.5)).sum().backward()
    gradients = {n.replace("base_model.model.", "grad.").replace(".default", ""): p.grad for n, p in adapters}
    net.save_pretrained(DATA / "lora")
    (DATA / "lora" / "README.md").unlink(missing_ok=True)
    merged = net.merge_and_unload()
    save_file({"output": output.detach(), "merged": merged.fc1.weight.detach().clone(), **gradients},
              DATA / "lora.safetensors")


def check(folder):
    net = PeftModel.from_pretrained(Net(), folder)
    adapted = sorted(n for n, m in net.named_modules() if hasattr(m, "lora_A"))
    assert adapted == ["base_model.model.fc1", "base_model.model.out"], adapted
    expected = load_file(pathlib.Path(folder) / "outputs.safetensors")
    found = net(expected["input"])
    torch.testing.assert_close(found, expected["output"], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, Net()(expected["input"]))
    torch.testing.assert_close(net.merge_and_unload()(expected["input"]), expected["output"], rtol=1e-5, atol=1e-6)
    print(f"{folder}: loaded by peft, outputs equal")


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else record()
