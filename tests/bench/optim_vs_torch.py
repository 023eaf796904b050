#!/usr/bin/env python3
"""Times one AdamW update over the same fp32 arrays: zinf (fp32 master, fp32 gradient), PyTorch's
fused AdamW and, where DeepSpeed is installed, its DeepSpeedCPUAdam. They take turns, so that other
users of the memory hit all alike; medians of the rounds are printed, with the bytes that an update
must move (28 a parameter: gradient read, master and two moments read and written).

usage: optim_vs_torch.py LIBZINF.so [--elements N] [--threads N] [--rounds N] [--check]
"""
import argparse
import ctypes
import statistics
import time

import torch

F32 = 0  # enum zinf_dtype
ADAMW = 0  # enum zinf_optim_kind
HYPER = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


class Hyper(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("lr", ctypes.c_float), ("beta1", ctypes.c_float),
                ("beta2", ctypes.c_float), ("eps", ctypes.c_float), ("weight_decay", ctypes.c_float),
                ("bias_correction", ctypes.c_bool), ("step", ctypes.c_uint64)]


class Array(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint64), ("master", ctypes.c_void_p), ("moment1", ctypes.c_void_p),
                ("moment2", ctypes.c_void_p), ("grad", ctypes.c_void_p), ("grad_dtype", ctypes.c_int),
                ("grad_scale", ctypes.c_float), ("param", ctypes.c_void_p), ("param_dtype", ctypes.c_int),
                ("rest", ctypes.c_char * 128)]  # NULL and 0: forms that are not used here


class Zinf:
    """zinf_optim_step over tensors of PyTorch."""

    def __init__(self, path, param, grad, threads):
        self.lib = ctypes.CDLL(path)
        self.lib.zinf_error.restype = ctypes.c_char_p
        self.threads = threads
        self.state = [param, torch.zeros_like(param), torch.zeros_like(param), grad]
        self.array = Array(param.numel(), *(t.data_ptr() for t in self.state), F32, 1.0)
        self.hyper = Hyper(ADAMW, HYPER["lr"], *HYPER["betas"], HYPER["eps"], HYPER["weight_decay"], True, 0)

    def step(self):
        self.hyper.step += 1
        if self.lib.zinf_optim_step(ctypes.byref(self.hyper), ctypes.byref(self.array), self.threads):
            raise RuntimeError(self.lib.zinf_error().decode())


def contestants(args):
    """Name -> (step, parameters), each over arrays of its own with equal values."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(args.elements, generator=generator)
    grad = torch.randn(args.elements, generator=generator) * 0.1
    made = {}
    param = start.clone()
    made["zinf"] = (Zinf(args.library, param, grad.clone(), args.threads).step, param)
    for name, make in torch_optimizers().items():
        param = torch.nn.Parameter(start.clone())
        param.grad = grad.clone()
        made[name] = (make([param]).step, param)
    return made


def torch_optimizers():
    made = {"torch fused": lambda p: torch.optim.AdamW(p, fused=True, **HYPER)}
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        made["DeepSpeedCPUAdam"] = lambda p: DeepSpeedCPUAdam(p, adamw_mode=True, **HYPER)
    except ImportError:
        print("# DeepSpeed is not installed: left out")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--elements", type=int, default=1 << 25)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--check", action="store_true", help="compare the parameters at the end")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    made = contestants(args)
    seconds = {name: [] for name in made}
    for step, _ in made.values():
        step()  # state is allocated, caches and threads are warm
    for _ in range(args.rounds):
        for name, (step, _) in made.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    print(f"AdamW, {args.elements} fp32 elements, {args.threads} threads, median of {args.rounds}, "
          f"torch {torch.__version__}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:18s} {median * 1e3:8.2f} ms {args.elements / median / 1e6:8.1f} M/s "
              f"{args.elements * 28 / median / 1e9:6.1f} GB/s")
    if args.check:
        zinf = made.pop("zinf")[1]
        for name, (_, param) in made.items():
            worst = ((param.detach() - zinf).abs() / (zinf.abs() + 1e-3)).max().item()
            print(f"largest relative difference from {name}: {worst:.2g}")
            assert worst < 1e-5


if __name__ == "__main__":
    main()
