"""Trains adapters of a chat model on conversations, above 4-bit weights, and asks it something.

usage: python lora_chat.py [--model FOLDER] [--output FOLDER] [--steps N] [--quantize nf4|int8|none] ...
"""

import argparse

import zinf

ROWS = [
    {"messages": [{"role": "user", "content": f"What is the code of room {i}?"},
                  {"role": "assistant", "content": f"The code of room {i} is {i * 7 % 100:02d}."}]}
    for i in range(400)
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--output", default="rooms")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--quantize", choices=("nf4", "int8", "none"), default="nf4")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--chat-template", default=None, help="of a model whose folder has none")
    args = parser.parse_args()
    run = zinf.train(
        args.model, ROWS[:-20], eval_data=ROWS[-20:], output=args.output, overwrite=True,
        lora=dict(r=16, alpha=32), quantize=None if args.quantize == "none" else args.quantize,
        steps=args.steps, eval_every=max(args.steps // 2, 1), micro_batch=4, seq_len=args.seq_len, lr=2e-4,
        chat_template=args.chat_template,
        callbacks=lambda step: step.step % 10 or print(f"step {step.step}: loss {step.loss:.3f}"),
    )  # fmt: skip
    print({step: round(measure.loss, 4) for step, measure in run.evaluations.items()})
    print(zinf.generate(args.model, "What is the code of room 7?", adapter=run.model, max_new_tokens=24))


if __name__ == "__main__":
    main()
