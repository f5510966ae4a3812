#!/usr/bin/env python3
"""compare_readers.py FOLDER [--ways module,script,decomposed,aoti,onnx] [--only NAME,...]: the tables of docs/export.md.

For each model that tests/unit/export wrote into FOLDER (LOOPTORCH_EXPORTS=FOLDER unit_export '[write_exports]', or
'[write_real_exports]'), the largest difference to C++'s outputs by each way of running its file; where a way fails, the
start of its error. Any PyTorch that is to be tried may run it; onnx needs onnxscript and onnxruntime.
"""
import argparse
import glob
import os
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch

torch.backends.mkldnn.enabled = False  # C++ computed without it
torch._C._set_graph_executor_optimize(False)  # TorchScript's fuser rounds bf16 elsewhere


def cases(path):
    tensors = torch.jit.load(path).state_dict()
    (inputs, outputs), *tensors = (tensors[key] for key in sorted(tensors, key=int))
    size = inputs + outputs
    return [(tensors[i : i + inputs], tensors[i + inputs : i + size]) for i in range(0, len(tensors), size)]


def aoti(stem):
    package = os.path.join(tempfile.mkdtemp(), "compiled.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.load(stem + ".pt2"), package_path=package)
    return torch._inductor.aoti_load_package(package)


def onnx(stem):
    import onnxruntime

    file = os.path.join(tempfile.mkdtemp(), "model.onnx")
    torch.onnx.export(torch.export.load(stem + ".pt2"), f=file, verbose=False)
    session = onnxruntime.InferenceSession(file)
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: [
        torch.from_numpy(y) for y in session.run(None, {name: x.numpy() for name, x in zip(names, inputs)})
    ]


ways = {
    "module": lambda stem: torch.export.load(stem + ".pt2").module(),
    "script": lambda stem: torch.jit.load(stem + ".ts"),
    "decomposed": lambda stem: torch.export.load(stem + ".pt2").run_decompositions().module(),
    "aoti": aoti,
    "onnx": onnx,
}


def difference(found, wanted):
    found = list(found.values()) if isinstance(found, dict) else found
    found = [found] if isinstance(found, torch.Tensor) else list(found)
    assert len(found) == len(wanted), f"{len(found)} outputs"
    worst = 0.0
    for a, b in zip(found, wanted):
        assert a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
        if b.numel() and not torch.equal(a, b):
            worst = max(worst, (a.double() - b.double()).abs().max().item())
    return worst


def measured(way, stem):
    """Returns the largest difference over the cases, or the start of an error and where it came."""
    at = "made"
    try:
        run, worst = ways[way](stem), 0.0
        with torch.no_grad():
            for inputs, wanted in cases(stem + ".cases"):
                at = "run at " + "x".join(map(str, inputs[0].shape))
                worst = max(worst, difference(run(*inputs), wanted))
        return f"{worst:.1e}" if worst else "0"
    except Exception as error:  # any reader's own
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}, {at}: {lines[0][:150] if lines else ''}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("--ways", default="module,script")
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    chosen = given.ways.split(",")
    found = glob.glob(os.path.join(given.folder, "*.cases"))
    names = sorted(os.path.basename(path)[: -len(".cases")] for path in found)
    print(f"| PyTorch {torch.__version__} | " + " | ".join(chosen) + " |")
    print("|---" * (len(chosen) + 1) + "|")
    for name in names:
        if given.only and name not in given.only.split(","):
            continue
        cells = [measured(way, os.path.join(given.folder, name)) for way in chosen]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
