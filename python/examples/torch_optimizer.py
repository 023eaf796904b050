"""A plain PyTorch loop whose optimizer state lies on a drive.

usage: python torch_optimizer.py --path FOLDER [--model NAME] [--steps N]

GPT-2 XL in bf16 has 3 GB of weights and 3 GB of gradients. AdamW's fp32 state would take another
18.7 GB; here it is read, updated and written in pieces, in less than 0.4 GB of RAM.
"""

import argparse
import time

import torch
import transformers

import zinf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True, help="a folder on the drive")
    parser.add_argument("--model", default="openai-community/gpt2-xl")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).to(device)
    optimizer = zinf.AdamW(model.parameters(), lr=1e-5, state="nvme", path=args.path)
    for step in range(args.steps):
        ids = torch.randint(model.config.vocab_size, (1, 64), device=device)  # in place of data
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        begin = time.monotonic()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.4f}, update {time.monotonic() - begin:.2f} s")


if __name__ == "__main__":
    main()
