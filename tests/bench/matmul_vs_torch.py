#!/usr/bin/env python3
"""The host device's matrix products against PyTorch's (oneDNN, MKL) and OpenBLAS's, in turn.

The products of a block of GPT-2 XL and of a tile of its head: forward, gradient of the input (dX)
and of the weights (dW, which zinf adds to an fp32 array; PyTorch writes it in bf16, or adds it in
fp32). Each round runs `matmul_bench` on a shape, then PyTorch; the best time of all rounds counts,
with one thread the CPU's time, so that other users of the machine do not.
"""
import argparse
import subprocess
import time

import torch

UNITS = {"qkv": (4800, 1600), "proj": (1600, 1600), "up": (6400, 1600), "down": (1600, 6400),
         "head": (5056, 1600)}


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("bench", help="tests/bench/matmul_bench of a build folder")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rows", type=int, nargs="+", default=[256, 1024])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--runs", type=int, default=3, help="of each product in a round")
    p.add_argument("--only", nargs="+", default=list(UNITS), choices=list(UNITS))
    return p.parse_args()


def shapes(args):
    """Name, m, n, k and transposes of every product."""
    for rows in args.rows:
        for name in args.only:
            n, k = UNITS[name]
            yield f"{name} forward", rows, n, k, "NT"
            if name != "head":  # its gradients multiply fp32
                yield f"{name} dX", rows, k, n, "NN"
                yield f"{name} dW", n, k, rows, "TN"


def run_bench(args, shape):
    """Gflop/s of OpenBLAS in fp32, of zinf in fp32 and in bf16."""
    command = [args.bench, args.threads, args.runs, *shape]
    lines = subprocess.run([str(word) for word in command], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    words = lines[-1].split()
    return float(words[5]), float(words[6]), float(words[8])


def time_torch(args, dtype, operands, m, n, k, transposes):
    a, b = (operand.to(dtype) for operand in operands)
    a, b = a.t() if transposes[0] == "T" else a, b.t() if transposes[1] == "T" else b
    out = torch.zeros(m, n, dtype=dtype)
    clock = time.process_time if args.threads == 1 else time.perf_counter
    adds = transposes == "TN" and dtype == torch.float32
    best = float("inf")
    for _ in range(args.runs):
        start = clock()
        if adds:
            out.addmm_(a, b)
        else:
            torch.mm(a, b, out=out)
        best = min(best, clock() - start)
    return 2e-9 * m * n * k / best


def run_torch(args, shape):
    """Gflop/s in fp32 and in bf16."""
    m, n, k, transposes = shape
    operands = (torch.rand((k, m) if transposes[0] == "T" else (m, k)) * 2 - 1,
                torch.rand((n, k) if transposes[1] == "T" else (k, n)) * 2 - 1)
    return tuple(time_torch(args, dtype, operands, m, n, k, transposes)
                 for dtype in (torch.float32, torch.bfloat16))


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {args.threads} threads; Gflop/s, best of "
          f"{args.rounds} x {args.runs}")
    print(f"{'product':14} {'m':>5} {'n':>5} {'k':>5}    {'OpenBLAS':>8} {'torch':>7} {'zinf':>7} "
          f"{'ratio':>6}   bf16: {'torch':>7} {'zinf':>7} {'ratio':>6}", flush=True)
    for name, *shape in shapes(args):
        rounds = [run_bench(args, shape) + run_torch(args, shape) for _ in range(args.rounds)]
        blas, ours, ours_half, other, other_half = map(max, zip(*rounds))
        m, n, k, transposes = shape
        print(f"{name:14} {m:5} {n:5} {k:5} {transposes} {blas:8.1f} {other:7.1f} {ours:7.1f} "
              f"{ours / max(blas, other):6.2f}         {other_half:7.1f} {ours_half:7.1f} "
              f"{ours_half / other_half:6.2f}", flush=True)


if __name__ == "__main__":
    main()
