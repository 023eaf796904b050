#!/usr/bin/env python3
"""GPT-2 training with DeepSpeed ZeRO-3 on its CPU accelerator, offloading to a drive or to RAM.

bf16 parameters, AdamW with fp32 master and moments (DeepSpeedCPUAdam), clipping, every block
recomputed in backward: what zinf's configuration of the same names asks for. One process of world
size 1 over gloo, no launcher. Needs a compiler, ninja and the headers of libaio, with which
DeepSpeed builds its extensions at the first run. One JSON object goes to standard output.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}.items():
    os.environ.setdefault(name, value)
# The extensions are built with the ninja beside this python.
os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]

import torch
import deepspeed
from transformers import GPT2Config, GPT2LMHeadModel

from torch_mmap_gpt2 import MemoryWatch, drive_bytes


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--text", required=True, help="trains on its bytes")
    p.add_argument("--folder", required=True, help="where the swap files go")
    p.add_argument("--offload", choices=["nvme", "mixed", "cpu"], default="nvme",
                   help="mixed: parameters in RAM, the optimizer on the drive")
    p.add_argument("--layers", type=int, default=48)
    p.add_argument("--hidden", type=int, default=1600)
    p.add_argument("--heads", type=int, default=25)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--steps", type=int, default=3, help="the first is not counted")
    p.add_argument("--clip", type=float, default=1000.0)
    p.add_argument("--sub-group-size", type=int, default=60_000_000,
                   help="elements; the table of tokens is a larger group of its own")
    p.add_argument("--live-parameters", type=int, default=1_000_000,
                   help="elements that stay gathered, and the distance of reuse: with one rank a "
                   "gathered parameter on the drive keeps its buffer")
    p.add_argument("--prefetch", type=int, default=0,
                   help="elements fetched ahead; with recomputing and parameters on the drive only "
                   "0 runs: DeepSpeed 0.19.8 else fetches a parameter twice and stops")
    p.add_argument("--reduce-bucket", type=int, default=90_000_000, help="elements")
    p.add_argument("--buffer-count", type=int, default=7, help="of parameters on the drive")
    p.add_argument("--state-buffer-count", type=int, default=5,
                   help="of state on the drive; 12 for --pipeline")
    p.add_argument("--pipeline", action="store_true",
                   help="reads and writes of state overlap the update; keeps the moments of the "
                   "whole model in RAM during the first step (DeepSpeed 0.19.8)")
    p.add_argument("--pin", action="store_true", help="pinned buffers")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    return p.parse_args()


def build_config(args):
    param_device = "nvme" if args.offload == "nvme" else "cpu"
    state_device = "cpu" if args.offload == "cpu" else "nvme"
    param = {"device": param_device, "pin_memory": args.pin}
    state = {"device": state_device, "pin_memory": args.pin}
    if param_device == "nvme":  # a buffer holds the largest parameter: the table of tokens
        param |= {"nvme_path": args.folder, "buffer_count": args.buffer_count, "max_in_cpu": 0,
                  "buffer_size": args.vocab * args.hidden + 1024}
    if state_device == "nvme":  # a buffer holds the master, a moment or the gradient of a sub-group
        state |= {"nvme_path": args.folder, "buffer_count": args.state_buffer_count,
                  "pipeline_read": args.pipeline, "pipeline_write": args.pipeline}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": args.clip,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.1}},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": args.sub_group_size,
            "stage3_max_live_parameters": args.live_parameters,
            "stage3_max_reuse_distance": args.live_parameters,
            "stage3_prefetch_bucket_size": args.prefetch,
            "reduce_bucket_size": args.reduce_bucket,
            "offload_param": param,
            "offload_optimizer": state,
        },
        "aio": {"block_size": 1048576, "queue_depth": 32, "intra_op_parallelism": args.threads,
                "single_submit": False, "overlap_events": True},
    }


def initialize(model):
    """GPT-2's random start; zero.Init leaves every module the start of its own class."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            if parameter.dim() >= 2:
                parameter.data.normal_(std=0.02)
            else:
                parameter.data.fill_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    os.makedirs(args.folder, exist_ok=True)
    with open(args.text, "rb") as f:
        text = torch.tensor(list(f.read(args.steps * args.seq_len + 1)), dtype=torch.long)
    watch = MemoryWatch()
    deepspeed.init_distributed(dist_backend="gloo")
    config = build_config(args)
    shape = GPT2Config(n_layer=args.layers, n_embd=args.hidden, n_head=args.heads,
                       vocab_size=args.vocab, n_positions=args.context, use_cache=False,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                       bos_token_id=args.vocab - 1, eos_token_id=args.vocab - 1)
    start = time.perf_counter()
    with deepspeed.zero.Init(config_dict_or_path=config, dtype=torch.bfloat16):
        model = GPT2LMHeadModel._from_config(shape, attn_implementation="sdpa").train()
    initialize(model)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    engine, *_ = deepspeed.initialize(model=model, config=config,
                                      model_parameters=model.parameters())
    watch.sample()
    print(f"ready in {time.perf_counter() - start:.1f} s {watch.peak}", file=sys.stderr, flush=True)
    steps = []
    for i in range(args.steps):
        read, written = drive_bytes()
        start = time.perf_counter()
        inputs = text[None, i * args.seq_len:(i + 1) * args.seq_len]
        targets = text[i * args.seq_len + 1:(i + 1) * args.seq_len + 1]
        logits = engine(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits[0].float(), targets)
        engine.backward(loss)
        backward = time.perf_counter() - start
        engine.step()
        seconds = time.perf_counter() - start
        watch.sample()
        now = drive_bytes()
        steps.append({"seconds": round(seconds, 2), "forward_backward": round(backward, 2),
                      "loss": round(loss.item(), 4), "norm": float(engine.get_global_grad_norm()),
                      "read_gb": round((now[0] - read) / 1e9, 2),
                      "written_gb": round((now[1] - written) / 1e9, 2)})
        print(f"step {i + 1}: {steps[-1]} {watch.peak}", file=sys.stderr, flush=True)
    counted = [s["seconds"] for s in steps[1:]] or [steps[0]["seconds"]]
    rate = args.seq_len * len(counted) / sum(counted)
    json.dump({"program": f"deepspeed {deepspeed.__version__} ZeRO-3 {args.offload}, "
                          f"torch {torch.__version__}",
               "steps": steps, "tokens_per_second": round(rate, 2), "peak_gib": watch.peak},
              sys.stdout)
    print()


if __name__ == "__main__":
    main()
