#!/usr/bin/env python3
"""Compares zinf's samples of gdGPT's five types with those of its own code.

    against_gdgpt.py BUILD DATASETS_PY [--rows N]

DATASETS_PY is datasets.py of github.com/CoinCheung/gdGPT. N (1000) random rows of all types, some
longer than the sequence, with a tokenizer that adds a space to every part and with one that does
not: ids and labels.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import types

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path[0:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True

from against_chat import make_folder, text  # noqa: E402


def load(path):
    """Its module; what writes a call there is Python's own repr of the arguments."""
    calls = types.ModuleType("astunparse")
    calls.unparse = lambda call: "%s(%s)" % (call.func.id, ", ".join("%s=%r" % (k.arg, k.value.value) for k in call.keywords))
    sys.modules["astunparse"] = calls
    module = types.ModuleType("gdgpt_datasets")
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), module.__dict__)
    return module


def value(rng, depth=0):
    kind = rng.randrange(8 if depth < 2 else 6)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {"k%d" % i: value(rng, depth + 1) for i in range(rng.randrange(3))}
    return [text(rng, []), rng.randrange(-99, 1000), rng.choice([0.5, -1.25, 1e-5, 2.0, 1e20, 123456.789]), True, None, "it's \"so\"\\\n"][kind]


def rounds(rng, tools):
    out = []
    for _ in range(rng.randint(1, 3)):
        out += [["ask", text(rng, [])] for _ in range(rng.randint(1, 2))]
        if tools and rng.random() < 0.5:
            actions = [{"inner_thought": text(rng, []), "api_name": "find", "api_param": {"a%d" % i: value(rng) for i in range(rng.randrange(3))},
                        "api_res": rng.choice([text(rng, []), value(rng)])} for _ in range(rng.randint(1, 2))]
            out.append(["ans-api", {"actions": actions, "ans": text(rng, [])}])
        else:
            out.append(["ans", text(rng, [])])
    return out


def row(rng):
    kind = rng.choice(["pretrain", "instruct", "conversation", "conver_has_api", "ref_qa"])
    out = {"type": kind}
    if kind == "pretrain":
        out["text"] = "two words " + text(rng, [])
    elif kind == "instruct":
        out.update(instruct=text(rng, []), output=text(rng, []))
        if rng.random() < 0.7:
            out["input"] = rng.choice([text(rng, []), " \n", ""])
    else:
        out["rounds"] = rounds(rng, kind == "conver_has_api")
    if kind == "conver_has_api":
        out["api_desc"] = rng.choice([text(rng, []), value(rng), {"name": "find", "parameters": value(rng)}])
    if kind == "ref_qa":
        out["reference"] = text(rng, [])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("datasets")
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    module = load(options.datasets)
    bad = 0
    for kind in "qwen2", "llama2":
        rng = random.Random(3)
        rows = [row(rng) for _ in range(options.rows)]
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_folder(folder, kind, [], False)
            tokenizer.pad_token = tokenizer.eos_token
            with open(os.path.join(folder, "config.json"), "w") as f:
                json.dump({"model_type": "gpt2", "vocab_size": len(tokenizer) + 8, "n_positions": 512, "n_embd": 8, "n_layer": 1, "n_head": 1}, f)
            path = os.path.join(folder, "rows.json")
            with open(path, "w") as f:
                json.dump(rows, f, ensure_ascii=False, indent=1)
            command = [os.path.join(options.build, "zinf"), "data", "--model", folder, "--data", path, "--seq-len", "200", "--samples", str(len(rows)), "--json"]
            first = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["first"]
        assert len(first) == len(rows), (len(first), len(rows))
        for one, given in zip(first, rows):
            inputs, labels = module.get_sample_from_jobj(tokenizer, given, 200)
            n = int(inputs[:, 1].sum())
            wanted = inputs[:n, 0].tolist(), [int(label != -100) for label in labels[1:n].tolist()]
            if (one["ids"], one["counts"][1:]) != wanted:
                bad += 1
                if bad < 3:
                    print(json.dumps(given, ensure_ascii=False), "\n  wanted", wanted, "\n  got   ", one["ids"], one["counts"][1:])
        print("%s: %d of %d differ" % (kind, bad, len(rows)))
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
