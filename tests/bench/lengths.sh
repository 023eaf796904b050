#!/bin/bash
# What padding costs: a small LLaMA on conversations of many lengths, with whole windows, with steps
# as long as their longest sample, and so with samples grouped by length. Counts rows, which depend on
# nothing but the data, and measures tokens without padding a second, twice each, in turn.
# usage: tests/bench/lengths.sh BUILD [FOLDER]
set -eu
zinf=$(realpath "$1")/zinf
folder=${2:-$(mktemp -d)}
mkdir -p "$folder" && cd "$folder"

"$zinf" init --arch llama --size 7b --layers 4 --hidden 256 --heads 4 --tokenizer bytes --vocab 257 \
    --context 512 --output model >/dev/null 2>&1
python3 - <<'END'
import json, random
random.seed(7)
def text(letters, n):
    return "".join(random.choice(letters) for _ in range(n))
with open("rows.jsonl", "w") as rows:
    for _ in range(2000):
        n = int(min(500, max(8, random.lognormvariate(4.7, 0.8))))
        rows.write(json.dumps({"messages": [
            {"role": "user", "content": text("abcdefghij ", n // 3)},
            {"role": "assistant", "content": text("klmnopq ", n - n // 3)}]}) + "\n")
END
"$zinf" data --model model --data rows.jsonl --chat-template mistral --seq-len 512 --samples 0 |
    sed -n '/^padding/,/^lengths/p' | sed '$d'
for _ in 1 2; do
    for how in "--pad-to max" "--pad-to longest" "--group-by-length"; do
        # shellcheck disable=SC2086 # an option and its word
        "$zinf" train --model model --data rows.jsonl --chat-template mistral --seq-len 512 \
            --micro-batch 8 --epochs 0.2 --lr 1e-4 --dropout 0 --threads 1 --progress none \
            --no-final-checkpoint --overwrite --output out $how >/dev/null 2>&1
        python3 - "$how" <<'END'
import json, sys
steps = [json.loads(line) for line in open("out/log.jsonl")][2:]
tokens = sum(s["tokens"] for s in steps)
rows = sum(8 * s["seq_len"] for s in steps)
seconds = sum(s["step_seconds"] for s in steps)
print(f"{sys.argv[1]:18} {len(steps)} steps, {tokens} tokens, {rows} rows, {tokens / seconds:.0f} tokens/s")
END
    done
done
