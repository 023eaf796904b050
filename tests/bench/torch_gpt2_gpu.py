#!/usr/bin/env python3
"""PyTorch's speed on GPT-2 training steps on the GPU, beside tests/bench/gpu.sh.

A GPT-2 of the given config.json in bf16 autocast over fp32 masters: scaled-dot-product attention,
cross-entropy over the whole vocabulary, gradient clipping, fused AdamW, random tokens. With
--compile the model is compiled. Written out here, since the GPU machine need not have transformers.
A JSON object in a line goes to standard output after each timed step, so that one who is killed has
said what was found: tokens a second, median of the steps so far. The last line counts.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, hidden // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden = c["n_embd"]
        self.tokens = nn.Embedding(c["vocab_size"], hidden)
        self.positions = nn.Embedding(c["n_positions"], hidden)
        self.blocks = nn.ModuleList(Block(hidden, c["n_head"]) for _ in range(c["n_layer"]))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets, checkpoint):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if checkpoint \
                else block(x)
        logits = self.norm(x) @ self.tokens.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def measure(args, config, facts, micro, accumulate):
    model = Model(config).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(model) if args.compile else model
    seconds = []
    for step in range(args.warmup + args.steps):
        wait(args.device)
        start = time.perf_counter()
        for _ in range(accumulate):
            ids = torch.randint(config["vocab_size"], (micro, args.seq_len + 1),
                                device=args.device)
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = forward(ids[:, :-1], ids[:, 1:].contiguous(), args.checkpoint)
            (loss / accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(args.device)
        if step < args.warmup:
            continue
        seconds.append(time.perf_counter() - start)
        print(json.dumps({
            **facts, "tokens_per_second":
            micro * accumulate * args.seq_len / statistics.median(seconds),
            "seconds": seconds, "micro_batch": micro, "accumulate": accumulate,
            "peak_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
            "loss": loss.item()}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True, help="config.json of a GPT-2")
    p.add_argument("--seq-len", type=int, default=1024)
    p.add_argument("--micro-batch", type=int, default=16)
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--device", default="cuda", help="cpu: a trial of this script")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--checkpoint", action="store_true", help="recompute activations")
    args = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(1)
    with open(args.model) as file:
        config = json.load(file)
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else "none"
    facts = {"torch": torch.__version__, "gpu": gpu, "compile": args.compile}
    micro, accumulate = args.micro_batch, args.accumulate
    while True:  # the largest micro-batch that fits
        try:
            measure(args, config, facts, micro, accumulate)
            break
        except torch.cuda.OutOfMemoryError:
            if micro == 1:
                raise
            micro, accumulate = micro // 2, accumulate * 2
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
