#!/usr/bin/env python3
"""Trains a small LLaMA by TRL's trainers and by `zinf train`, and compares the losses of each step.

    against_trl.py ZINF [LOSS...]           (with torch, transformers, trl, datasets)
    against_trl.py --write ZINF [LOSS...]   and writes tests/fixtures/trl, which tests/cli/trl_test.sh trains

The rows are texts, in their order; four kinds of tokenizers: one that puts <s> in front as LLaMA's
does, Gemma's, one without a begin as Qwen's, and GPT-2's, whose begin is its end. Some answers merge
with the end of their prompt, some rows are cut. The weights are those that `zinf init` makes. SGD
with a constant rate (AdamW turns the sign of a gradient that is all but 0 into a step), in fp32, the
whole model trained; three steps of two micro-batches. Prints the worst relative difference of each
loss. TRL 1.16's loss of pairs does not smooth; of one pair, which there is nothing to sort with, its
"aot" is DPO's with smoothing: micro-batches of one. Scores are learned without accumulation, for
which RewardTrainer adds gradients up where the others take their mean; it drops pairs that are too long.
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast)  # noqa: E402
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOConfig, ORPOTrainer  # noqa: E402

MICRO, ACCUMULATED, STEPS, LENGTH, RATE = 3, 2, 3, 40, 0.3
FIXTURES = os.path.join(HERE, "..", "fixtures")
OUT = os.path.join(FIXTURES, "trl")
# name: file of tokenizer_kinds, begin, end, what fills
TOKENIZERS = {
    "llama": ("llama2", "<s>", "</s>", "<unk>"),
    "gemma": ("gemma", "<s>", "</s>", "<unk>"),
    "qwen": ("qwen2", None, "<|endoftext|>", "<|endoftext|>"),
    "gpt2": ("qwen2", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
}
WORDS = ["the", " answer", "ing", " is", " 42", "\n", "unhappi", "ness", " a", "b", "'s", "...", " The", " don't", "1,000"]
# name: task, zinf's own keys, TRL's trainer and configuration
LOSSES = {
    "sft": ("causal-lm", {}, SFTTrainer, SFTConfig, {}),
    "dpo": ("preference", {"preference_beta": 0.3}, DPOTrainer, DPOConfig, {"beta": 0.3}),
    "cdpo": ("preference", {"preference_beta": 0.3, "label_smoothing": 0.1}, DPOTrainer, DPOConfig,
             {"beta": 0.3, "loss_type": "aot", "label_smoothing": 0.1}),
    "ipo": ("preference", {"preference": "ipo", "preference_beta": 0.3}, DPOTrainer, DPOConfig, {"beta": 0.3, "loss_type": "ipo"}),
    "orpo": ("preference", {"preference": "orpo", "preference_beta": 0.2}, ORPOTrainer, ORPOConfig, {"beta": 0.2}),
    "simpo": ("preference", {"preference": "simpo", "preference_beta": 2.0, "preference_margin": 0.5}, CPOTrainer, CPOConfig,
              {"beta": 2.0, "loss_type": "simpo", "simpo_gamma": 0.5, "cpo_alpha": 0.0}),
    "csimpo": ("preference", {"preference": "simpo", "preference_beta": 2.0, "preference_margin": 0.5, "label_smoothing": 0.1},
               CPOTrainer, CPOConfig, {"beta": 2.0, "loss_type": "simpo", "simpo_gamma": 0.5, "cpo_alpha": 0.0, "label_smoothing": 0.1}),
    "kto": ("preference", {"preference": "kto", "preference_beta": 0.3, "desirable_weight": 1.5}, KTOTrainer, KTOConfig,
            {"beta": 0.3, "desirable_weight": 1.5}),
    "reward": ("reward", {"center_rewards_coefficient": 0.01}, RewardTrainer, RewardConfig, {"center_rewards_coefficient": 0.01}),
}


def batches(name):
    """Rows at once, and how many times."""
    return (1, MICRO * ACCUMULATED) if name == "cdpo" else (MICRO, 1 if name == "reward" else ACCUMULATED)


def cut_of(name):
    return "drop" if name == "reward" else "end"


def words(rng, least, most):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def rows_of(name):
    kind = name if name in ("sft", "kto") else "pairs"
    rng, rows = random.Random(7), []
    for i in range(MICRO * ACCUMULATED * STEPS):
        prompt, chosen, rejected = words(rng, 1, 6), words(rng, 1, 8), words(rng, 2, 9)
        if i % 5 == 1:  # an answer, or one of two, that merges with the end of the prompt
            prompt, chosen, rejected = prompt + " answer", "ing is 42", " is 42"
        if i % 7 == 3:  # no room for all of it
            chosen += words(rng, 40, 50)
        if kind == "sft":
            rows.append({"prompt": prompt, "completion": chosen})
        elif kind == "kto":
            rows.append({"prompt": prompt, "completion": chosen, "label": i % 3 > 0})
        else:
            rows.append({"prompt": prompt, "chosen": chosen + "!", "rejected": rejected})
    return kind, rows


def run_zinf(zinf, *words):
    subprocess.run([zinf, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def options_of(name):
    """Of zinf train: what trl_test.sh gives too, from losses.txt."""
    task, keys, *_ = LOSSES[name]
    micro, accumulated = batches(name)
    config = {"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": RATE, "weight_decay": 0.0}}, "zinf": keys}
    return task, micro, accumulated, config


COMMON = ["--seq-len", str(LENGTH), "--no-shuffle", "--dropout", "0", "--lr-scheduler", "constant", "--threads", "1",
          "--progress", "none", "--no-final-checkpoint"]


def make_model(zinf, kind, folder, work, scores):
    """By zinf, head of scores included, so that the test needs no weights."""
    file, begin, end, pad = TOKENIZERS[kind]
    tokenizer = os.path.join(work, "tokenizer")
    os.mkdir(tokenizer)
    with open(os.path.join(FIXTURES, "tokenizer_kinds", file + ".json")) as f, open(os.path.join(tokenizer, "tokenizer.json"), "w") as out:
        out.write(f.read())
    with open(os.path.join(OUT, kind + ".json")) as f, open(os.path.join(tokenizer, "tokenizer_config.json"), "w") as out:
        out.write(f.read())
    run_zinf(zinf, "init", "--arch", "llama", "--size", "7b", "--layers", "2", "--hidden", "32", "--heads", "4", "--context", "128",
             "--seed", "3", "--tokenizer", tokenizer, "--output", folder)
    if scores:  # a step without a rate: the new head
        data, config = os.path.join(work, "one.jsonl"), os.path.join(work, "still.json")
        with open(data, "w") as f:
            f.write(json.dumps({"prompt": "a", "chosen": "b", "rejected": "the"}) + "\n")
        with open(config, "w") as f:
            json.dump({"optimizer": {"type": "SGD", "params": {"lr": 0.0}}}, f)
        run_zinf(zinf, "train", "--model", folder, "--data", data, "--config", config, "--task", "reward", "--micro-batch", "1",
                 "--steps", "1", *COMMON, "--output", os.path.join(work, "headed"))
        folder = os.path.join(work, "headed", "model")
    fast = PreTrainedTokenizerFast(tokenizer_file=os.path.join(tokenizer, "tokenizer.json"), bos_token=begin, eos_token=end, pad_token=pad)
    return fast, folder


def load(cls, folder, tokenizer):
    model = cls.from_pretrained(folder, dtype=torch.float32, attention_dropout=0.0)
    model.config.pad_token_id = tokenizer.pad_token_id
    return model


def by_trl(name, folder, tokenizer, rows, out):
    task, _, trainer, config, options = LOSSES[name]
    micro, n = batches(name)
    kind = AutoModelForSequenceClassification if task == "reward" else AutoModelForCausalLM
    args = config(output_dir=out, per_device_train_batch_size=micro, gradient_accumulation_steps=n, max_steps=STEPS,
                  learning_rate=RATE, lr_scheduler_type="constant", logging_steps=1, report_to=[], use_cpu=True, bf16=False,
                  max_length=LENGTH, train_sampling_strategy="sequential", max_grad_norm=1e9, gradient_checkpointing=False,
                  logging_nan_inf_filter=False, optim="sgd", disable_tqdm=True, weight_decay=0.0, **options)
    more = {"ref_model": load(kind, folder, tokenizer)} if name in ("dpo", "cdpo", "ipo", "kto") else {}
    run = trainer(load(kind, folder, tokenizer), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **more)
    told = []  # Trainer rounds what it logs: the sums are taken where the loss is made
    compute = run.compute_loss

    def compute_loss(*a, **k):
        loss = compute(*a, **k)
        told.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
        return loss
    run.compute_loss = compute_loss
    run.train()
    sums = [sum(told[i:i + n]) for i in range(0, len(told), n)]
    # The loss of tokens comes divided by those of the step, losses of pairs are means of micro-batches.
    return sums if name == "sft" else [s / n for s in sums]


def by_zinf(zinf, name, folder, rows, out):
    task, micro, accumulated, keys = options_of(name)
    data, config = os.path.join(out, "rows.jsonl"), os.path.join(out, "zinf.json")
    with open(data, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    with open(config, "w") as f:
        json.dump(keys, f)
    run = os.path.join(out, "run")
    run_zinf(zinf, "train", "--model", folder, "--data", data, "--config", config, "--task", task, "--micro-batch", str(micro),
             "--accumulate", str(accumulated), "--steps", str(STEPS), *COMMON, "--truncate", cut_of(name), "--output", run)
    with open(os.path.join(run, "log.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [line["loss"] for line in lines if "loss" in line and "step" in line][:STEPS]


def write_begin(names):
    os.makedirs(OUT, exist_ok=True)
    for kind, (_, begin, end, pad) in TOKENIZERS.items():
        with open(os.path.join(OUT, kind + ".json"), "w") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": end, "pad_token": pad}, f)
            f.write("\n")
    for name in names:
        kind, rows = rows_of(name)
        with open(os.path.join(OUT, kind + ".jsonl"), "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        with open(os.path.join(OUT, name + ".config.json"), "w") as f:
            json.dump(options_of(name)[3], f)
            f.write("\n")


def compare(zinf, kind, name, out):
    data, rows = rows_of(name)
    with tempfile.TemporaryDirectory() as work:
        tokenizer, folder = make_model(zinf, kind, os.path.join(work, "model"), work, LOSSES[name][0] == "reward")
        theirs = by_trl(name, folder, tokenizer, rows, os.path.join(work, "trl"))
        ours = by_zinf(zinf, name, folder, rows, work)
    worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs)) if len(ours) == len(theirs) == STEPS else math.inf
    print(f"{kind} {name}: {worst:.1e}   zinf {ours}   TRL {theirs}", flush=True)
    if out:
        task, micro, accumulated, _ = options_of(name)
        print(kind, TOKENIZERS[kind][0], name, task, data, micro, accumulated, cut_of(name), *(f"{x:.9g}" for x in theirs), file=out)
    return worst < 1e-5


def main():
    words = sys.argv[1:]
    writes = words[0] == "--write"
    zinf, names = words[writes], words[writes + 1:] or list(LOSSES)
    write_begin(names if writes else [])
    bad = 0
    with open(os.path.join(OUT, "losses.txt"), "w") if writes else open(os.devnull, "w") as out:
        for kind in TOKENIZERS:
            for name in names:
                bad += not compare(os.path.abspath(zinf), kind, name, out)
    sys.exit(bad > 0)


main()
