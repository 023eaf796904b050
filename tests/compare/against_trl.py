#!/usr/bin/env python3
"""Trains a small LLaMA by TRL's trainers and by `zinf train`, and compares the losses of each step.

    against_trl.py ZINF [LOSS...]      (with torch, transformers, trl, datasets)

The rows are texts, in their order; the tokenizer puts <s> in front of texts. SGD with a constant rate
(AdamW turns the sign of a gradient that is all but 0 into a step), in fp32, the whole model trained;
three steps of two micro-batches. Prints the worst relative difference of each loss. Label smoothing
is not DPO's there: TRL 1.16 takes it for SimPO. Scores are learned without accumulation, for which
RewardTrainer adds gradients up where the others take their mean.
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
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM,  # noqa: E402
                          LlamaForSequenceClassification, PreTrainedTokenizerFast)
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402
from trl.experimental.orpo import ORPOConfig, ORPOTrainer  # noqa: E402

MICRO, ACCUMULATED, STEPS, LENGTH, RATE = 3, 2, 3, 48, 2e-2
WORDS = ["the", " answer", "ing", " is", " 42", "\n", "unhappi", "ness", " a", "b", "'s", "...", " The", " don't", "1,000"]
# name: task, zinf's own keys, TRL's trainer and configuration
LOSSES = {
    "sft": ("causal-lm", {}, SFTTrainer, SFTConfig, {}),
    "dpo": ("preference", {"preference_beta": 0.3}, DPOTrainer, DPOConfig, {"beta": 0.3}),
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


def accumulated(name):
    return 1 if name == "reward" else ACCUMULATED


def words(rng, least, most):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def rows_of(name):
    rng, rows = random.Random(7), []
    for i in range(MICRO * ACCUMULATED * STEPS):
        prompt, chosen, rejected = words(rng, 1, 6), words(rng, 1, 8), words(rng, 2, 9)
        if name == "sft":
            rows.append({"prompt": prompt, "completion": chosen})
        elif name == "kto":
            rows.append({"prompt": prompt, "completion": chosen, "label": i % 3 > 0})
        else:
            rows.append({"prompt": prompt, "chosen": chosen + "!", "rejected": rejected})
    return rows


def make_model(folder, scores):
    file = os.path.join(HERE, "..", "fixtures", "tokenizer_kinds", "llama2.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, bos_token="<s>", eos_token="</s>", pad_token="<unk>")
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
                         bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, initializer_range=0.2,
                         **({"num_labels": 1} if scores else {}))
    (LlamaForSequenceClassification if scores else LlamaForCausalLM)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def by_trl(name, folder, tokenizer, rows, out):
    task, _, trainer, config, options = LOSSES[name]
    kind = AutoModelForSequenceClassification if task == "reward" else AutoModelForCausalLM
    args = config(output_dir=out, per_device_train_batch_size=MICRO, gradient_accumulation_steps=accumulated(name), max_steps=STEPS,
                  learning_rate=RATE, lr_scheduler_type="constant", logging_steps=1, report_to=[], use_cpu=True, bf16=False,
                  max_length=LENGTH, train_sampling_strategy="sequential", max_grad_norm=1e9, gradient_checkpointing=False,
                  logging_nan_inf_filter=False, optim="sgd", disable_tqdm=True, weight_decay=0.0, **options)
    more = {"ref_model": kind.from_pretrained(folder)} if name in ("dpo", "ipo", "kto") else {}
    run = trainer(kind.from_pretrained(folder), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **more)
    told = []  # Trainer rounds what it logs: the sums are taken where the loss is made
    compute = run.compute_loss

    def compute_loss(*a, **k):
        loss = compute(*a, **k)
        told.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
        return loss
    run.compute_loss = compute_loss
    run.train()
    n = accumulated(name)
    sums = [sum(told[i:i + n]) for i in range(0, len(told), n)]
    # The loss of tokens comes divided by those of the step, losses of pairs are means of micro-batches.
    return sums if name == "sft" else [s / n for s in sums]


def by_zinf(zinf, name, folder, rows, out):
    task, keys, *_ = LOSSES[name]
    data, config = os.path.join(out, "rows.jsonl"), os.path.join(out, "zinf.json")
    with open(data, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    with open(config, "w") as f:
        json.dump({"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": RATE, "weight_decay": 0.0}}, "zinf": keys}, f)
    run = os.path.join(out, "run")
    subprocess.run([zinf, "train", "--model", folder, "--data", data, "--config", config, "--task", task, "--micro-batch", str(MICRO),
                    "--accumulate", str(accumulated(name)), "--steps", str(STEPS), "--seq-len", str(LENGTH), "--no-shuffle", "--dropout", "0",
                    "--lr-scheduler", "constant", "--threads", "1", "--progress", "none", "--no-final-checkpoint", "--output", run],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "log.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [line["loss"] for line in lines if "loss" in line and "step" in line][:STEPS]


def main():
    zinf, names = sys.argv[1], sys.argv[2:] or list(LOSSES)
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            folder = os.path.join(work, "model")
            tokenizer = make_model(folder, LOSSES[name][0] == "reward")
            rows = rows_of(name)
            theirs = by_trl(name, folder, tokenizer, rows, os.path.join(work, "trl"))
            ours = by_zinf(zinf, name, folder, rows, work)
            worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs)) if len(ours) == len(theirs) == STEPS else math.inf
            print(f"{name}: {worst:.1e}   zinf {ours}   TRL {theirs}", flush=True)
            bad += not worst < 1e-5
    sys.exit(bad > 0)


main()
