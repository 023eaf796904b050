#!/bin/sh
# manual: the examples of README.md and of the manual's section 7 run as they stand there, with small
# models and files under the names that the text uses. In a page a command begins with "$ "; in
# README it is a line of a sh block that begins with "zinf".
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir bin swap
ln -s "$zinf" bin/zinf
PATH=$work/bin:$PATH
small="--layers 2 --hidden 32 --heads 2 --vocab 257"

rows() { # count, a line in which N becomes a number
    i=0
    while [ $i -lt "$1" ]; do
        echo "$2" | sed "s/N/$i/g"
        i=$((i + 1))
    done
}
prepare() {
    zinf init --arch llama $small --context 256 --output base &&
        zinf init --arch gpt2 $small --context 1024 --output gpt2-xl &&
        zinf init --arch t5 $small --context 256 --output seq2seq &&
        zinf init --arch bert --layers 2 --hidden 32 --heads 2 --context 256 \
            --tokenizer "$SRCDIR/examples/classify" --output encoder &&
        zinf init --arch mixtral $small --context 256 --output mixture || return 1
    cache=huggingface/hub/models--org--name
    mkdir -p $cache/refs $cache/snapshots && printf 1234 >$cache/refs/main && cp -r base $cache/snapshots/1234 ||
        return 1
    make_text text.txt 60 && make_text held-out.txt 20 || return 1
    rows 40 '{"prompt": "What is N and one?", "completion": "It is N and one."}' >rows.jsonl
    rows 40 '{"prompt": "Say N", "chosen": "Yes, N.", "rejected": "No."}' >preferences.jsonl
    rows 40 '{"prompt": "Say N", "completion": "Yes, N.", "label": true}' |
        sed 'n; s/Yes/No/; s/true/false/' >unpaired.jsonl
    rows 24 '{"dialogue": "Ann: Shall we meet at N?", "summary": "They meet at N."}' >pairs-train.jsonl
    head -n 4 pairs-train.jsonl >pairs-eval.jsonl
    { printf 'sentence1\tsentence2\tlabel\n' && rows 24 "Anna got N cars.	Anna bought N cars.	same" | sed 'n; s/same/other/'; } \
        >classes.tsv
    rows 6 '{"question": "What is N?", "choices": ["N", "no", "one", "two"], "answer": 0, "subject": "anatomy"}' \
        >questions.jsonl
    head -n 3 questions.jsonl >examples.jsonl
    printf 'Question: who\nQuestion: when\n' >questions.txt
    cat >offload.json <<END
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
 "offload_param": {"device": "nvme", "nvme_path": "$work/swap"},
 "offload_optimizer": {"device": "nvme", "nvme_path": "$work/swap"}},
 "zinf": {"durability": "step", "host_memory": "64MiB", "device_memory": "64MiB"}}
END
    cat >experts.json <<END
{"zinf": {"adapter": {"r": 4, "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}}}
END
    # A training that is told of a template leaves it in the model's folder.
    zinf train --model base --data rows.jsonl --chat-template chatml --steps 1 --output told &&
        cp told/model/chat_template.jinja base/ || return 1
    # README's configuration, on this drive.
    sed -n '/^```js/,/^```$/p' "$SRCDIR/README.md" | sed "/^\`\`\`/d; s|/mnt/nvme/swap|$work/swap|" >xl.json
}
prepare >said.out 2>said.err || { cat said.err && exit 99; }

# README's commands, a line each.
readme() {
    sed -n '/^```sh/,/^```$/p' "$SRCDIR/README.md" | sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' |
        grep '^zinf ' >examples
}
page() { # name
    sed -n 's/^\(\.Dl \)\{0,1\}\$ //p' "$SRCDIR/man/$1.7" >examples
}
# A server is asked to end once it has said its address; its port is any free one.
serves() { # a line
    eval "exec $1 --port 0" >said.out 2>said.err &
    server=$!
    wait_until "$server" grep -q '^http' said.out
    grep -q '^http' said.out
    said=$?
    kill -TERM "$server" 2>/dev/null
    wait "$server" && return $said
}
runs() { # a line
    case $1 in
    'zinf serve '*)
        # A build without the library says so, and there is nothing more to try.
        serves "$1" || grep -q 'install libmicrohttpd-dev' said.err
        ;;
    *) eval "$1" >said.out 2>said.err ;;
    esac
}
examples() { # where they are from
    [ -s examples ]
    verdict $? "$1 has examples"
    while IFS= read -r line <&3; do
        check "$1: $line" runs "$line"
    done 3<examples
}
readme
examples README.md
for name in zinf-guide zinf-tasks zinf-ranks; do
    page $name
    examples $name
done
finish
