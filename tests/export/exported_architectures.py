#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""exported_architectures.py PROGRAM FOLDER [NAME...]: which architectures the program finetune_exported trains.

Makes small models of transformers, torchvision and timm with random weights, exports them in training mode without dropout,
and trains each for 6 steps on one batch, in PyTorch and by the program. Prints a table: the largest difference of the
losses, or what failed. The program shuffles the rows of the batch: where that matters, the table says how far PyTorch's own
losses are from those of the rows in reverse. Needs torch 2.11, transformers 5.24, torchvision, timm, safetensors.
examples/finetune_exported/RESULTS.md has what it printed.
"""
import copy
import json
import pathlib
import subprocess
import sys
import warnings

import torch
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
STEPS, RATE, CLIP = 6, 1e-3, 1.0
OPEN = torch.export.Dim.AUTO
N, T = 3, 12
NO_DROP = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TEXT = dict(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3)
LLM = dict(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32,
           max_position_embeddings=32, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, attention_dropout=0.0)
SPEECH = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_stride=(5, 4),
              conv_kernel=(10, 8), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, num_feat_extract_layers=2,
              hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0,
              feat_quantizer_dropout=0.0, layerdrop=0.0, apply_spec_augment=False, num_labels=3, vocab_size=12,
              classifier_proj_size=8)


def ids(vocabulary=60, rows=N, length=T):
    return torch.randint(3, vocabulary, (rows, length))


def tokens(**more):
    return {"input_ids": ids(), "attention_mask": torch.ones(N, T, dtype=torch.long), **more}


def classes():
    return {"labels": torch.randint(3, (N,))}


def images(size=32):
    return {"pixel_values": torch.randn(N, 3, size, size), **classes()}


def of_transformers(kind, config, batch, **settings):
    def make():
        import transformers

        made = getattr(transformers, config)(**settings)
        try:
            return getattr(transformers, kind)._from_config(made, attn_implementation="sdpa")
        except ValueError:  # it has none by SDPA
            return getattr(transformers, kind)._from_config(made, attn_implementation="eager")

    return make, batch, "own"


def causal(kind, config, **settings):
    return of_transformers(kind, config, lambda: tokens(labels=ids()), **{**LLM, **settings})


def text(kind, config, **settings):
    return of_transformers(kind, config, lambda: tokens(**classes()), **{**TEXT, **settings})


def of_torchvision(name, size=64, **settings):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(num_classes=3, **settings)

    return make, lambda: {"x": torch.randn(N, 3, size, size), **classes()}, "cross-entropy"


def of_timm(name, size=32, **settings):
    def make():
        import timm

        return timm.create_model(name, num_classes=3, **settings)

    return make, lambda: {"x": torch.randn(N, 3, size, size), **classes()}, "cross-entropy"


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(60, 16), torch.nn.Linear(32, 3)
        self.layers = torch.nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))[0].mean(1))


ARCHITECTURES = {
    "DistilBERT": text("DistilBertForSequenceClassification", "DistilBertConfig", dim=16, n_layers=2, n_heads=2, hidden_dim=32,
                       dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0),
    "RoBERTa": text("RobertaForSequenceClassification", "RobertaConfig", max_position_embeddings=40, **NO_DROP),
    "ALBERT": text("AlbertForSequenceClassification", "AlbertConfig", embedding_size=8, classifier_dropout_prob=0.0, **NO_DROP),
    "ELECTRA": text("ElectraForSequenceClassification", "ElectraConfig", embedding_size=8, **NO_DROP),
    "DeBERTa-v2": text("DebertaV2ForSequenceClassification", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"],
                       position_buckets=8, pooler_hidden_size=16, **NO_DROP),
    "MPNet": text("MPNetForSequenceClassification", "MPNetConfig", **NO_DROP),
    "ModernBERT": text("ModernBertForSequenceClassification", "ModernBertConfig", pad_token_id=0, attention_dropout=0.0),
    "T5": of_transformers("T5ForConditionalGeneration", "T5Config", lambda: tokens(labels=ids()), vocab_size=60, d_model=16, d_kv=8,
                          d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0),
    "BART": of_transformers("BartForConditionalGeneration", "BartConfig", lambda: tokens(labels=ids()), vocab_size=60, d_model=16,
                            encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
                            encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=32, dropout=0.0, use_cache=False),
    "Llama": causal("LlamaForCausalLM", "LlamaConfig"),
    "Mistral": causal("MistralForCausalLM", "MistralConfig", sliding_window=8),
    "Qwen2": causal("Qwen2ForCausalLM", "Qwen2Config"),
    "Gemma": causal("GemmaForCausalLM", "GemmaConfig", head_dim=8),
    "Phi": causal("PhiForCausalLM", "PhiConfig", num_key_value_heads=2, resid_pdrop=0.0, embd_pdrop=0.0),
    "GPT-NeoX": causal("GPTNeoXForCausalLM", "GPTNeoXConfig", hidden_dropout=0.0),
    "OPT": causal("OPTForCausalLM", "OPTConfig", ffn_dim=32, word_embed_proj_dim=16, dropout=0.0),
    "Mixtral": causal("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, num_experts_per_tok=2),
    "Mixtral, batched experts": causal("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, num_experts_per_tok=2,
                                       experts_implementation="batched_mm"),
    "Mamba": of_transformers("MambaForCausalLM", "MambaConfig", lambda: {"input_ids": ids(), "labels": ids()}, vocab_size=60,
                             hidden_size=16, num_hidden_layers=2, state_size=4, use_cache=False, pad_token_id=0),
    "DeiT": of_transformers("DeiTForImageClassification", "DeiTConfig", images, **TEXT, image_size=32, patch_size=8, **NO_DROP),
    "BEiT": of_transformers("BeitForImageClassification", "BeitConfig", images, **TEXT, image_size=32, patch_size=8,
                            drop_path_rate=0.0, **NO_DROP),
    "Swin": of_transformers("SwinForImageClassification", "SwinConfig", images, image_size=32, patch_size=2, embed_dim=8, depths=[1, 1],
                            num_heads=[2, 2], window_size=4, num_labels=3, drop_path_rate=0.0, **NO_DROP),
    "ConvNeXt": of_transformers("ConvNextForImageClassification", "ConvNextConfig", images, hidden_sizes=[8, 16], depths=[1, 1],
                                num_stages=2, num_labels=3),
    "SegFormer": of_transformers("SegformerForImageClassification", "SegformerConfig", images, hidden_sizes=[8, 8, 16, 16],
                                 depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], num_labels=3, drop_path_rate=0.0,
                                 classifier_dropout_prob=0.0, **NO_DROP),
    "DINOv2": of_transformers("Dinov2ForImageClassification", "Dinov2Config", images, hidden_size=16, num_hidden_layers=2,
                              num_attention_heads=2, image_size=32, patch_size=8, num_labels=3, **NO_DROP),
    "ResNet (transformers)": of_transformers("ResNetForImageClassification", "ResNetConfig", images, embedding_size=8,
                                             hidden_sizes=[8, 16], depths=[1, 1], num_labels=3),
    "HuBERT": of_transformers("HubertForSequenceClassification", "HubertConfig",
                              lambda: {"input_values": torch.randn(N, 800), **classes()}, **SPEECH),
    "Wav2Vec2 classifier": of_transformers("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config",
                                           lambda: {"input_values": torch.randn(N, 800), **classes()}, **SPEECH),
    "AST": of_transformers("ASTForAudioClassification", "ASTConfig", lambda: {"input_values": torch.randn(N, 64, 16), **classes()},
                           **TEXT, patch_size=8, frequency_stride=8, time_stride=8, max_length=64, num_mel_bins=16, **NO_DROP),
    "LSTM (torch.nn)": (Recurrent, lambda: {"x": ids(), **classes()}, "cross-entropy"),
    "ResNet-18": of_torchvision("resnet18"),
    "MobileNet v3": of_torchvision("mobilenet_v3_small", dropout=0.0),
    "EfficientNet-B0": of_torchvision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0),
    "DenseNet-121": of_torchvision("densenet121"),
    "RegNet-Y": of_torchvision("regnet_y_400mf"),
    "ViT tiny (timm)": of_timm("vit_tiny_patch16_224", img_size=32, depth=2),
    "MLP-Mixer (timm)": of_timm("mixer_s32_224", size=224),
    "ConvMixer (timm)": of_timm("convmixer_768_32"),
    "CoAtNet (timm)": of_timm("coatnet_nano_rw_224", size=64, img_size=64),
}


def losses_of(model, batch, kind):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / STEPS)).item()))
    losses = []
    for _ in range(STEPS):
        if kind == "own":
            loss = model(**batch).loss
        else:
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def difference(losses, wanted):
    return max(abs(a - b) for a, b in zip(losses, wanted, strict=True))


def tried(program, folder, name):
    """Returns the cells of a row: parameters, nodes, and what came of it."""
    make, batch, kind = ARCHITECTURES[name]
    torch.manual_seed(0)
    model, batch = make().train(), batch()
    cells = [f"{sum(p.numel() for p in model.parameters()):,}", ""]
    keys = [key for key in batch if kind == "own" or key != "labels"]
    torch.manual_seed(1)
    try:
        exported = torch.export.export(model, (), {key: batch[key] for key in keys}, dynamic_shapes={key: {0: OPEN} for key in keys})
    except Exception as error:
        first = next(line for line in str(error).splitlines() if line.strip())
        return cells + [f"torch.export: {type(error).__name__}: {first[:150]}"]
    cells[1] = str(len(exported.graph.nodes))
    path = folder / "".join(c if c.isalnum() else "_" for c in name)
    torch.export.save(exported, f"{path}.pt2")
    save_file({key: value.contiguous() for key, value in batch.items()}, f"{path}.safetensors")
    again = copy.deepcopy(model)
    wanted = losses_of(model, batch, kind)
    output = pathlib.Path(f"{path}.run")
    command = [program, "--model", f"{path}.pt2", "--train", f"{path}.safetensors", "--output", output, "--epochs", STEPS, "--batch-size", N,
               "--learning-rate", RATE, "--clip", CLIP, "--device", "cpu", "--workers", 0, "--loss", kind]
    command += [] if kind == "own" else ["--scores", "output"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        return cells + ["looptorch: " + done.stderr.strip().splitlines()[-1].removeprefix("finetune_exported: ").replace(f"{folder}/", "")[:220]]
    metrics = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in metrics if "loss" in row]
    text = f"trains: loss {losses[0]:.3f} to {losses[-1]:.3f}, differs by at most {difference(losses, wanted):.0e}"
    if difference(losses, wanted) > 1e-5:
        other = losses_of(again, {key: value.flip(0) for key, value in batch.items()}, kind)
        text += f" (PyTorch with the rows in reverse: {difference(other, wanted):.0e})"
    return cells + [text]


if __name__ == "__main__":
    torch.set_num_threads(1)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    print("| model | parameters | nodes | result |\n| --- | ---: | ---: | --- |")
    for name in sys.argv[3:] or ARCHITECTURES:
        try:
            cells = tried(program, folder, name)
        except Exception as error:
            cells = ["", "", f"the script: {type(error).__name__}: {str(error)[:200]}"]
        print("| " + " | ".join([name, *cells]) + " |", flush=True)
