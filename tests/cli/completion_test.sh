#!/bin/sh
# Shell completions: bash, zsh and fish offer the commands, the modes of bench, the options of a
# command and the words that a value is one of. zsh's functions of completion work in its line editor
# alone: those that ours calls stand here as print.
. "$SRCDIR/tests/support/command.sh"
completions=$SRCDIR/src/cli/completions
PATH=$BUILDDIR:$PATH
cd "$work" || exit 99

complete_bash() { # the words of a line, the last one begun
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zinf
        printf "%s\n" "${COMPREPLY[@]}"' - "$completions/zinf" "$@"
}
complete_zsh() {
    # shellcheck disable=SC2016 # for the other shell
    zsh -f -c 'compadd() { print -l -- ${(P)2} }
        _files() { print files }
        _call_program() { shift; eval "$@" }
        autoload -Uz "$1"
        fpath=("$2" $fpath)
        offer() { local words=("$@") CURRENT=$# PREFIX=${@[-1]}; _zinf | grep -F -- "$PREFIX" }
        shift 2; offer "$@"' - _zinf "$completions" "$@"
}
complete_fish() {
    # shellcheck disable=SC2016 # for the other shell
    fish --no-config -c 'set -p fish_complete_path $argv[1]; complete -C (string join " " -- $argv[2..-1])' \
        "$completions" "$@"
}
check_offers() { # name, words to be offered, line...
    name="$shell: $1"
    wanted=$2
    shift 2
    "complete_$shell" "$@" >"$work/said.out" 2>"$work/said.err"
    # shellcheck disable=SC2086 # words
    [ ! -s "$work/said.err" ] && says $wanted
    verdict $? "$name"
}
for shell in bash zsh fish; do
    if ! command -v $shell >/dev/null; then
        skip "completion in $shell" "no $shell"
        continue
    fi
    check_offers "commands" "train" zinf tr
    check_offers "all commands" "train help plot bench" zinf ""
    check_offers "modes of bench" "nvme gemm pcie" zinf bench ""
    check_offers "options" "--lr --lr-scheduler" zinf train --lr
    check_offers "options of a mode" "--block-size" zinf bench nvme --bl
    check_offers "words of a choice" "AdamW8bit Adafactor" zinf train --optimizer A
    check_offers "words of a key of the configuration" "nf4" zinf train --quantize n
    check_offers "of a task" "seq2seq" zinf train --model m --task se
    check_offers "families" "gpt_neox" zinf init --arch gpt
    check_offers "sizes" "xl" zinf init --size x
    check_offers "machines" "4090" zinf estimate --machine 40
    check_offers "words behind a word" "bleu" zinf eval --metric f1 bl
    "complete_$shell" zinf train run >"$work/said.out" 2>"$work/said.err"
    [ -z "$(grep -v '^files$' "$work/said.out" | tr -d '\n')" ]
    verdict $? "$shell: else files"
done
finish
