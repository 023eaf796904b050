"""``python -m zinf.aio bench FOLDER``: how fast files below a folder are read and written by
`zinf.aio.Handle`, and by DeepSpeed's handle and fio where they are installed, in turn."""

import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from .._library import Error
from . import Handle


def _size(text):
    units = {"K": 10, "M": 20, "G": 30}
    word = text.upper().removesuffix("IB").removesuffix("B")
    shift = units.get(word[-1:], 0)
    try:
        return int(word[:-1] if shift else word) << shift
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 256M") from None


def _ours(args, room):
    handle = Handle(block_size=args.block_size, queue_depth=args.queue_depth)
    return (lambda name: handle.sync_pwrite(room, name)), (lambda name: handle.sync_pread(room, name))


def _deepspeeds(args, room):
    """None where DeepSpeed, or its operator, is not there."""
    try:
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder

        handle = AsyncIOBuilder().load(verbose=False).aio_handle(
            args.block_size, args.queue_depth, False, True, 1
        )
    except Exception as failure:  # builders raise what compilers and loaders do
        print(f"DeepSpeed's handle is not measured: {failure}", file=sys.stderr)
        return None
    tensor = torch.frombuffer(room, dtype=torch.uint8)
    return (
        lambda name: handle.sync_pwrite(tensor, name, 0),
        lambda name: handle.sync_pread(tensor, name, 0),
    )


def _fios(args, room):
    """None where there is no fio. Its calls say how many seconds its transfers took: at least one
    millisecond, since fio counts in milliseconds and a small file may take none."""
    if shutil.which("fio") is None:
        return None

    def run(direction, name):
        words = ["fio", "--name=zinf", f"--filename={name}", f"--rw={direction}", f"--size={args.size}"]
        words += [f"--bs={args.block_size}", f"--iodepth={args.queue_depth}", "--ioengine=io_uring"]
        words += ["--direct=1", "--fallocate=none", "--output-format=json"]
        done = subprocess.run(words, capture_output=True, check=True)
        milliseconds = json.loads(done.stdout)["jobs"][0]["job_runtime"]
        return max(milliseconds, 1) / 1e3

    return (lambda name: run("write", name)), (lambda name: run("read", name))


def _measure(call, name, n):
    begin = time.monotonic()
    seconds = call(name)
    if not isinstance(seconds, float):
        seconds = time.monotonic() - begin
    return n / seconds / 1e9


def bench(args):
    """Prints a table of medians in GB/s."""
    room = mmap.mmap(-1, args.size)
    room[:] = os.urandom(1 << 20) * (args.size >> 20)
    makers = {"zinf": _ours(args, room), "DeepSpeed": _deepspeeds(args, room), "fio": _fios(args, room)}
    rates = {who: ([], []) for who, calls in makers.items() if calls}
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="zinf-aio-") as folder:
        for _ in range(args.rounds):
            for who, (writes, reads) in rates.items():
                name = os.path.join(folder, who)
                writes.append(_measure(makers[who][0], name, args.size))
                reads.append(_measure(makers[who][1], name, args.size))
    print(f"{'':12}{'write GB/s':>12}{'read GB/s':>12}")
    for who, (writes, reads) in rates.items():
        print(f"{who:12}{statistics.median(writes):12.2f}{statistics.median(reads):12.2f}")


def main():
    parser = argparse.ArgumentParser(prog="python -m zinf.aio", description=__doc__)
    parser.add_argument("command", choices=("bench",))
    parser.add_argument("folder", help="on the drive that is measured")
    parser.add_argument("--size", type=_size, default=1 << 30, help="of the file (default: 1G)")
    parser.add_argument("--block-size", type=_size, default=1 << 20, help="of a request (1M)")
    parser.add_argument("--queue-depth", type=int, default=32, help="requests at once (32)")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts (3)")
    args = parser.parse_args()
    if args.size < 1 << 20 or args.size % (1 << 20):
        parser.error("--size is a multiple of 1M")
    try:
        bench(args)
    except (Error, OSError) as failure:
        sys.exit(f"python -m zinf.aio: {failure}")


if __name__ == "__main__":
    main()
