#!/usr/bin/env python3
"""Compares the ids that llama.cpp continues with, greedily, from a file of `zinf export --gguf`, with
those of `zinf generate` from the model folder: of each folder that against_gguf.py has made.

Usage: against_llama_cpp.py ZINF FOLDER FORM [NAME...]    (FORM: f32 or f16; needs llama-cpp-python)

Of random weights in f16 two tokens may be as likely: then the two programs, which round in other
places, may part.
"""
import json
import pathlib
import subprocess
import sys

import llama_cpp

PROMPTS = ["line 7 of a text", "isn't it? long", "some merges, 123 text", "enough for"]
NEW = 24


def continue_ids(model, prompt):
    ids, out = model.tokenize(prompt.encode(), add_bos=True, special=True), []
    model.reset()
    for token in model.generate(ids, temp=0.0, top_k=1):
        out.append(token)
        if len(out) == NEW or token == model.token_eos():
            break
    return out


def main():
    zinf, folder, form = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    same = count = 0
    for name in sys.argv[4:] or ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gpt2"]:
        path = folder / f"{name}-{form}.gguf"
        path.unlink(missing_ok=True)
        subprocess.run([zinf, "export", "--checkpoint", folder / name, "--gguf", form, "--output",
                        path], check=True, stderr=subprocess.DEVNULL)
        model = llama_cpp.Llama(model_path=str(path), n_ctx=128, verbose=False, n_threads=1)
        for prompt in PROMPTS:
            done = subprocess.run(
                [zinf, "generate", "--model", folder / name, "--prompt", prompt, "--json",
                 "--dtype", "fp32" if form == "f32" else "fp16", "--temperature", "0",
                 "--max-new-tokens", str(NEW)], check=True, capture_output=True, text=True)
            ours, theirs = json.loads(done.stdout)["ids"], continue_ids(model, prompt)
            theirs = theirs[:-1] if theirs[-1] == model.token_eos() and len(ours) < len(theirs) \
                else theirs
            count += 1
            same += ours == theirs
            if ours != theirs:
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), -1)
                print(name, repr(prompt), "differs from new token", at)
    print(f"{form}: {same} of {count} continuations are the same")
    sys.exit(same < count)


if __name__ == "__main__":
    main()
