#!/usr/bin/env python3
"""The setting of nanogpt_shakespeare.sh in PyTorch: which validation loss 2000 steps reach.

Hugging Face's GPT-2 on the bytes of the text, first 90 % for training, last 10 % for validation.
`--sampling windows` visits disjoint windows, shuffled anew in each epoch, as `zinf train` does;
`--sampling offsets` draws windows at random offsets, as nanoGPT does. Prints one JSON object.
"""
import argparse
import json
import math
import sys
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

T, BATCH, VOCAB = 64, 12, 257
WARMUP, LR, MIN_RATIO, CLIP = 100, 1e-3, 0.1, 1.0


def learning_rate(step, steps):
    """DeepSpeed's WarmupCosineLR, linear warm-up: the rate of optimizer step `step` (from 0)."""
    t = step - 1
    if t < WARMUP:
        return LR * max(0, t) / WARMUP
    p = min(1.0, (t - WARMUP + 1) / (steps - WARMUP))
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * (1 + math.cos(math.pi * p)) / 2)


def starts_of(ids, sampling, rng):
    """Endless stream of first positions of training windows."""
    while True:
        if sampling == "offsets":
            yield int(rng.integers(len(ids) - T))
        else:
            yield from rng.permutation((len(ids) - 1) // T) * T


def take(ids, starts):
    rows = torch.from_numpy(np.stack([ids[s:s + T + 1] for s in starts]))
    return rows[:, :-1], rows[:, 1:]


def batch_loss(model, rows):
    inputs, targets = rows
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    return cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


@torch.no_grad()
def validation_loss(model, ids):
    """Mean over every token of every disjoint window."""
    starts = np.arange((len(ids) - 1) // T) * T
    chunks = [starts[i:i + 128] for i in range(0, len(starts), 128)]
    return sum(batch_loss(model, take(ids, c)).item() * len(c) for c in chunks) / len(starts)


def build(dtype):
    config = GPT2Config(n_layer=4, n_embd=128, n_head=4, vocab_size=VOCAB, n_positions=T,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1)
    model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.99), foreach=True)
    return model.train(), optimizer, torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True)
    p.add_argument("--sampling", choices=["windows", "offsets"], default="windows")
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: by autocast")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1337)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    ids = np.fromfile(args.data, np.uint8).astype(np.int64)
    cut = len(ids) * 9 // 10
    train, validation = ids[:cut], ids[cut:]
    model, optimizer, autocast = build(args.dtype)
    starts = starts_of(train, args.sampling, np.random.default_rng(args.seed))
    began = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps)
        with autocast:
            loss = batch_loss(model, take(train, [next(starts) for _ in range(BATCH)]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 250 == 0:
            print(f"step {step} loss {loss.item():.4f}", file=sys.stderr)
    seconds = time.perf_counter() - began
    with autocast:
        final = validation_loss(model.eval(), validation)
    json.dump({"sampling": args.sampling, "dtype": args.dtype, "steps": args.steps,
               "seed": args.seed, "validation_loss": round(final, 4),
               "last_training_loss": round(loss.item(), 4), "seconds": round(seconds, 1)},
              sys.stdout)
    print()


if __name__ == "__main__":
    main()
