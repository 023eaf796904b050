#!/usr/bin/env python3
"""Compares zinf's chat templates with transformers': ids, and which of them count.

    against_chat.py BUILD [--conversations N] [--published DIR] [TEMPLATE...]

BUILD is a build folder with tests/compare/chat. For each built-in template of text: N (1000) random
conversations, encoded by apply_chat_template with a template in Jinja that says here what the
built-in one means and marks what an assistant said with {% generation %}; prompts that end with the
beginning of an answer; prompts with completions. What a training writes into a model's folder must
render the same text and be recognised, and so must --published DIR: NAME.jinja there, as others have
it.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = os.path.join(HERE, "..", "fixtures", "tokenizer_kinds")
sys.dont_write_bytecode = True

from tokenizers import AddedToken, Tokenizer  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."


def said(text):
    return "{% generation %}{{ " + text + " }}{% endgeneration %}"


def turns(before, stop, after, content="m.content", roles=""):
    """One form for all roles; roles: how the role is written."""
    role = roles or "m.role"
    return ("{% for m in messages %}{{ " + before % role + " }}{% if m.role == 'assistant' %}" + said(content + " + " + stop) +
            "{% else %}{{ " + content + " + " + stop + " }}{% endif %}{{ '" + after + "' }}{% endfor %}")


def asked_and_answered(user, before, content, stop, after=""):
    return ("{% for m in messages %}{% if m.role == 'user' %}{{ " + user + " }}{% elif m.role == 'assistant' %}{{ '" + before +
            "' }}" + said(content + " + " + stop) + "{{ '" + after + "' }}{% endif %}{% endfor %}")


def answer(text, otherwise=""):
    return "{% if add_generation_prompt %}{{ '" + text + "' }}" + ("{% else %}{{ " + otherwise + " }}" if otherwise else "") + "{% endif %}"


def first_system(text):
    return "{% if messages[0].role != 'system' %}{{ '" + text + "' }}{% endif %}"


CHATML = turns("'<|im_start|>' + %s + '\\n'", "'<|im_end|>'", "\\n") + answer("<|im_start|>assistant\\n")
MARKS = ["<|im_start|>", "<|im_end|>"]
HEADERS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TURNS = ["<start_of_turn>", "<end_of_turn>"]
BARS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]

# name: tokenizer, special tokens, whether they swallow what is behind them, roles beside user and assistant, template
TEMPLATES = {
    "chatml": ("qwen2", MARKS, False, ["system", "tool"], CHATML),
    "qwen2": ("qwen2", MARKS, False, ["system"],
              first_system("<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n") + CHATML),
    "qwen2.5": ("qwen2", MARKS, False, ["system"],
                first_system("<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n") + CHATML),
    "llama3": ("llama3", HEADERS, False, ["system", "tool"],
               "{{ bos_token }}" + turns("'<|start_header_id|>' + %s + '<|end_header_id|>\\n\\n'", "'<|eot_id|>'", "", "(m.content | trim)") +
               answer("<|start_header_id|>assistant<|end_header_id|>\\n\\n")),
    "llama2": ("llama2", [], False, ["system"],
               "{% set s = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}"
               "{% set s.text = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}"
               "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' + (s.text + m.content) | trim + ' [/INST]' }}{% set s.text = '' %}"
               "{% else %}{{ ' ' }}" + said("m.content | trim + ' ' + eos_token") + "{% endif %}{% endfor %}"),
    "mistral": ("llama2", [], False, [],
                "{{ bos_token }}" + asked_and_answered("'[INST] ' + m.content + ' [/INST]'", "", "m.content", "eos_token")),
    "mistral-v0.1": ("llama2", [], False, [],
                     "{{ bos_token }}" + asked_and_answered("'[INST] ' + m.content + ' [/INST]'", "", "m.content", "eos_token", " ")),
    "gemma": ("gemma", TURNS, False, [],
              "{{ bos_token }}" + turns("'<start_of_turn>' + (%s) + '\\n'", "'<end_of_turn>'", "\\n", "(m.content | trim)",
                                        "'model' if m.role == 'assistant' else m.role") + answer("<start_of_turn>model\\n")),
    "phi3": ("llama2", BARS, True, ["system"],
             turns("'<|' + %s + '|>\\n'", "'<|end|>'", "\\n") + answer("<|assistant|>\\n", "eos_token")),
    "zephyr": ("llama2", [], False, ["system"],
               turns("'<|' + %s + '|>\\n'", "eos_token", "\\n") + answer("<|assistant|>\\n")),
    "alpaca": ("qwen2", [], False, ["system"],
               first_system(ALPACA + "\\n\\n") + "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}{% endif %}{% endfor %}" +
               asked_and_answered("'### Instruction:\\n' + m.content + '\\n\\n### Response:'", "", "m.content", "eos_token")),
}

WORDS = ["hello", " world", "The answer", " is", " 42", "\n", "\n\n", "  ", "\t", "ünï", "日本", "語です", "🙂", "e\u0301", "'s", "...", "?!",
         "```c\nint x;\n```", "[INST]", "[/INST]", "<<SYS>>", "### Response:", "\u00a0", "\u3000", "don't", "1,000.5", " a", "the", "ing"]


def text(rng, special):
    pieces = WORDS + (special if rng.random() < 0.05 else [])
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0 if rng.random() < 0.05 else 1, 12)))


def conversation(rng, roles, special):
    messages = [{"role": "system", "content": text(rng, special)}] if "system" in roles and rng.random() < 0.5 else []
    for i in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text(rng, special)})
        messages.append({"role": "assistant", "content": text(rng, special)})
        if "tool" in roles and rng.random() < 0.2:
            messages.append({"role": "tool", "content": text(rng, special)})
            messages.append({"role": "assistant", "content": text(rng, special)})
    return messages


def make_folder(folder, kind, special, swallows):
    tokenizer = Tokenizer.from_file(os.path.join(KINDS, kind + ".json"))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, rstrip=swallows) for t in special])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    known = tokenizer.get_vocab()
    begin = next((t for t in ("<|begin_of_text|>", "<s>", "<bos>") if t in known), None)
    end = next(t for t in ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>") if t in known)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": begin, "eos_token": {"content": end, "special": True}}, f)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end)


def run(build, folder, name, form, rows):
    path = os.path.join(folder, "rows.json")
    with open(path, "w") as f:
        json.dump(rows, f)
    done = subprocess.run([os.path.join(build, "tests/compare/chat"), folder, name, form, path], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def expect(tokenizer, template, messages):
    out = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
    return out["input_ids"], out["assistant_masks"]


def expect_prompt(tokenizer, template, messages):
    """A prompt and its completion, as TRL tokenizes them."""
    prompt = tokenizer.apply_chat_template(messages[:-1], chat_template=template, add_generation_prompt=True)["input_ids"]
    ids = tokenizer.apply_chat_template(messages, chat_template=template)["input_ids"]
    return ids, [int(i >= common(prompt, ids)) for i in range(len(ids))]


def compare(name, kind, wanted, got, rows):
    bad = 0
    for (ids, counts), one, row in zip(wanted, got, rows):
        if one.get("ids") != ids or one.get("counts") != counts:
            bad += 1
            if bad == 1:
                print("%s, %s: %s\n  wanted %s\n         %s\n  got    %s\n         %s" %
                      (name, kind, json.dumps(row), ids, counts, one.get("ids", one), one.get("counts")))
    print("%-14s %-12s %d of %d differ" % (name, kind, bad, len(wanted)))
    return bad


def check_template(options, name):
    kind, special, swallows, roles, template = TEMPLATES[name]
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_folder(folder, kind, special, swallows)
        chats = [conversation(rng, roles, special) for _ in range(options.conversations)]
        rows = [{"messages": c} for c in chats]
        bad = compare(name, "messages", [expect(tokenizer, template, c) for c in chats], run(options.build, folder, name, "messages", rows), rows)
        rows = [{"answer": c[:-1]} for c in chats]
        wanted = [tokenizer.apply_chat_template(c[:-1], chat_template=template, add_generation_prompt=True)["input_ids"] for c in chats]
        bad += compare(name, "answers", [(ids, [0 if i not in () else 1 for i in range(len(ids))]) for ids in wanted],
                       [{**one, "counts": [0] * len(one["ids"])} if "ids" in one else one
                        for one in run(options.build, folder, name, "messages", rows)], rows)
        rows = [{"prompt": c[:-1], "completion": c[-1:]} for c in chats]
        bad += compare(name, "completions", [expect_prompt(tokenizer, template, c) for c in chats],
                       run(options.build, folder, name, "prompt", rows), rows)
        own = subprocess.run([os.path.join(options.build, "tests/compare/chat"), folder, name, "jinja"], stdout=subprocess.PIPE, check=True)
        bad += check_text(options, folder, tokenizer, name, "own jinja", own.stdout.decode(), chats)
        path = os.path.join(options.published or "", name + ".jinja")
        if options.published and os.path.exists(path):
            with open(path) as f:
                bad += check_text(options, folder, tokenizer, name, "published", f.read(), chats)
    return bad


def check_text(options, folder, tokenizer, name, kind, published, chats):
    """A chat_template that renders what the built-in one does, and is recognised."""
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(published)
    run(options.build, folder, "-", "messages", [])
    template = TEMPLATES[name][4]
    differ = 0
    for c in chats:
        render = lambda t, m, answers: tokenizer.apply_chat_template(m, chat_template=t, tokenize=False, add_generation_prompt=answers)  # noqa: E731
        differ += render(published, c, False) != render(template, c, False) or render(published, c[:-1], True) != render(template, c[:-1], True)
    print("%-14s %-12s %d of %d differ" % (name, kind, differ, len(chats)))
    return differ


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--published")
    parser.add_argument("templates", nargs="*", default=list(TEMPLATES))
    options = parser.parse_args()
    sys.exit(sum(check_template(options, name) for name in options.templates or TEMPLATES) != 0)


if __name__ == "__main__":
    main()
