# SPDX-License-Identifier: MIT
"""export.py text|image|speech OUT.pt2 [--model NAME] [--classes N]: exports a model of transformers for finetune_exported.

text: a classifier of token ids, with its loss. image: a classifier of images, with its loss. speech: Wav2Vec2 with CTC, without
its loss (train with --loss ctc). NAME is a model of the Hub or a folder; without it the model is small and random.
"""
import argparse

import torch
import transformers as tr

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
AUTO = torch.export.Dim.AUTO  # a size that stays open

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("text", "image", "speech"))
parser.add_argument("out")
parser.add_argument("--model")
parser.add_argument("--classes", type=int, default=2)
args = parser.parse_args()

kind, config, more = {
    "text": (tr.AutoModelForSequenceClassification, tr.BertConfig, dict(num_labels=args.classes)),
    "image": (tr.AutoModelForImageClassification, tr.ViTConfig, dict(num_labels=args.classes)),
    # Both draw numbers in Python, which an exported program cannot.
    "speech": (tr.AutoModelForCTC, tr.Wav2Vec2Config, dict(layerdrop=0.0, apply_spec_augment=False)),
}[args.kind]
if args.model:
    unequal = {} if args.kind == "speech" else dict(ignore_mismatched_sizes=True)  # a head for other classes is made anew
    model = kind.from_pretrained(args.model, dtype=torch.float32, **more, **unequal)
else:
    model = kind.from_config(config(**SMALL, **more))

labels = torch.zeros(2, dtype=torch.long)
ids = torch.ones(2, 8, dtype=torch.long)
if args.kind == "text":
    inputs = {"input_ids": ids, "attention_mask": ids.clone(), "labels": labels}  # one tensor twice would be one input
    sizes = {"input_ids": {0: AUTO, 1: AUTO}, "attention_mask": {0: AUTO, 1: AUTO}, "labels": {0: AUTO}}
elif args.kind == "image":
    side = model.config.image_size
    inputs = {"pixel_values": torch.zeros(2, 3, side, side), "labels": labels}
    sizes = {"pixel_values": {0: AUTO}, "labels": {0: AUTO}}
else:
    inputs, sizes = {"input_values": torch.zeros(2, 16000)}, {"input_values": {0: AUTO, 1: AUTO}}

model.train()  # keeps dropout
program = torch.export.export(model, (), inputs, dynamic_shapes=sizes)
torch.export.save(program, args.out)
print(f"{args.out}: {sum(p.numel() for p in model.parameters())} parameters, {len(program.graph.nodes)} nodes")
