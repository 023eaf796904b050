#!/bin/sh
# Shell completions: bash offers the commands, the modes of bench and the options of a command.
. "$SRCDIR/tests/support/command.sh"
if ! command -v bash >/dev/null; then
    skip "bash completion" "no bash"
    finish
fi
complete_words() { # the words of a line, the last one begun
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zinf
        printf "%s\n" "${COMPREPLY[@]}"' - "$SRCDIR/src/cli/completions/zinf" "$zinf" "$@" \
        >"$work/said.out" 2>"$work/said.err"
}
check_offers() { # name, words to be offered, line...
    name=$1
    wanted=$2
    shift 2
    complete_words "$@"
    [ ! -s "$work/said.err" ] && says $wanted
    verdict $? "$name"
}
check_offers "commands" "train" tr
check_offers "all commands" "train help plot bench" ""
check_offers "modes of bench" "nvme gemm pcie" bench ""
check_offers "options" "--lr --lr-scheduler" train --lr
check_offers "options of a mode" "--block-size" bench nvme --bl
check_offers "words of a choice" "AdamW8bit Adafactor" train --optimizer A
check_offers "of a task" "seq2seq" train --model m --task se
check_offers "families" "gpt_neox" init --arch gpt
check_offers "sizes" "xl" init --size x
check_offers "machines" "4090" estimate --machine 40
check_offers "words behind a word" "bleu" eval --metric f1 bl
complete_words train run
[ ! -s "$work/said.out" ] || [ -z "$(tr -d '\n' <"$work/said.out")" ]
verdict $? "else files"
for shell in zsh fish; do
    file=$SRCDIR/src/cli/completions/_zinf
    [ $shell = zsh ] || file=$SRCDIR/src/cli/completions/zinf.fish
    if command -v $shell >/dev/null; then
        check "$shell reads its completion" run 0 $shell -n "$file"
    else
        skip "$shell reads its completion" "no $shell"
    fi
done
finish
