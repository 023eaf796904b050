#!/usr/bin/env python3
"""Compares zinf generate --num-beams with transformers: random small models, prompts and options.

    against_beams.py BUILD [--models N] [--seed N] [--pairs]

BUILD is a build folder. Each of N (50) models is new: a family, sizes and weights at random, over
bytes as tokens; so are its prompt and the options of the search. With --pairs they are
encoder-decoders, and a third of the searches have one beam.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, BartConfig,
                          BlenderbotConfig, BloomConfig, GPT2Config, GPTNeoXConfig, LlamaConfig,
                          MistralConfig, OPTConfig, Qwen2Config, T5Config)

torch.set_num_threads(1)
VOCAB = 257


def draw_pair_config(rng):
    heads, buckets = rng.choice([2, 4]), rng.choice([8, 32])
    ids = dict(vocab_size=VOCAB, bos_token_id=256, eos_token_id=256, pad_token_id=0,
               decoder_start_token_id=rng.choice([0, 256]))
    stacks = dict(ids, d_model=8 * heads, encoder_layers=rng.choice([1, 2]),
                  decoder_layers=rng.choice([1, 2, 3]), encoder_attention_heads=heads,
                  decoder_attention_heads=heads, encoder_ffn_dim=32, decoder_ffn_dim=48,
                  max_position_embeddings=64, forced_eos_token_id=None)
    return rng.choice([
        lambda: T5Config(**ids, d_model=8 * heads, d_kv=rng.choice([6, 8]), d_ff=32,
                         num_layers=rng.choice([1, 2]), num_decoder_layers=rng.choice([1, 2, 3]),
                         num_heads=heads, relative_attention_num_buckets=buckets,
                         relative_attention_max_distance=4 * buckets,
                         feed_forward_proj=rng.choice(["relu", "gated-gelu"])),
        lambda: BartConfig(**stacks, scale_embedding=rng.random() < 0.5),
        lambda: BlenderbotConfig(**stacks, scale_embedding=rng.random() < 0.5),
    ])()


def draw_config(rng):
    layers, heads = rng.choice([1, 2, 3]), rng.choice([2, 4])
    hidden = heads * 8
    sizes = dict(vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers,
                 num_attention_heads=heads, max_position_embeddings=64, bos_token_id=256,
                 eos_token_id=256)
    gated = dict(sizes, intermediate_size=2 * hidden, num_key_value_heads=rng.choice([1, heads]),
                 tie_word_embeddings=rng.random() < 0.5)
    return rng.choice([
        lambda: GPT2Config(vocab_size=VOCAB, n_embd=hidden, n_layer=layers, n_head=heads,
                           n_positions=64, bos_token_id=256, eos_token_id=256),
        lambda: LlamaConfig(**gated),
        lambda: MistralConfig(**dict(gated, sliding_window=9)),
        lambda: Qwen2Config(**gated),
        lambda: GPTNeoXConfig(**dict(sizes, intermediate_size=2 * hidden, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
        lambda: BloomConfig(vocab_size=VOCAB, hidden_size=hidden, n_layer=layers, n_head=heads,
                            bos_token_id=256, eos_token_id=256),
        lambda: OPTConfig(**dict(sizes, ffn_dim=2 * hidden, word_embed_proj_dim=hidden,
                                 pad_token_id=1)),
    ])()


def make_model(rng, folder, pairs):
    config = draw_pair_config(rng) if pairs else draw_config(rng)
    torch.manual_seed(rng.randrange(1 << 30))
    kind = AutoModelForSeq2SeqLM if pairs else AutoModelForCausalLM
    model = kind.from_config(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape) * (0.5 if any(
                    word in name for word in ("emb", "wte", "shared", "relative")) else 1.2 / p.shape[-1] ** 0.5))
    model.save_pretrained(folder)
    path = os.path.join(folder, "generation_config.json")
    if os.path.exists(path):
        os.remove(path)
    return model


def draw_options(rng, pairs):
    beams = rng.choice([2, 3, 4, 6])
    return {
        "num_beams": 1 if pairs and rng.random() < 1 / 3 else beams,
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 1.0, 2.0, -1.0]),
        "early_stopping": rng.choice([False, False, True, "never"]),
        "no_repeat_ngram_size": rng.choice([0, 0, 1, 2, 3]),
        "repetition_penalty": rng.choice([1.0, 1.0, 1.2]),
        "max_new_tokens": rng.choice([3, 10, 24]),
        "eos_token_id": rng.sample(range(VOCAB), rng.choice([1, 1, 2, 8, 40])),
    }


def theirs(model, prompt, options):
    pairs = model.config.is_encoder_decoder
    ids = torch.tensor([[*prompt.encode(), *([256] if pairs else [])]])
    # transformers makes a cache of as many layers as a T5's encoder has
    used = dict(options, use_cache=not pairs)
    if options["num_beams"] == 1:
        del used["length_penalty"], used["early_stopping"]
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             return_dict_in_generate=True, output_scores=True, **used)
    first = 1 if pairs else ids.shape[1]
    new, score = out.sequences[0, first:].tolist(), 0.0
    if options["num_beams"] > 1:
        new = new[:int((out.beam_indices[0] >= 0).sum())]
        score = float(out.sequences_scores[0])
    return (new[:-1] if new and new[-1] in options["eos_token_id"] else new), score


def ours(zinf, folder, prompt, options):
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        json.dump({"eos_token_id": options["eos_token_id"]}, file)
    early = options["early_stopping"]
    searches = [f"--length-penalty={options['length_penalty']}",
                "--early-stopping", early if isinstance(early, str) else str(early).lower()]
    line = [zinf, "generate", "--model", folder, "--device", "host", "--threads", "1", "--json",
            "--prompt", prompt, "--num-beams", str(options["num_beams"]), "--temperature", "0",
            *(searches if options["num_beams"] > 1 else []), "--no-repeat-ngram", str(options["no_repeat_ngram_size"]),
            "--repetition-penalty", str(options["repetition_penalty"]),
            "--max-new-tokens", str(options["max_new_tokens"])]
    done = subprocess.run(line, capture_output=True, check=False)
    if done.returncode:
        sys.exit(" ".join(line) + "\n" + done.stderr.decode())
    return json.loads(done.stdout)["ids"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--pairs", action="store_true")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    same = 0
    for number in range(given.models):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(rng, folder, given.pairs)
            prompt = "".join(chr(rng.randrange(97, 123)) for _ in range(rng.choice([1, 4, 12])))
            options = draw_options(rng, given.pairs)
            wanted, score = theirs(model, prompt, options)
            got = ours(os.path.join(given.build, "zinf"), folder, prompt, options)
            same += got == wanted
            if got != wanted:
                print(f"model {number} ({model.config.model_type}), {prompt!r}, {options}:\n"
                      f"  {got}\n  {wanted}, score {score}")
    print(f"{same} of {given.models} searches have the tokens of transformers")
    return same < given.models


if __name__ == "__main__":
    sys.exit(main())
