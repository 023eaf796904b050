#!/usr/bin/env python3
"""PEFT's CPU speed and memory on LoRA steps of GPT-2: the yardstick for `zinf train --lora-rank`.

Forward, backward, clipping and AdamW in fp32 on random tokens and a model folder's weights, scaled
dot-product attention, no dropout. One JSON object goes to standard output: seconds of each timed
step, CPU seconds of the process in them, and its largest resident memory.
"""
import argparse
import json
import os
import resource
import statistics
import time

import peft
import torch
from transformers import AutoModelForCausalLM


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True, help="folder, as of zinf init --arch gpt2")
    p.add_argument("--rank", type=int, default=8)
    p.add_argument("--targets", default="all-linear", help="names with commas, or all-linear")
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--micro-batch", type=int, default=4)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--warmup", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa",
                                                 use_cache=False).float()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.attn_pdrop = 0.0
    targets = args.targets if args.targets == "all-linear" else args.targets.split(",")
    model = peft.get_peft_model(model, peft.LoraConfig(
        task_type="CAUSAL_LM", r=args.rank, lora_alpha=2 * args.rank, target_modules=targets))
    model.train()
    trained = [q for q in model.parameters() if q.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
    vocab = model.config.vocab_size
    torch.manual_seed(1)
    tokens = torch.randint(vocab, (args.micro_batch, args.seq_len + 1))
    inputs, labels = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    seconds, cpu = [], []
    for _ in range(args.warmup + args.steps):
        start, used = time.perf_counter(), time.process_time()
        logits = model(input_ids=inputs).logits
        torch.nn.functional.cross_entropy(logits.view(-1, vocab), labels).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    seconds, cpu = seconds[args.warmup:], cpu[args.warmup:]
    n = args.micro_batch * args.seq_len
    print(json.dumps({
        "trained": sum(q.numel() for q in trained), "tokens": n,
        "tokens_per_second": round(n / statistics.median(seconds), 1),
        "step_seconds_min": round(min(seconds), 3), "cpu_seconds_min": round(min(cpu), 3),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
