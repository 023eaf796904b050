#!/usr/bin/env python3
"""Holds the gradients that `zinf gradients` wrote against PyTorch's.

The same folder is loaded in transformers, loss and gradients of the first micro-batch are computed
in fp32, and the relative L2 distance of each tensor is printed. Exit status 1 if any of them, or
the loss or the norm if given, is above the threshold, or if a tensor is missing or one too many.

  zinf gradients --model DIR --data FILE --seq-len T --micro-batch B --output G.safetensors
  against_torch.py --model DIR --data FILE --seq-len T --micro-batch B --gradients G.safetensors
"""
import argparse
import math
import sys

from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import folders


# A gradient this small beside all of it is zero but for rounding: a key's bias without rotation
# moves a row of scores as a whole, which softmax does not see.
NOTHING = 1e-6


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--seq-len", type=int, required=True)
    p.add_argument("--micro-batch", type=int, required=True)
    p.add_argument("--gradients", required=True)
    p.add_argument("--loss", type=float, help="the loss that zinf printed")
    p.add_argument("--grad-norm", type=float, help="the norm that zinf printed")
    p.add_argument("--threshold", type=float, default=1e-4)
    p.add_argument("--loss-threshold", type=float, default=1e-5)
    return p.parse_args()


def reference(args):
    """Loss and gradients by PyTorch, under the file's names without the `transformer.` prefix."""
    model, problems = folders.load_model(args.model)
    for problem in problems:
        print(f"note, loading {args.model}: {problem}", file=sys.stderr)
    ids = folders.read_tokens(args.data, args.model)
    inputs, targets = folders.windows(ids, args.seq_len, 0, args.micro_batch)
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    loss = cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()
    head = {"gpt_neox": "embed_out.weight"}.get(model.config.model_type, "lm_head.weight")
    return loss.item(), {stem(head if n == "lm_head.weight" else n): p.grad
                         for n, p in model.named_parameters()}


def stem(name):
    return name.removeprefix("transformer.")


def compare_scalar(what, value, expected, threshold):
    distance = abs(value / expected - 1)
    good = distance <= threshold
    verdict = "ok" if good else "BAD"
    print(f"{verdict:4} {distance:9.2e}  {what}: {value:.9g}, PyTorch {expected:.9g}")
    return good


def main():
    args = parse_arguments()
    ours = {stem(n): t for n, t in load_file(args.gradients).items()}
    loss, theirs = reference(args)
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in theirs.values()))
    own_norm = math.sqrt(sum(float(g.double().square().sum()) for g in ours.values()))
    good = compare_scalar("norm of the file", own_norm, norm, args.threshold)
    if args.loss is not None:
        good &= compare_scalar("loss", args.loss, loss, args.loss_threshold)
    else:
        print(f"{'':14}  loss: PyTorch {loss:.9g}")
    if args.grad_norm is not None:
        good &= compare_scalar("gradient norm", args.grad_norm, norm, args.threshold)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            print(f"BAD  {name}: only in {'the file' if name in ours else 'PyTorch'}")
            good = False
        elif ours[name].shape != theirs[name].shape:
            print(f"BAD  {name}: {list(ours[name].shape)}, PyTorch {list(theirs[name].shape)}")
            good = False
        else:
            distance = folders.relative_l2(ours[name], theirs[name])
            if float(theirs[name].norm()) < NOTHING * norm:
                distance = float(ours[name].norm()) / norm * args.threshold / NOTHING
            close = distance <= args.threshold
            print(f"{'ok' if close else 'BAD':4} {distance:9.2e}  {name} {list(ours[name].shape)}")
            good &= close
    print("equal within the thresholds" if good else "DIFFERENT")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
