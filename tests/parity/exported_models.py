# SPDX-License-Identifier: MIT
"""Exports five small models of transformers by torch.export, and records what PyTorch makes of them.

usage: python tests/parity/exported_models.py [FOLDER]   (needs torch 2.11, transformers 5.24, safetensors)

Writes data/exported/: NAME.pt2, exported in training mode without dropout, whose entries are compressed (a test stores them
anew), and recorded.safetensors. With FOLDER it writes every variant there instead, as torch.export.save does: in training
mode without and with dropout, in inference mode, with attention by SDPA and by separate operators.

Recorded of each model, under NAME.: three batches (`batch.I.INPUT`); for the first one the outputs (`output.NAME`) and the
gradients of the loss (`gradient.PARAMETER`); and the `losses` of 50 steps of AdamW with clipping and transformers' cosine
schedule, which take the batches in turn. The numbers are those of `.module()` of the exported program. The model as
transformers has it is trained beside it, and must give the same losses to 1e-6.
"""
import copy
import pathlib
import sys
import tempfile
import warnings
import zipfile

import torch
import transformers as tr
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
DATA = pathlib.Path(__file__).parent / "data" / "exported"
STEPS, WARMUP, RATE, CLIP = 50, 5, 5e-3, 1.0
OPEN = torch.export.Dim.AUTO
BLANK = 0


def ids(vocabulary, *shape):
    return torch.randint(1, vocabulary, shape)


def padded(mask, *short):
    """Marks the last places of the first rows as padding."""
    for row, count in enumerate(short):
        mask[row, -count:] = 0
    return mask


def vit(drop):
    config = tr.ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
                          num_labels=3, hidden_dropout_prob=drop, attention_probs_dropout_prob=drop)
    batches = [{"pixel_values": torch.randn(n, 3, 16, 16), "labels": torch.randint(3, (n,))} for n in (4, 3, 5)]
    return tr.ViTForImageClassification, config, batches, {"pixel_values": {0: OPEN}, "labels": {0: OPEN}}


def bert(drop):
    config = tr.BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                           max_position_embeddings=16, num_labels=3, hidden_dropout_prob=drop, attention_probs_dropout_prob=drop)
    batches = [{"input_ids": ids(40, n, t), "attention_mask": padded(torch.ones(n, t, dtype=torch.long), 2, 3),
                "labels": torch.randint(3, (n,))} for n, t in ((4, 9), (3, 12), (5, 6))]
    return tr.BertForSequenceClassification, config, batches, {"input_ids": {0: OPEN, 1: OPEN}, "attention_mask": {0: OPEN, 1: OPEN},
                                                               "labels": {0: OPEN}}


def gpt2(drop):
    config = tr.GPT2Config(vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=16, resid_pdrop=drop, embd_pdrop=drop, attn_pdrop=drop,
                           use_cache=False, bos_token_id=1, eos_token_id=2, loss_type="ForCausalLM")
    batches = [{"input_ids": ids(40, n, t), "attention_mask": torch.ones(n, t, dtype=torch.long)} for n, t in ((4, 9), (3, 12), (5, 6))]
    for batch in batches:
        padded(batch["attention_mask"], 1, 2)
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return tr.GPT2LMHeadModel, config, batches, {name: {0: OPEN, 1: OPEN} for name in batches[0]}


def whisper(drop):
    config = tr.WhisperConfig(vocab_size=40, num_mel_bins=4, d_model=8, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                              decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_source_positions=10,
                              max_target_positions=16, dropout=drop, attention_dropout=drop, activation_dropout=drop, pad_token_id=0,
                              bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False, suppress_tokens=None,
                              begin_suppress_tokens=None)
    batches = [{"input_features": torch.randn(n, 4, 20), "labels": ids(40, n, t)} for n, t in ((4, 7), (3, 9), (5, 5))]
    for batch in batches:
        batch["labels"][0, -2:] = -100
    return tr.WhisperForConditionalGeneration, config, batches, {"input_features": {0: OPEN}, "labels": {0: OPEN, 1: OPEN}}


def wav2vec2(drop):
    """Without its loss: transformers compares the labels' values with the vocabulary's size, which torch.export refuses."""
    config = tr.Wav2Vec2Config(vocab_size=12, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                               conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=8,
                               num_conv_pos_embedding_groups=2, num_feat_extract_layers=3, hidden_dropout=drop, attention_dropout=drop,
                               activation_dropout=drop, feat_proj_dropout=drop, final_dropout=drop, layerdrop=0.0,
                               apply_spec_augment=False, ctc_loss_reduction="mean", pad_token_id=BLANK)
    batches = [{"input_values": torch.randn(n, t), "labels": ids(12, n, 6)} for n, t in ((4, 400), (3, 500), (5, 360))]
    return tr.Wav2Vec2ForCTC, config, batches, {"input_values": {0: OPEN, 1: OPEN}}


MODELS = {"vit": vit, "bert": bert, "gpt2": gpt2, "whisper": whisper, "wav2vec2": wav2vec2}


def ctc(logits, labels):
    """The loss of transformers' Wav2Vec2ForCTC with the reduction "mean"."""
    frames = torch.full((len(labels),), logits.shape[1])
    lengths = torch.full((len(labels),), labels.shape[1])
    return torch.nn.functional.ctc_loss(logits.log_softmax(-1).transpose(0, 1), labels, frames, lengths, blank=BLANK)


def made(name, drop=0.0, attention="sdpa"):
    torch.manual_seed(3)
    kind, config, batches, sizes = MODELS[name](drop)
    config._attn_implementation = attention
    torch.manual_seed(5)
    return kind(config), batches, sizes


def exported(model, batch, sizes):
    program = torch.export.export(model, (), {name: batch[name] for name in sizes}, dynamic_shapes=sizes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # which names files of this machine
    program.example_inputs = None
    return program


def loss_of(module, batch, sizes):
    out = module(**{name: batch[name] for name in sizes})
    return (out.loss if "labels" in sizes else ctc(out.logits, batch["labels"])), out


def trained(module, loss_of_batch, batches):
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    schedule = tr.get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS)
    losses = []
    for step in range(STEPS):
        loss = loss_of_batch(batches[step % len(batches)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def record(name, drop=0.0, attention="sdpa"):
    """Returns the exported program, and what is recorded of it."""
    model, batches, sizes = made(name, drop, attention)
    model.train()
    program = exported(model, batches[0], sizes)
    module = copy.deepcopy(program).module()
    found = {f"batch.{i}.{key}": value for i, batch in enumerate(batches) for key, value in batch.items()}
    torch.manual_seed(7)
    loss, out = loss_of(module, batches[0], sizes)
    loss.backward()
    found["output.loss"] = loss.detach()
    found["output.logits"] = out.logits.detach()
    found.update({f"gradient.{key}": value.grad for key, value in module.named_parameters() if value.grad is not None})
    module = copy.deepcopy(program).module()
    torch.manual_seed(7)
    found["losses"] = trained(module, lambda batch: loss_of(module, batch, sizes)[0], batches)
    model = copy.deepcopy(model)  # its parameters are the program's, too
    torch.manual_seed(7)
    difference = (trained(model, lambda batch: model(**batch).loss, batches) - found["losses"]).abs().max().item()
    assert difference < 1e-6, f"{name}: transformers' own losses differ by {difference}"
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {len(program.graph.nodes)} nodes, loss "
          f"{found['losses'][0]:.4f} -> {found['losses'][-1]:.4f}, that of transformers differs by at most {difference:.1e}")
    return program, {f"{name}.{key}": value.detach().contiguous().clone() for key, value in found.items()}


def save_compressed(program, path):
    with tempfile.TemporaryDirectory() as folder:
        stored = pathlib.Path(folder) / path.name
        torch.export.save(program, stored)
        with zipfile.ZipFile(stored) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
            for entry in source.infolist():
                target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry), zipfile.ZIP_DEFLATED)


def write_everything(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        for attention in ("sdpa", "eager"):
            for drop in (0.0, 0.1):
                program, found = record(name, drop, attention)
                path = folder / f"{name}.{attention}.{'dropout' if drop else 'train'}"
                torch.export.save(program, f"{path}.pt2")
                save_file(found, f"{path}.safetensors")
            model, batches, sizes = made(name, 0.1, attention)
            program = exported(model.eval(), batches[0], sizes)
            torch.export.save(program, folder / f"{name}.{attention}.eval.pt2")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        write_everything(pathlib.Path(sys.argv[1]))
        sys.exit()
    DATA.mkdir(exist_ok=True)
    everything = {}
    for name in MODELS:
        program, found = record(name)
        save_compressed(program, DATA / f"{name}.pt2")
        everything.update(found)
    save_file(everything, DATA / "recorded.safetensors")
    (DATA / "recorded.safetensors").chmod(0o644)
