#!/usr/bin/env python3
"""What training takes with each optimizer, as `zinf estimate` says: a table in Markdown for GPT-2 XL and
models of 7, 13 and 70 billion parameters on a card of 24 GB, 64 GB of RAM and one drive; 32,768 tokens
a step, bf16. Nothing is trained, no weights are needed.

State is the room for masters' other halves and moments: where a step may be taken back, or outlives the
process, that is two generations, twice what the optimizer keeps. Times count the products that optimizers of
whole matrices make on the CPU, by a rate for each of its threads (zinf-estimate(1)); the last column says how
many these are.

usage: optimizers.py [ZINF]
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HALF = {"enabled": True, "bf16_optimizer_states": True, "bf16_master_weights_and_grads": True}
# Name, optimizer, precision, zinf.pack.
KINDS = [
    ("AdamW", "AdamW", {"enabled": True}, "off"),
    ("AdamW, packed", "AdamW", {"enabled": True}, "all"),
    ("AdamW, bf16 moments", "AdamW", HALF, "off"),
    ("AdamW8bit", "AdamW8bit", {"enabled": True}, "off"),
    ("Muon", "Muon", {"enabled": True}, "off"),
    ("APOLLO, rank 256", "APOLLO", {"enabled": True}, "off"),
]


def llama(hidden, inner, layers, heads, kv):
    return {"model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"}


MODELS = {
    "XL": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024,
           "vocab_size": 50257, "activation_function": "gelu_new"},
    "7B": llama(4096, 11008, 32, 32, 32),
    "13B": llama(5120, 13824, 40, 40, 40),
    "70B": llama(8192, 28672, 80, 64, 8),
}


def estimate(zinf, folder, model, kind, *more):
    place = {"device": "nvme", "nvme_path": "/tmp"}
    (folder / "config.json").write_text(json.dumps(model))
    config = folder / "training.json"
    config.write_text(json.dumps({
        "bf16": kind[2], "optimizer": {"type": kind[1]}, "zinf": {"pack": kind[3]},
        "zero_optimization": {"stage": 3, "offload_param": place, "offload_optimizer": place}}))
    command = [zinf, "estimate", "--model", folder, "--config", config, "--machine",
               "4090,ram=64G,nvme=7/6", "--seq-len", "1024", "--micro-batch", "4", "--accumulate", "8"]
    return subprocess.run([*map(str, command), *more], check=True, capture_output=True, text=True).stdout


def state_bytes(text):
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    rows = re.findall(r"^  (?:device|host|drive) +optimizer state[^\n]*?([0-9.]+) ([KMGT]iB)", text, re.M)
    return sum(float(number) * units[unit] for number, unit in rows)


def main():
    zinf = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "./zinf").resolve())
    print("| model | optimizer | room for state, bytes a parameter | drive, GB a step | step, s | steps a day | "
          "600 TBW last, days | CPU products, TFLOP |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for name, model in MODELS.items():
            for kind in KINDS:
                found = json.loads(estimate(zinf, pathlib.Path(work), model, kind, "--json"))
                text = estimate(zinf, pathlib.Path(work), model, kind)
                lanes, step = found["lane_bytes"], found["step_seconds"]
                written = found["written_per_day"]
                flops = found.get("update_flops", 0) / 1e12
                cells = [name, kind[0], f"{state_bytes(text) / found['parameters']:.1f}",
                         f"{(lanes['read'] + lanes['write']) / 1e9:.0f}", f"{step:.1f}",
                         f"{86400 / step:.0f}", f"{600e12 / written:.1f}" if written else "-",
                         f"{flops:.1f}" if flops else "-"]
                print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
