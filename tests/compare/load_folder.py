#!/usr/bin/env python3
"""Loads a model folder with transformers and forgives nothing.

Any warning, missing, unexpected or mismatched tensor gives exit status 1. Prints a fingerprint of
the logits on fixed token ids as JSON; with --against, compares them with another folder's.
"""
import argparse
import hashlib
import json
import sys

import torch

import folders


def fixed_logits(folder):
    model, problems = folders.load_model(folder)
    config = model.config
    length = min(getattr(config, "max_position_embeddings", 64), 64)
    ids = torch.arange(length)[None] * 7919 % config.vocab_size
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0].float()
    return model, logits, problems


def describe(folder):
    model, logits, problems = fixed_logits(folder)
    if not torch.isfinite(logits).all():
        problems.append("logits are not finite")
    print(json.dumps({
        "folder": folder, "architecture": type(model).__name__,
        "parameters": model.num_parameters(), "logits": list(logits.shape),
        "mean": float(logits.mean()), "std": float(logits.std()),
        "last": [round(v, 6) for v in logits[-1, :4].tolist()],
        "sha256": hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:16]}))
    for problem in problems:
        print(f"{folder}: {problem}", file=sys.stderr)
    return logits, not problems


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder")
    p.add_argument("--against", metavar="DIR", help="the folder that must give the same logits")
    p.add_argument("--threshold", type=float, default=0.0, help="relative L2 that passes")
    args = p.parse_args()
    logits, good = describe(args.folder)
    if args.against:
        # What the other folder warns of is its own business; its logits are what counts.
        other, _ = describe(args.against)
        if logits.shape != other.shape:
            print("the logits have different shapes", file=sys.stderr)
            return 1
        distance = folders.relative_l2(logits, other)
        print(json.dumps({"relative_l2": distance}))
        good = good and distance <= args.threshold
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
