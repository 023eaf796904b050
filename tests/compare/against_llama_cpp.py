#!/usr/bin/env python3
"""Compares the greedy tokens of `zinf generate` with llama.cpp's over GGUF files that zinf writes.

Usage: against_llama_cpp.py BUILD [FOLDER...]
    (needs xllamacpp, a build of llama.cpp for Python; FOLDER: model folders instead of small ones of
    tests/fixtures/gguf, which are trained for a few steps so that their tokens are likely ones)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import xllamacpp

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "gguf"
FORMS = ("f16", "bf16")
PROMPTS = ("line 7 of a", "text that is", "some windows")
TOKENS = 16


def zinf(build, *words):
    command = [str(build / "zinf"), *map(str, words), "--device", "host", "--threads", "1"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def trained(build, work, name):
    text = work / "text.txt"
    text.write_text("".join(f"line {i} of a text that is long enough for some windows\n" for i in range(200)))
    zinf(build, "train", "--model", FIXTURES / name, "--data", text, "--output", work / name, "--seq-len", 32,
         "--micro-batch", 8, "--steps", 60, "--lr", 0.01, "--dropout", 0, "--progress", "none")
    return work / name / "model"


def greedy(model, prompt):
    options = xllamacpp.CommonParams()
    options.model.path = str(model)
    options.n_ctx, options.n_parallel, options.n_gpu_layers, options.warmup = 64, 1, 0, False
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    asked = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "top_k": 1, "ignore_eos": True}
    return xllamacpp.Server(options).handle_completions(asked)["choices"][0]["text"]


def main():
    build, different = pathlib.Path(sys.argv[1]).resolve(), 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        models = [pathlib.Path(m) for m in sys.argv[2:]] or [trained(build, work, n) for n in ("llama", "gpt2")]
        for i, model in enumerate(models):
            for form in FORMS:
                file = work / f"{i}-{form}.gguf"
                subprocess.run([str(build / "zinf"), "export", "--gguf", form, "--checkpoint", str(model),
                                "--output", str(file)], check=True, capture_output=True)
                for prompt in PROMPTS:
                    answer = zinf(build, "generate", "--model", file, "--prompt", prompt, "--max-new-tokens",
                                  TOKENS, "--temperature", 0, "--ignore-eos", "--dtype", "fp32", "--json")
                    ours, theirs = json.loads(answer.splitlines()[-1])["text"], greedy(file, prompt)
                    different += ours != theirs
                    print(model, form, repr(prompt), "the same" if ours == theirs else (ours, theirs), flush=True)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
