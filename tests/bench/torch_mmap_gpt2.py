#!/usr/bin/env python3
"""GPT-2 training with PyTorch alone, everything that lives long in memory-mapped files.

Parameters (bf16), fp32 masters and both moments are shared mappings, so the page cache decides what
stays in RAM. A step: forward, backward with every block recomputed, clipping by the global norm,
and PyTorch's fused AdamW in fp32, one parameter at a time; gradients are bf16 in ordinary memory.
--compute fp32 widens one block at a time, which is faster where the processor has no bf16
instructions. One JSON object goes to standard output.
"""
import argparse
import json
import os
import sys
import threading
import time

import torch
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel


class MemoryWatch(threading.Thread):
    """Peaks of this process in GiB: all resident pages, and those that no file backs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = {}
        self.start()

    def sample(self):
        with open("/proc/self/status", encoding="ascii") as status:
            kib = dict(line.split(":", 1) for line in status if line.startswith(("Rss", "VmHWM")))
        for key, value in kib.items():
            gib = int(value.split()[0]) / 2**20
            self.peak[key] = round(max(self.peak.get(key, 0.0), gib), 2)

    def run(self):
        while True:
            self.sample()
            time.sleep(0.2)


def drive_bytes():
    """Bytes this process made the drive read and write so far."""
    with open("/proc/self/io", encoding="ascii") as io:
        counts = dict(line.split(": ") for line in io)
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--text", required=True, help="trains on its bytes")
    p.add_argument("--folder", required=True, help="where the mapped files go, emptied at the end")
    p.add_argument("--layers", type=int, default=48)
    p.add_argument("--hidden", type=int, default=1600)
    p.add_argument("--heads", type=int, default=25)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--steps", type=int, default=3, help="the first is not counted")
    p.add_argument("--clip", type=float, default=1000.0)
    p.add_argument("--compute", choices=["bf16", "fp32"], default="bf16")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    return p.parse_args()


def mapped(folder, name, dtype, shape):
    count = shape.numel()
    path = os.path.join(folder, f"{name}.{str(dtype)[6:]}")
    tensor = torch.from_file(path, shared=True, size=count, dtype=dtype).view(shape)
    os.unlink(path)  # the mapping keeps it; nothing is left behind however the run ends
    return tensor


class MappedParameter:
    """One parameter's fp32 state, and the optimizer that updates it."""

    def __init__(self, folder, name, parameter):
        self.parameter = parameter
        shape = parameter.shape
        self.master = mapped(folder, name + ".master", torch.float32, shape)
        self.master.copy_(parameter.detach())
        decay = 0.1 if parameter.dim() >= 2 else 0.0
        self.optimizer = torch.optim.AdamW([self.master], lr=1e-5, weight_decay=decay, fused=True)
        self.optimizer.state[self.master] = {
            "step": torch.tensor(0.0),
            "exp_avg": mapped(folder, name + ".m", torch.float32, shape),
            "exp_avg_sq": mapped(folder, name + ".v", torch.float32, shape)}

    def update(self, factor):
        self.master.grad = self.parameter.grad.float().mul_(factor)
        self.parameter.grad = None
        self.optimizer.step()
        self.master.grad = None
        self.parameter.data.copy_(self.master)


def build_model(args):
    """The model without memory of its own: every parameter becomes a mapping, then gets its
    random start; the table is also the head."""
    config = GPT2Config(n_layer=args.layers, n_embd=args.hidden, n_head=args.heads,
                        vocab_size=args.vocab, n_positions=args.context, use_cache=False,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        bos_token_id=args.vocab - 1, eos_token_id=args.vocab - 1)
    with torch.device("meta"):
        model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").train()
    torch.manual_seed(1)
    state = []
    for name, blank in list(model.transformer.named_parameters()):
        values = mapped(args.folder, name, torch.bfloat16, blank.shape)
        if blank.dim() >= 2:
            values.normal_(std=0.02)
        else:
            values.fill_(1.0 if ".ln_" in "." + name and name.endswith("weight") else 0.0)
        module = model.transformer.get_submodule(name.rpartition(".")[0])
        parameter = torch.nn.Parameter(values)
        setattr(module, name.rpartition(".")[2], parameter)
        state.append(MappedParameter(args.folder, name, parameter))
    return model.transformer, state


def run_block(block, dtype, hidden):
    wide = {name: value.to(dtype) for name, value in block.named_parameters()}
    out = torch.func.functional_call(block, wide, (hidden,))
    return out[0] if isinstance(out, tuple) else out


def head_loss(model, dtype, hidden, targets):
    wide = {name: value.to(dtype) for name, value in model.ln_f.named_parameters()}
    hidden = torch.func.functional_call(model.ln_f, wide, (hidden,))
    logits = hidden[0] @ model.wte.weight.to(dtype).t()
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def train_step(model, state, tokens, args):
    dtype = torch.float32 if args.compute == "fp32" else torch.bfloat16
    inputs, targets = tokens[:-1], tokens[1:]
    hidden = model.wte(inputs[None]) + model.wpe(torch.arange(len(inputs))[None])
    hidden = hidden.to(dtype)
    for block in model.h:
        hidden = checkpoint(run_block, block, dtype, hidden, use_reentrant=False)
    loss = head_loss(model, dtype, hidden, targets)
    loss.backward()
    squares = sum(s.parameter.grad.float().square().sum() for s in state)
    norm = float(squares) ** 0.5
    factor = min(1.0, args.clip / (norm + 1e-6))
    for s in state:
        s.update(factor)
    return float(loss.detach()), norm


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    os.makedirs(args.folder, exist_ok=True)
    with open(args.text, "rb") as f:
        text = torch.tensor(list(f.read(args.steps * args.seq_len + 1)), dtype=torch.long)
    watch = MemoryWatch()
    model, state = build_model(args)
    steps = []
    for i in range(args.steps):
        read, written = drive_bytes()
        start = time.perf_counter()
        tokens = text[i * args.seq_len:(i + 1) * args.seq_len + 1]
        loss, norm = train_step(model, state, tokens, args)
        seconds = time.perf_counter() - start
        watch.sample()
        now = drive_bytes()
        steps.append({"seconds": round(seconds, 2), "loss": round(loss, 4), "norm": round(norm, 2),
                      "read_gb": round((now[0] - read) / 1e9, 2),
                      "written_gb": round((now[1] - written) / 1e9, 2)})
        print(f"step {i + 1}: {steps[-1]} {watch.peak}", file=sys.stderr, flush=True)
    counted = [s["seconds"] for s in steps[1:]] or [steps[0]["seconds"]]
    rate = args.seq_len * len(counted) / sum(counted)
    json.dump({"program": f"torch {torch.__version__} mapped files, {args.compute}",
               "parameters": sum(s.master.numel() for s in state), "steps": steps,
               "tokens_per_second": round(rate, 2), "peak_gib": watch.peak}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
