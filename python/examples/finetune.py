"""Fine-tunes a model on rows that Python makes, and continues a text with the result.

usage: python finetune.py [--model FOLDER] [--output FOLDER] [--steps N] [--device-memory SIZE]

Any iterable of dicts is data: a generator as here, or a data set of `datasets`, streamed or not.
"""

import argparse

import zinf


def rows():
    """Sums as texts; in place of them: datasets.load_dataset("json", data_files="rows.jsonl")["train"]"""
    for i in range(5000):
        a, b = i * 37 % 100, i * 59 % 100
        yield {"prompt": f"{a} + {b} =", "completion": f" {a + b}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--output", default="sums")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device-memory", default=None)
    args = parser.parse_args()
    options = {"steps": args.steps, "micro_batch": 8, "seq_len": 64, "lr": 1e-4, "device_memory": args.device_memory}
    print(zinf.plan(args.model, **options))
    run = zinf.train(args.model, rows(), output=args.output, overwrite=True, **options)
    print(run)
    print(zinf.generate(run.model, "12 + 30 =", max_new_tokens=4, temperature=0))


if __name__ == "__main__":
    main()
