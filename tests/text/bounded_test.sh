#!/bin/sh
# Files of strangers are bounded: what would take memory without end is refused with a message that
# names the file, within 1 GiB of address space; what steers a terminal is shown as text.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
OPENBLAS_NUM_THREADS=1
export OPENBLAS_NUM_THREADS
if [ -n "$ZINF_SANITIZER" ] || ! (ulimit -v 1048576 && "$zinf" --version) >/dev/null 2>&1; then
    skip "files of strangers are bounded" "1 GiB of address space is too little for the program here"
    finish
fi
bounded() { # status, words of the message, command...
    status=$1 words=$2
    shift 2
    (ulimit -v 1048576 && exec timeout 100 "$@") >said.out 2>said.err </dev/null
    got=$?
    [ $got -eq "$status" ] || echo "# status $got"
    [ $got -eq "$status" ] && complains "$words"
}
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --tokenizer bytes --context 32 \
    --output model >/dev/null 2>&1 || exit 99
data() { # status, words, file, more...
    status=$1 words=$2 file=$3
    shift 3
    bounded "$status" "$words" "$zinf" data --model model --data "$file" --seq-len 16 "$@"
}

# ---- rows ----

letters() { head -c "$1" /dev/zero | tr '\0' a; } # so many
{ printf '{"text": "' && letters 200000000 && printf '"}\n'; } >row.jsonl
check "a row without end" data 1 "row.jsonl: line 1: a row of more than" row.jsonl
gzip -1 <row.jsonl >row.jsonl.gz
check "the same, packed small" data 1 "row.jsonl.gz: line 1: a row of more than" row.jsonl.gz
{ printf 'text,b\n"' && letters 100000000 && printf '",2\n'; } >row.csv
check "a field without end" data 1 "row.csv: line 2: a row of more than" row.csv
{ printf '{"text": "x", "b": [0' && head -c 40000000 /dev/zero | sed 's/\x00/,0/g' && printf ']}\n'; } \
    >values.jsonl
check "a row of values without end" data 1 "values.jsonl" values.jsonl
rm -f row.* values.*

# ---- normalizers ----

mkdir chained && cp model/*.json model/*.safetensors chained/ 2>/dev/null
rm -f chained/tokenizer*
{
    printf '{"version": "1.0", "normalizer": {"type": "Sequence", "normalizers": ['
    i=0
    while [ $i -lt 12 ]; do
        [ $i -eq 0 ] || printf ', '
        printf '{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}'
        i=$((i + 1))
    done
    printf ']}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}'
} >chained/tokenizer.json
echo 'a text with an a or two, again and again' >text.txt
check "twelve replacements in a chain" bounded 1 "normalizer" "$zinf" data --model chained \
    --data text.txt --seq-len 16

# ---- terminals ----

plain() { # files...: nothing but text in them
    ! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" "$@"
}
mkdir escapes && cp model/*.safetensors escapes/
printf '{"model_type": "\\u001b]0;owned\\u0007\\u001b[2J", "architectures": ["\\u001b[31mX"]}' >escapes/config.json
"$zinf" inspect escapes >said.out 2>said.err
plain said.out said.err && cat said.out said.err | grep -qF '\x1b'
verdict $? "inspect shows escapes of config.json as text"
printf '{"version": "1.0", "model": {"type": "\\u001b[2J\\u009b31m"}}' >chained/tokenizer.json
"$zinf" data --model chained --data text.txt >said.out 2>said.err
[ $? -ne 0 ] && plain said.out said.err && grep -qF '\x1b[2J' said.err
verdict $? "a message about tokenizer.json does, too"
"$zinf" data --model "$(printf 'no\033[31mwhere')" --data text.txt >said.out 2>said.err
[ $? -ne 0 ] && plain said.out said.err
verdict $? "and one about a path"
cp -r model adapter && printf '{"peft_type": "\\u001b[2Jx", "r": 4}' >adapter/adapter_config.json
"$zinf" generate --model model --adapter adapter --prompt x >said.out 2>said.err
[ $? -ne 0 ] && plain said.out said.err
verdict $? "and one about an adapter"
finish
