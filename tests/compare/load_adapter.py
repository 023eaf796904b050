#!/usr/bin/env python3
"""Loads an adapter that zinf wrote with PEFT, and the model that zinf merged of it.

Every tensor of the file must be one of the adapter's, bit for bit, unless it is of one expert,
which PEFT stacks; PEFT's adapted model, its own merge and zinf's must give the same logits, and the
two merges the same weights.
"""
import argparse
import re
import warnings

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.float().eval()


def file_name(name):
    """Of a parameter, in an adapter's file."""
    name = name.replace(".lora_magnitude_vector.default.weight", ".lora_magnitude_vector")
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def distance(a, b):
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("base")
    p.add_argument("adapter")
    p.add_argument("merged", help="zinf export --merge of the adapter")
    args = p.parse_args()
    warnings.filterwarnings("error", message=".*adapter keys.*")  # missing ones
    adapted = PeftModel.from_pretrained(load(args.base), args.adapter).eval()
    have = {file_name(n): q for n, q in adapted.named_parameters() if ".original_module." not in n}
    want = load_file(args.adapter + "/adapter_model.safetensors")
    own = {n for n in have if ".lora_" in n}
    one_by_one = any(re.search(r"\.experts\.\d+\.", n) for n in want)  # PEFT stacks them
    if not one_by_one:
        assert own <= set(want) <= set(have), own - set(want) | set(want) - set(have)
        assert all(torch.equal(have[n], want[n]) for n in want)
    merged = load(args.merged)
    ids = torch.arange(24).reshape(3, 8) % adapted.config.vocab_size
    with torch.no_grad():
        logits = adapted(input_ids=ids).logits
        apart = distance(merged(input_ids=ids).logits, logits)
    theirs = dict(adapted.merge_and_unload().named_parameters())
    weights = max(distance(q, theirs[n]) for n, q in merged.named_parameters())
    print(f"{len(want)} tensors; logits {apart:.1e}, merged weights {weights:.1e} apart")
    assert apart <= 1e-5 and weights <= 1e-6


if __name__ == "__main__":
    main()
