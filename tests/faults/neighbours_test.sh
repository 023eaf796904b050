#!/bin/sh
# Four runs on one path. Whatever cannot be read while one of them starts, beside it or of its own,
# nobody's finished steps are touched, and each goes on to the bits of a run that nobody disturbed.
# ZINF_TEST_ROUNDS repeats it with kills at other moments.
. "$SRCDIR/tests/support/command.sh"
mkdir "$work/drive" && cd "$work" || exit 99
rounds=${ZINF_TEST_ROUNDS:-1}
shim=$BUILDDIR/tests/faults/.libs/shim.so
if [ ! -r "$shim" ] || [ -n "$ZINF_SANITIZER" ]; then
    skip "neighbours" "no shared library to preload"
    finish
fi

"$zinf" init --arch gpt2 --size small --layers 1 --hidden 16 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
cat >config.json <<END
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zinf": {"placement": "exact", "schedule": "serial", "durability": "step"},
 "zero_optimization": {"stage": 3, "sub_group_size": 5000,
    "offload_param": {"device": "nvme", "nvme_path": "$work/drive"},
    "offload_optimizer": {"device": "nvme", "nvme_path": "$work/drive"}}}
END
command="$zinf train --model model --data text.txt --config config.json --seq-len 16 --threads 1
    --progress none"
go_on() { # output, status: to the same number of steps
    $command --output "$1" --steps 40 --resume >"$1.out" 2>"$1.err"
}
unreadable() { # part of a path, output: all that is read there fails
    ZINF_SHIM="read-eio 1+ $1" LD_PRELOAD=$shim $command --output "$2" --steps 40 --resume \
        >"$2.out" 2>"$2.err"
}
kill_after() { # output, lines of its log
    $command --output "$1" --steps 1000000 --resume >"$1.out" 2>"$1.err" &
    pid=$!
    wait_until $pid has_lines "$1" "$2"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
}
# outputs...: each killed in its steps, the last but a few at most; folder_NAME is where its steps are
begin() {
    for run; do
        before=$(ls drive)
        tries=0
        while [ $tries -lt 20 ]; do
            kill_after "$run" $((4 + tries % 7))
            # shellcheck disable=SC2010 # names of run folders
            folder=$(ls drive | grep -Fvx "${before:-none}")
            ! has_lines "$run" 38 && break
            rm -rf "$run" "drive/$folder"
            tries=$((tries + 1))
        done
        eval "folder_$run=$folder"
    done
}
same() {
    cmp -s "$1/model/model.safetensors" whole/model/model.safetensors
}
sum_of() {
    cat "drive/$1"/* | cksum
}

$command --output whole --steps 40 >said.out 2>said.err || exit 99
round=0
while [ $round -lt "$rounds" ]; do
    rm -rf a b c d drive/*
    begin a b c d
    [ "$(ls drive | wc -l)" -eq 4 ]
    verdict $? "four runs left their steps"

    sum=$(sum_of "$folder_b")
    unreadable "drive/$folder_b" a && same a && [ "$sum" = "$(sum_of "$folder_b")" ]
    verdict $? "one ends beside another that cannot be read"

    unreadable "drive/$folder_b" b
    [ $? -eq 1 ] && grep -q "$folder_b\|drive" b.err && [ "$sum" = "$(sum_of "$folder_b")" ]
    verdict $? "that one refuses by name and loses nothing"

    sum_c=$(sum_of "$folder_c")
    unreadable "/drive/" d
    [ $? -eq 1 ] && grep -q "drive" d.err && [ "$sum" = "$(sum_of "$folder_b")" ] &&
        [ "$sum_c" = "$(sum_of "$folder_c")" ] && [ -d "drive/$folder_d" ]
    verdict $? "nor does one that can read nothing at all"

    go_on c &
    first=$!
    go_on d &
    second=$!
    unreadable "drive/$folder_b" b
    status=$?
    wait $first
    one=$?
    wait $second
    [ $? -eq 0 ] && [ $one -eq 0 ] && [ $status -eq 1 ] && same c && same d
    verdict $? "two at once, and one that fails"

    go_on b && same b && [ -z "$(ls drive)" ]
    verdict $? "and the drive reads again"
    round=$((round + 1))
done
finish
