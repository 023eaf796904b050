#!/bin/sh
# What the command says, at 60, 80 and 200 columns of a terminal, without colour, and in a file: no line
# is cut off or wrapped by the terminal, and nothing that only a terminal understands goes elsewhere.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
mkdir drive
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 30
cat >nvme.json <<END
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "zero_optimization": {"stage": 3,
  "offload_param": {"device": "nvme", "nvme_path": "drive"},
  "offload_optimizer": {"device": "nvme", "nvme_path": "drive"}},
 "zinf": {"placement": "exact"}}
END
train="$zinf train --model model --data text.txt --eval-data text.txt --eval-every 4"
train="$train --config nvme.json --seq-len 16 --threads 1 --steps 8"
LC_ALL=C.UTF-8
export LC_ALL

escape=$(printf '\033')
# A bar redraws its line: what is seen is what follows the last return. Log lines and JSON are lines
# for programs too, and the terminal's to wrap; so is a word that is nearly as long as the line.
seen() {
    sed -e 's/\r*$//' -e 's/.*\r//' -e "s/$escape\\[K//g" -e '/^zinf: /d' -e '/^{"/d' "$1"
}
fits() { # file, columns; a character is what is no byte in its middle
    seen "$1" | LC_ALL=C tr -d '\200-\277' | awk -v most="$2" 'length($0) > most {
            n = split($0, words, " ")
            long = 0
            for (i = 1; i <= n; i++)
                long = long || length(words[i]) > most - 20
            if (!long) {
                print "# " length($0) " columns: " $0
                bad = 1
            }
        }
        END { exit bad }'
}
on_terminal() { # columns, command...
    columns=$1
    shift
    script -qec "stty cols $columns rows 40; $*" /dev/null >shown 2>&1 </dev/null
}
look() { # columns
    for command in "$train --output out$1 --progress bar" "$zinf plot out$1" \
        "$zinf estimate --model model --config nvme.json --seq-len 16 --threads 1" \
        "$zinf estimate --model model --config nvme.json --machine 4090,nvme=7/6 --tokens 1e9" \
        "$zinf inspect model" "$zinf resume-info out$1" "$zinf config --config nvme.json" "$zinf report"; do
        on_terminal "$1" "$command" || { echo "# failed: $command"; tail -n 5 shown; return 1; }
        fits shown "$1" || { echo "# of: $command"; return 1; }
    done
}
if ! command -v script >/dev/null || ! script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    skip "terminals of 60, 80 and 200 columns" "no script(1)"
else
    for columns in 60 80 200; do
        check "a terminal of $columns columns" look $columns
    done
    on_terminal 80 "$train --output colours --progress plain"
    ! grep -q "$escape" shown
    verdict $? "no colours"
fi

in_files() {
    for command in "$train --output out" "$zinf plot out" "$zinf config --config nvme.json" \
        "$zinf estimate --model model --config nvme.json --seq-len 16" "$zinf inspect model"; do
        run 0 $command || return 1
        ! grep -qE "$escape|$(printf '\r')" said.out said.err || { echo "# of: $command"; return 1; }
    done
}
check "nothing of a terminal in files" in_files
run 0 $train --output json && [ "$(wc -l <said.out)" -eq 1 ]
verdict $? "one line of JSON on standard output"
LC_ALL=C
run 0 "$zinf" plot out --no-charts && run 0 "$zinf" plot out && ! LC_ALL=C grep -q '[^ -~]' said.out
verdict $? "ASCII where the terminal knows no more"
finish
