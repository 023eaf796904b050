#!/usr/bin/env python3
"""Folders that zinf trains, as transformers sees them: a few steps of a small model of every family
of encoder-decoders and encoders, then the folder must load without a message (but for those that
transformers has for a folder that it saved itself: of a T5 with a head of its own), and what it makes of
the data must be what `zinf eval` says: the loss of encoder-decoders (1e-5), every logit of
classifiers and every number of regressions (1e-5 of the largest). And the metrics of `zinf eval`
over 500 rows must be those of scikit-learn and scipy (1e-6).

usage: round_trip.py BUILD [FAMILY ...]    needs torch, transformers, scikit-learn, scipy
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers

from folders import Collector

HERE = pathlib.Path(__file__).resolve().parent
PAIRS = ["t5", "t5-flan", "bart", "blenderbot"]
CLASSIFIERS = ["bert", "roberta", "deberta-v2"]
SIZES = {"t5": "v1-small", "t5-flan": "small", "blenderbot": "400m-distill",
         "deberta-v2": "v3-small"}
bad = 0


def check(what, value, bound):
    global bad
    fine = value <= bound
    bad += not fine
    print(f"{'ok  ' if fine else 'BAD '} {what}: {value:.3g} (at most {bound:g})", flush=True)


def zinf(build, *args):
    done = subprocess.run([os.path.join(build, "zinf"), *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"zinf {' '.join(map(str, args))}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.startswith("{") else None


def load(kind, folder):
    """The model, and how many things loading complained of that are not transformers' own."""
    model, problems = load_once(kind, folder)
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        own = [p.replace(again, "") for p in load_once(kind, again)[1]]
    problems = [p for p in problems if p.replace(str(folder), "") not in own]
    for problem in problems:
        print(f"     {folder}: {problem}")
    return model, len(problems)


def load_once(kind, folder):
    collector = Collector()
    logger = logger_of()
    logger.addHandler(collector)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                           local_files_only=True, output_loading_info=True)
    logger.removeHandler(collector)
    problems = collector.messages + [str(w.message) for w in caught]
    problems += [f"{k}: {v}" for k, v in info.items() if v]
    return model.eval(), problems


def logger_of():
    import logging
    return logging.getLogger("transformers")


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def words(rng, n):
    return " ".join(rng.choice("anna bought a car and bread on monday not the library".split())
                    for _ in range(n))


def own_tokenizer(family, folder):
    """The example's; RoBERTa has one type of tokens."""
    text = (HERE / "../../examples/classify/tokenizer.json").read_text()
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        text.replace('"type_id": 1', '"type_id": 0') if family == "roberta" else text)
    return folder


def new_model(build, family, folder, tokenizer):
    zinf(build, "init", "--arch", family.split("-flan")[0], "--size", SIZES.get(family, "base"), "--layers", 2,
         "--hidden", 64, "--heads", 4, "--context", 64, "--tokenizer", tokenizer, "--output", folder)
    if family == "roberta":  # its positions begin behind the padding's number, which must be one
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 1}))


def pair(build, family, work):
    rng = random.Random(3)
    rows = [{"source": words(rng, 1 + i % 9), "target": words(rng, 1 + i % 5)} for i in range(24)]
    write_rows(work / "pairs.jsonl", rows)
    new_model(build, family, work / "new", "bytes")
    zinf(build, "train", "--model", work / "new", "--data", work / "pairs.jsonl", "--steps", 5,
         "--micro-batch", 8, "--lr", 1e-3, "--output", work / "out", "--progress", "none", "--overwrite")
    said = zinf(build, "eval", "--model", work / "out/model", "--data", work / "pairs.jsonl")
    model, n = load(transformers.AutoModelForSeq2SeqLM, work / "out/model")
    check(f"{family}: messages of loading", n, 0)
    start, end = model.config.decoder_start_token_id, model.config.eos_token_id
    total, count = 0.0, 0
    for row in rows:
        ids = torch.tensor([list(row["source"].encode()) + [end]])
        labels = torch.tensor([list(row["target"].encode()) + [end]])
        shifted = torch.cat([torch.tensor([[start]]), labels[:, :-1]], dim=1)
        with torch.no_grad():
            loss = model(input_ids=ids, decoder_input_ids=shifted, labels=labels).loss
        total += loss.item() * labels.numel()
        count += labels.numel()
    check(f"{family}: loss", abs(said["loss"] / (total / count) - 1), 1e-5)


def predictions(path, key):
    return np.array([json.loads(line)[key] for line in path.read_text().splitlines()])


def evaluate_in_torch(folder, rows):
    model, n = load(transformers.AutoModelForSequenceClassification, folder)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    logits = []
    for row in rows:
        encoded = tokenizer(row["a"], row["b"], return_tensors="pt", return_token_type_ids=True)
        if getattr(model.config, "type_vocab_size", 2) < 2:
            encoded["token_type_ids"] = torch.zeros_like(encoded["input_ids"])
        with torch.no_grad():
            logits.append(model(**encoded).logits[0].numpy())
    return n, np.array(logits)


def classifier(build, family, work, number):
    from scipy import stats
    from sklearn import metrics
    rng = random.Random(4)
    rows = [{"a": words(rng, 1 + i % 7), "b": words(rng, 1 + i % 4),
             "label": rng.uniform(-1, 2) if number else rng.choice(["no", "perhaps", "yes"])}
            for i in range(500)]
    write_rows(work / "rows.jsonl", rows)
    new_model(build, family, work / "new", own_tokenizer(family, work / "tokenizer"))
    columns = ["--source-column", "a,b"]
    task = "regression" if number else "classification"
    names = ["mse", "pearson", "spearman"] if number else \
        ["accuracy", "f1", "f1_macro", "f1_micro", "matthews"]
    zinf(build, "train", "--model", work / "new", "--task", task, "--new-head", "--data",
         work / "rows.jsonl", *columns, "--steps", 5, "--micro-batch", 16, "--lr", 1e-3, "--output",
         work / "out", "--progress", "none", "--overwrite")
    said = zinf(build, "eval", "--model", work / "out/model", "--data", work / "rows.jsonl", *columns,
                "--micro-batch", 32, "--metric", *names, "--predictions", work / "said.jsonl")
    n, logits = evaluate_in_torch(work / "out/model", rows)
    check(f"{family} {task}: messages of loading", n, 0)
    ours = predictions(work / "said.jsonl", "predicted" if number else "logits").reshape(len(rows), -1)
    check(f"{family} {task}: logits", np.abs(ours - logits).max() / np.abs(logits).max(), 1e-5)
    x, y = (predictions(work / "said.jsonl", key) for key in ("predicted", "reference"))
    if number:
        wanted = {"mse": metrics.mean_squared_error(y, x), "pearson": stats.pearsonr(x, y)[0],
                  "spearman": stats.spearmanr(x, y)[0]}
    else:
        second = sorted(set(y))[1]
        wanted = {"accuracy": metrics.accuracy_score(y, x),
                  "f1": metrics.f1_score(y == second, x == second),
                  "f1_macro": metrics.f1_score(y, x, average="macro"),
                  "f1_micro": metrics.f1_score(y, x, average="micro"),
                  "matthews": metrics.matthews_corrcoef(y, x)}
    for name in names:
        check(f"{family} {task}: {name} of {len(rows)}", abs(said[name] - wanted[name]), 1e-6)


def main():
    build, asked = sys.argv[1], sys.argv[2:]
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    known = subprocess.run([os.path.join(build, "zinf"), "help", "init"], capture_output=True,
                           text=True).stdout.split()
    for family in asked or PAIRS + CLASSIFIERS:
        if not asked and family.split("-flan")[0] not in " ".join(known).replace(",", " ").split():
            continue
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            if family in PAIRS:
                pair(build, family, work)
            else:
                for number in (False, True):
                    (work / str(number)).mkdir()
                    classifier(build, family, work / str(number), number)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
