"""zinf.AdamW in Python against the memory's roof, DeepSpeedCPUAdam and torch's AdamW, and with state
on a drive against that drive's mixed rate by fio. All take turns; medians count.

usage: python_optimizers.py BUILD [--path FOLDER] [--params N] [--rounds N] [--threads N]

Parameters and gradients are in fp32, of GPT-2's shapes. With --path only the drive is measured.
DeepSpeed is left out where it is not installed, or where its operator cannot be built.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import zinf

HIDDEN = 768
LAYER = ((3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN))
LINES = (HIDDEN, HIDDEN, HIDDEN, HIDDEN, 3 * HIDDEN, HIDDEN, 4 * HIDDEN, HIDDEN)


def parameters(n):
    """At least n elements, all with gradients."""
    made, elements = [torch.nn.Parameter(torch.randn(50257, HIDDEN))], 50257 * HIDDEN
    while elements < n:
        made += [torch.nn.Parameter(torch.randn(shape)) for shape in (*LAYER, *LINES)]
        elements = sum(p.numel() for p in made)
    for p in made:
        p.grad = torch.randn_like(p) * 1e-3
    return made, elements


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def roof(build, threads):
    """Bytes per second of a streaming loop over the arrays of an update."""
    words = [os.path.join(build, "zinf"), "bench", "optim", "--form", "fp32", "--json", "--repeats", "5"]
    words += ["--elements", str(1 << 25), "--threads", str(threads)]
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return found["results"][0]["roof"]


def in_ram(args):
    params, n = parameters(args.params)
    optimizers = {"zinf.AdamW": zinf.AdamW(params, lr=1e-4)}
    optimizers["torch AdamW(fused)"] = torch.optim.AdamW(params, lr=1e-4, fused=True)
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizers["DeepSpeedCPUAdam"] = DeepSpeedCPUAdam(params, lr=1e-4)
    except Exception as failure:  # builders raise what compilers and loaders do
        print(f"DeepSpeedCPUAdam is not measured: {failure}", file=sys.stderr)
    seconds = {name: [] for name in (*optimizers, "roof")}
    for round_ in range(args.rounds + 1):
        for name, optimizer in optimizers.items():
            took = timed(optimizer.step)
            if round_:  # the first one makes the state
                seconds[name].append(took)
        seconds["roof"].append(28 * n / roof(args.build, args.threads))
    return n, seconds


def fio(folder, n_bytes):
    """Bytes per second, half of them read and half written."""
    words = ["fio", "--name=mixed", f"--filename={folder}/fio", f"--size={n_bytes}", "--rw=rw"]
    words += ["--bs=2M", "--iodepth=64", "--ioengine=io_uring", "--direct=1", "--output-format=json"]
    words += ["--fallocate=none", "--end_fsync=0", "--runtime=20"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["jobs"][0]
    moved = found["read"]["io_bytes"] + found["write"]["io_bytes"]
    return moved / (found["job_runtime"] / 1e3)


def on_drive(args):
    params, n = parameters(args.params)
    seconds = {"zinf.AdamW": [], "fio": []}
    with tempfile.TemporaryDirectory(dir=args.path, prefix="zinf-bench-") as folder:
        with open(f"{folder}/fio", "wb") as file:
            block = os.urandom(1 << 24)
            for _ in range(12 * n >> 24):
                file.write(block)
            os.fsync(file.fileno())
        optimizer = zinf.AdamW(params, lr=1e-4, state="nvme", path=folder)
        optimizer.step()
        for _ in range(args.rounds):
            seconds["zinf.AdamW"].append(timed(optimizer.step))
            seconds["fio"].append(24 * n / fio(folder, 12 * n))
        del optimizer
    return n, seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--path")
    parser.add_argument("--params", type=int, default=124 * 10**6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    n, seconds = on_drive(args) if args.path else in_ram(args)
    each = 24 if args.path else 28
    ours = seconds["zinf.AdamW"]
    print(f"{n / 1e6:.0f} M parameters, load {os.getloadavg()[0]:.1f}")
    for name, found in seconds.items():
        median = statistics.median(found)
        ratio = statistics.median(other / own for own, other in zip(ours, found))
        print(f"{name:20} {median * 1e3:9.1f} ms {each * n / median / 1e9:7.2f} GB/s   to zinf {ratio:.3f}")


if __name__ == "__main__":
    main()
