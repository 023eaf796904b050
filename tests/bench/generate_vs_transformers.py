#!/usr/bin/env python3
"""Tokens a second of `zinf generate` and of transformers' generate(), by turns on this machine.

Usage: generate_vs_transformers.py --model DIR [--dtype fp32|bf16] [--threads N] [--rounds N]
       [--prompt TOKENS] [--new TOKENS]

ZINF names the program. DIR has bytes for tokens: zinf init --tokenizer bytes ... Prints the median
of each and their ratio; the time of a round is that of the prompt and of all new tokens. The prompt
of an encoder-decoder is its source. ZINF_BEFORE, where it is set, is measured beside them.
"""
import argparse
import os
import re
import statistics
import subprocess
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

SAID = re.compile(r"in ([\d.]+) s, (\d+) new tokens, ([\d.]+) tokens/s")


def run_zinf(args, prompt, program):
    said = subprocess.run(
        [program, "generate", "--model", args.model, "--prompt", prompt,
         "--max-new-tokens", str(args.new), "--temperature", "0", "--ignore-eos", "--json",
         "--device", "host", "--threads", str(args.threads), "--dtype", args.dtype],
        check=True, capture_output=True, text=True).stderr
    prompt_seconds, tokens, rate = SAID.search(said).groups()
    return float(prompt_seconds) + (int(tokens) - 1) / float(rate)


def run_transformers(args, model, ids):
    begin = time.perf_counter()
    with torch.no_grad():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.new,
                       min_new_tokens=args.new, do_sample=False, pad_token_id=0)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    pairs = AutoConfig.from_pretrained(args.model).is_encoder_decoder
    kind = AutoModelForSeq2SeqLM if pairs else AutoModelForCausalLM
    model = kind.from_pretrained(args.model, dtype=dtype).eval()
    prompt = ("The quick brown fox jumps over the lazy dog. " * args.prompt)[:args.prompt]
    ids = torch.tensor([[*prompt.encode(), *([model.config.eos_token_id] if pairs else [])]])
    run_transformers(args, model, ids)
    ours, theirs, before = [], [], []
    for _ in range(args.rounds):
        ours.append(run_zinf(args, prompt, os.environ.get("ZINF", "zinf")))
        theirs.append(run_transformers(args, model, ids))
        if "ZINF_BEFORE" in os.environ:
            before.append(run_zinf(args, prompt, os.environ["ZINF_BEFORE"]))
    a, b = args.new / statistics.median(ours), args.new / statistics.median(theirs)
    print(f"{args.dtype}: zinf {a:.1f} tokens/s, transformers {b:.1f} tokens/s: {a / b:.2f} times; "
          f"best {args.new / min(ours):.1f} and {args.new / min(theirs):.1f}")
    if before:
        print(f"before: {args.new / statistics.median(before):.1f} tokens/s, "
              f"best {args.new / min(before):.1f}")


if __name__ == "__main__":
    main()
