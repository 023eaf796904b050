#!/usr/bin/env python3
"""Losses of a few steps of a small LLaMA: two processes of PyTorch that share tensors (its DTensor
styles, over gloo), two that are pipeline stages (its 1F1B schedule), and zinf with two seats that do
the same. All see the same windows in the same order.

usage: parallel_torch.py ZINF [FOLDER]     needs torch and transformers; takes about a minute
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaForCausalLM

SEQ, BATCH, STEPS, LR = 16, 8, 10, 2e-3


def windows(tokens, step):
    first = step * BATCH
    rows = [tokens[(first + i) * SEQ:(first + i) * SEQ + SEQ + 1] for i in range(BATCH)]
    both = torch.tensor(numpy.array(rows, dtype=numpy.int64))
    return both[:, :-1], both[:, 1:]


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)


def begin(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)


def shares_tensors(rank, port, folder, out):
    begin(rank, port)
    model = LlamaForCausalLM.from_pretrained(f"{folder}/model", dtype=torch.float32)
    mesh = init_device_mesh("cpu", (2,))
    plan = {f"self_attn.{n}_proj": ColwiseParallel() for n in "qkv"}
    plan |= {"self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(),
             "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    tokens, optimizer, losses = numpy.load(f"{folder}/tokens.npy"), optimizer_of(model), []
    for step in range(STEPS):
        ids, targets = windows(tokens, step)
        loss = loss_of(model(ids, use_cache=False).logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(losses))
    dist.destroy_process_group()


class Part(torch.nn.Module):
    """The first or the second half of a LLaMA of two layers."""

    def __init__(self, whole, rank):
        super().__init__()
        self.rotary = whole.model.rotary_emb
        self.embed = whole.model.embed_tokens if rank == 0 else None
        self.layer = whole.model.layers[rank]
        self.norm, self.head = (whole.model.norm, whole.lm_head) if rank else (None, None)

    def forward(self, x):
        x = self.embed(x) if self.embed is not None else x
        positions = torch.arange(x.shape[1])[None]
        x = self.layer(x, position_embeddings=self.rotary(x, positions), position_ids=positions)
        x = x[0] if isinstance(x, tuple) else x
        return self.head(self.norm(x)) if self.head is not None else x


def is_a_stage(rank, port, folder, out):
    begin(rank, port)
    whole = LlamaForCausalLM.from_pretrained(f"{folder}/model", dtype=torch.float32,
                                             attn_implementation="sdpa")
    part = Part(whole, rank)
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=BATCH, loss_fn=loss_of)
    tokens, optimizer, all_losses = numpy.load(f"{folder}/tokens.npy"), optimizer_of(part), []
    for step in range(STEPS):
        ids, targets = windows(tokens, step)
        losses = []
        if rank == 0:
            schedule.step(ids)
        else:
            schedule.step(target=targets, losses=losses)
            all_losses.append(torch.stack(losses).mean().item())
        optimizer.step()
        optimizer.zero_grad()
    if rank == 1:
        pathlib.Path(out).write_text(json.dumps(all_losses))
    dist.destroy_process_group()


def ours(zinf, folder, name, options):
    config = {"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
              "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": 0}},
              "zinf": {"threads": 1, "dropout": 0}}
    pathlib.Path(f"{folder}/config.json").write_text(json.dumps(config))
    subprocess.run([zinf, "train", "--model", f"{folder}/model", "--data", f"{folder}/tokens.npy",
                    "--seq-len", str(SEQ), "--steps", str(STEPS), "--no-shuffle", "--device", "host",
                    "--progress", "none", "--config", f"{folder}/config.json", "--output",
                    f"{folder}/{name}", *options], check=True, capture_output=True)
    rows = [json.loads(x) for x in pathlib.Path(f"{folder}/{name}/log.jsonl").read_text().split("\n")
            if '"step"' in x]
    return [r["loss"] for r in rows if "loss" in r]


def main():
    zinf = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    subprocess.run([zinf, "init", "--arch", "llama", "--size", "7b", "--layers", "2", "--hidden", "64",
                    "--heads", "4", "--vocab", "257", "--context", "64", "--output",
                    f"{folder}/model"], check=True, capture_output=True)
    tokens = numpy.random.default_rng(1).integers(0, 257, STEPS * BATCH * SEQ + 1)
    numpy.save(f"{folder}/tokens.npy", tokens.astype(numpy.int32))
    port = 20000 + os.getpid() % 10000
    for name, body, options in [
            ("tensor", shares_tensors, ["--seats", "2", "--tensor-parallel", "2"]),
            ("pipeline", is_a_stage, ["--seats", "2", "--pipeline-parallel", "2"])]:
        out = f"{folder}/{name}.json"
        mp.spawn(body, args=(port, folder, out), nprocs=2)
        port += 1
        theirs = json.loads(pathlib.Path(out).read_text())
        mine = ours(zinf, folder, name, options)
        worst = max(abs(a - b) / a for a, b in zip(theirs, mine, strict=True))
        print(f"{name}: PyTorch {theirs[0]:.7f} ... {theirs[-1]:.7f}, zinf {mine[0]:.7f} ... "
              f"{mine[-1]:.7f}, worst difference {worst:.2e}")
        if worst > 1e-5:
            sys.exit(f"{name}: the losses differ by more than 1e-5")


if __name__ == "__main__":
    main()
