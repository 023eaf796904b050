#!/bin/sh
# Nothing of the user's is lost: no command writes over what it reads, by whatever name, and none
# replaces or removes what it did not make.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
make_text text.txt 60
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
cp -r model spare
train() {
    "$zinf" train --seq-len 16 --steps 2 --progress none --device host --threads 1 "$@"
}
sums() { # of all files in these folders but caches of tokens, which are made first
    find "$@" -type f ! -path '*/cache/*' -exec sha256sum {} + | sort
}
kept() { # name, folders..., --, command...: refused with another --output, and nothing has changed
    name=$1
    shift
    folders=
    while [ "$1" != -- ]; do
        folders="$folders $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    sums $folders >before
    check "$name" run 1 "$@"
    # shellcheck disable=SC2086
    sums $folders | cmp -s - before && grep -q "zinf [a-z]*: -" said.err
    verdict $? "$name: by option, and all is as it was"
}

# ---- export ----

check "an adapter" run 0 train --model model --data text.txt --lora-rank 2 --output lora
kept "export over the base" model -- \
    "$zinf" export --merge --checkpoint lora --model model --output model
ln -s model linked
kept "through a link" model -- \
    "$zinf" export --merge --checkpoint lora --model model --output linked
mkdir twin && ln model/* twin/
kept "through hard links" model twin -- \
    "$zinf" export --merge --checkpoint lora --model model --output twin
if mkdir bound && mount --bind model bound 2>/dev/null; then
    kept "through a bind mount" model -- \
        "$zinf" export --merge --checkpoint lora --model model --output bound
    umount bound
else
    skip "through a bind mount" "not allowed here"
fi
kept "export over another model" spare -- \
    "$zinf" export --merge --checkpoint lora --model model --output spare
check "another run" run 0 train --model model --data text.txt --output other
kept "export into a run's folder" other -- \
    "$zinf" export --merge --checkpoint lora --model model --output other
kept "export of a checkpoint over itself" other -- \
    "$zinf" export --checkpoint other --output other/checkpoint-2
kept "adapters joined over one of them" lora -- \
    "$zinf" export --adapter lora/model --adapter lora/checkpoint-2 --output lora/model
check "export elsewhere" run 0 "$zinf" export --merge --checkpoint lora --model model --output merged
kept "and once more" merged -- \
    "$zinf" export --merge --checkpoint lora --model model --output merged
mkdir weights && cp model/model.safetensors weights/
kept "a new model over weights alone" weights -- "$zinf" init --arch gpt2 --size small --layers 1 \
    --hidden 32 --heads 2 --vocab 257 --context 32 --output weights

# ---- train ----

mkdir -p mine && cp -r model mine/model
kept "--overwrite where no run was" mine -- \
    train --model model --data text.txt --overwrite --output mine
complains "never the --output of a training"
verdict $? "says so"
cp text.txt other/model/data.txt
kept "--overwrite over its data" other model -- \
    train --model model --data other/model/data.txt --overwrite --output other
ln -s other/model/data.txt linked.txt
kept "--overwrite over data behind a link" other model -- \
    train --model model --data linked.txt --overwrite --output other
rm other/model/data.txt linked.txt
cp text.txt other/checkpoint-2/data.txt
kept "--overwrite over data in a checkpoint" other model -- \
    train --model model --data other/checkpoint-2/data.txt --overwrite --output other
kept "over evaluation's data" other model -- \
    train --model model --data text.txt --eval-data other/checkpoint-2/data.txt --overwrite \
    --output other
rm other/checkpoint-2/data.txt
echo '{"train_micro_batch_size_per_gpu": 1}' >other/best.json
mkdir other/best && mv other/best.json other/best/config.json
kept "over its configuration" other model -- \
    train --model model --data text.txt --config other/best/config.json --overwrite --output other
kept "--overwrite over the model" other -- \
    train --model other/model --data text.txt --overwrite --output other
kept "--log over the data" text.txt model -- \
    train --model model --data text.txt --log text.txt --overwrite --output third
kept "zinf.trace over the data" text.txt model -- \
    train --model model --data text.txt --config other/best/config.json --output third \
    --log model/config.json --overwrite
kept "the output is the model" model -- train --model model --data text.txt --output model
check "--overwrite of a run" run 0 train --model model --data text.txt --overwrite --output other

# ---- links in the output are not followed ----

mkdir elsewhere fourth && ln -s ../elsewhere fourth/cache
check "a link called cache" run 1 train --model model --data text.txt --output fourth
complains "fourth/cache is a symbolic link" && [ -z "$(ls -A elsewhere)" ]
verdict $? "is not followed"
rm -r fourth && mkdir fourth && ln -s ../elsewhere fourth/history
check "a link called history" run 0 train --model model --data text.txt --output fourth
complains "fourth/history is a symbolic link" && [ -z "$(ls -A elsewhere)" ]
verdict $? "neither"

# ---- the other commands ----

kept "gradients over the weights" model -- "$zinf" gradients --model model --data text.txt \
    --seq-len 16 --device host --output model/model.safetensors
kept "gradients over the data" text.txt -- "$zinf" gradients --model model --data text.txt \
    --seq-len 16 --device host --output text.txt
kept "a page over the log" other -- "$zinf" plot other --output other/log.jsonl
kept "a table over the log" other -- "$zinf" plot other --csv other/log.jsonl
finish
