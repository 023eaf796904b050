#!/usr/bin/env bash
# Adapters that zinf writes, as PEFT sees them: each fixture's adapter is trained for ten steps and
# merged; load_adapter.py says what must hold.
#
# usage: adapters.sh [FIXTURE ...]   (default: all peft_* in tests/fixtures)
# ZINF and PYTHON name the programs: a build's zinf, a Python with torch, transformers and peft.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fixtures=$here/../fixtures
zinf=${ZINF:-zinf} python=${PYTHON:-python3}
if [ $# = 0 ]; then
    for folder in "$fixtures"/peft_*; do
        set -- "$@" "$(basename "$folder")"
    done
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

value() { # file, key
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"
}

for name; do
    folder=$fixtures/$name
    base=$fixtures/$(value "$folder/expected.json" base)
    rm -rf "$work/out" "$work/merged"
    if "$zinf" train --model "$base" --adapter "$folder" --no-shuffle --dropout 0 --steps 10 \
        --data "$base/$(value "$folder/expected.json" data)" --config "$folder/zinf.json" \
        --seq-len "$(value "$folder/expected.json" seq_len)" --output "$work/out" \
        --progress none >"$work/log" 2>&1 &&
        "$zinf" export --merge --checkpoint "$work/out/model" --output "$work/merged" \
            >>"$work/log" 2>&1 &&
        "$python" "$here/load_adapter.py" "$base" "$work/out/model" "$work/merged" \
            >"$work/said" 2>>"$work/log"; then
        echo "ok   $name: $(cat "$work/said")"
    else
        echo "BAD  $name"
        sed 's/^/     /' "$work/log"
        bad=1
    fi
done
exit $bad
