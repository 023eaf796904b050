#!/usr/bin/env python3
"""PyTorch's CPU speed on one full training step of GPT-2: the yardstick for `zinf bench step`.

Forward, backward, gradient clipping and AdamW in fp32, or all in bf16 (moments too, no fp32
master), on random tokens and random weights, with eager and with scaled-dot-product attention, and
with the fused and the foreach optimizer. Every variant is timed step by step after a warm-up; the
median counts; the CPU's time, meant for one thread, is the least of all steps. The rate of a plain matrix product
of the model's largest block shape is measured beside it. One JSON object goes to standard output.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--hidden", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--micro-batch", type=int, default=4)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--steps", type=int, default=5, help="timed steps of each variant")
    p.add_argument("--warmup", type=int, default=2, help="steps before the timed ones")
    p.add_argument("--attention", nargs="+", default=["eager", "sdpa"])
    p.add_argument("--optimizer", nargs="+", default=["fused", "foreach"])
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--compile", action="store_true", help="also time torch.compile")
    return p.parse_args()


def build_model(args, attention):
    config = GPT2Config(n_layer=args.layers, n_embd=args.hidden, n_head=args.heads,
                        vocab_size=args.vocab, n_positions=args.context, use_cache=False,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        bos_token_id=args.vocab - 1, eos_token_id=args.vocab - 1)
    torch.manual_seed(1)
    model = GPT2LMHeadModel._from_config(config, attn_implementation=attention)
    return model.to(torch.bfloat16 if args.dtype == "bf16" else torch.float32).train()


def build_optimizer(model, kind):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **{kind: True})


def time_steps(args, attention, kind, compiled):
    """Seconds of each timed step after the warm-up, and of the CPU."""
    gc.collect()
    model = build_model(args, attention)
    optimizer = build_optimizer(model, kind)
    forward = torch.compile(model) if compiled else model
    tokens = torch.randint(args.vocab, (args.micro_batch, args.seq_len + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    seconds, cpu_seconds = [], []
    for _ in range(args.warmup + args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        logits = forward(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, args.vocab), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    return seconds[args.warmup:], cpu_seconds[args.warmup:]


def sgemm_gflops(rows, inner, columns, repeats=30):
    """Best and median rate of torch.mm in fp32."""
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    out = torch.empty(rows, columns)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        seconds.append(time.perf_counter() - start)
    flops = 2e-9 * rows * inner * columns
    return {"shape": [rows, inner, columns], "best": round(flops / min(seconds), 1),
            "median": round(flops / statistics.median(seconds), 1)}


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    tokens = args.micro_batch * args.seq_len
    result = {"torch": torch.__version__, "threads": args.threads,
              "dtype": args.dtype, "load_before": round(os.getloadavg()[0], 2), "seq_len": args.seq_len,
              "micro_batch": args.micro_batch,
              "sgemm_gflops": sgemm_gflops(tokens, args.hidden, 4 * args.hidden), "variants": []}
    for compiled in [False, True] if args.compile else [False]:
        for attention in args.attention:
            for kind in args.optimizer:
                print(f"timing {attention} {kind}{' compiled' if compiled else ''}",
                      file=sys.stderr)
                seconds, cpu_seconds = time_steps(args, attention, kind, compiled)
                median = statistics.median(seconds)
                result["variants"].append({
                    "attention": attention, "optimizer": kind, "compiled": compiled,
                    "step_seconds_median": round(median, 4),
                    "step_seconds_min": round(min(seconds), 4),
                    "step_cpu_seconds_min": round(min(cpu_seconds), 4),
                    "tokens_per_second": round(tokens / median, 1),
                    "tokens_per_second_best_step": round(tokens / min(seconds), 1)})
    result["best"] = max(result["variants"], key=lambda v: v["tokens_per_second"])
    result["load_after"] = round(os.getloadavg()[0], 2)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
