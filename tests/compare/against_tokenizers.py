#!/usr/bin/env python3
"""Compares zinf's tokenizers with Hugging Face's: ids, what they decode to, and speed.

    against_tokenizers.py BUILD [--texts N] [--data FILE] [--time] [KIND...]

BUILD is a build folder with tests/compare/tokenize. For each tokenizer of
tests/fixtures/tokenizer_kinds (or the KINDs named): a page of Chinese, Arabic, Hindi, emoji and
code, FILE (such as tinyshakespeare.txt), and N (20000) random strings. --time compares the speed on
FILE instead, alternating, on one thread.
"""
import argparse
import os
import random
import struct
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
sys.path[0:0] = [FIXTURES]
sys.dont_write_bytecode = True

from tokenizers import Tokenizer  # noqa: E402

import make_tokenizer  # noqa: E402
import make_tokenizer_kinds as kinds  # noqa: E402


def random_texts(n):
    """A third any characters, a third of one block each, a third pieces where rules meet."""
    rng = random.Random(4)
    pieces = make_tokenizer.FRAGMENTS + make_tokenizer.TOKENS + kinds.ODD + ["<sp>", "<mask>", "<extra_id_0>", "The QUICK"]
    for i in range(n):
        length = rng.randint(1, 24)
        if i % 3 == 0:
            yield "".join(chr(rng.choice([rng.randrange(0xd800), rng.randrange(0xe000, 0x110000)])) for _ in range(length))
        elif i % 3 == 1:
            block = rng.randrange(0, 0x1f000, 0x80)
            block = 0x4e00 if 0xd800 <= block < 0xe000 else block
            yield "".join(rng.choice([" ", chr(block + rng.randrange(0x80))] + [chr(block + rng.randrange(0x80))] * 4) for _ in range(length))
        else:
            yield "".join(rng.choice(pieces) for _ in range(rng.randint(1, 8)))


def run(program, path, texts, *options):
    data = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    done = subprocess.run([program, *options, path], input=data, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit("%s failed on %s" % (program, path))
    return done.stdout


def answers(output):
    at = 0
    while at < len(output):
        (n,) = struct.unpack_from("=I", output, at)
        ids = list(struct.unpack_from("=%di" % n, output, at + 4))
        (m,) = struct.unpack_from("=I", output, at + 4 + 4 * n)
        at += 8 + 4 * n
        yield ids, output[at:at + m].decode()
        at += m


def compare(program, path, texts):
    tokenizer = Tokenizer.from_file(path)
    ours = list(answers(run(program, path, [text.encode() for text in texts])))
    wrong_ids = wrong_texts = shown = 0
    for text, (ids, decoded) in zip(texts, ours):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        back = tokenizer.decode(expected, skip_special_tokens=False)
        wrong_ids += ids != expected
        wrong_texts += ids == expected and decoded != back
        if (ids != expected or decoded != back) and shown < 5:
            shown += 1
            print("   %a\n     %s, not %s\n     %a, not %a" % (text[:60], ids[:40], expected[:40], decoded[:60], back[:60]))
    return len(texts), wrong_ids, wrong_texts


def compare_speed(program, path, text):
    """The best of three rounds over documents of 2000 characters."""
    tokenizer = Tokenizer.from_file(path)
    documents = [text[at:at + 2000] for at in range(0, min(len(text), 200000), 2000)]
    ours, theirs = [], []
    for _ in range(3):
        begin = time.perf_counter()
        for document in documents:
            tokenizer.encode(document, add_special_tokens=False)
        theirs.append(time.perf_counter() - begin)
        ours.append(float(run(program, path, [document.encode() for document in documents], "--time")))
    return sum(len(document.encode()) for document in documents) / 1e6, min(ours), min(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--data")
    parser.add_argument("--time", action="store_true")
    given = parser.parse_args()
    program = os.path.join(given.build, "tests", "compare", "tokenize")
    texts = list(kinds.texts()) + list(random_texts(given.texts))
    if given.data:
        with open(given.data, encoding="utf-8", newline="") as file:
            texts.append(file.read())
    wrong = 0
    for name in given.kinds or [kind.__name__ for kind in kinds.KINDS]:
        path = name if os.path.exists(name) else os.path.join(FIXTURES, "tokenizer_kinds", name + ".json")
        if given.time:
            size, ours, theirs = compare_speed(program, path, texts[-1])
            print("%-16s %6.1f MB/s, tokenizers %6.1f MB/s: %.1f times" % (name, size / ours, size / theirs, theirs / ours), flush=True)
            continue
        n, ids, back = compare(program, path, texts)
        wrong += ids + back
        print("%-16s %d texts, %d with other ids, %d decode otherwise" % (name, n, ids, back), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
