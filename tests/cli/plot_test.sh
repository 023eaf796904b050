#!/bin/sh
# zinf plot: the page has the curves and needs no network, the charts are in the terminal, the log
# goes out as CSV, event files and trainer_state.json; a browser that is there shows the page.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
    --output model >/dev/null || exit 99
make_text text.txt 60
make_text eval.txt 10
train() { # output, options...
    out=$1
    shift
    "$zinf" train --model model --data text.txt --eval-data eval.txt --eval-every 5 --seq-len 16 \
        --threads 1 --progress none --output "$out" "$@" >"$out.json" 2>"$out.err" || exit 99
}
train one --steps 20 --tensorboard events
train two --steps 30 --lr 1e-2

check "two runs" run 0 "$zinf" plot one two/ --output page.html
check "the terminal has the curves" says "one: loss" "two: gradient norm" "lanes were busy"
curves() {
    holds page.html "<h1>one, two</h1>" "<figcaption>Loss" "<figcaption>Gradient norm" \
        "<figcaption>Learning rate" "<figcaption>Use of lanes" "<figcaption>Seconds a step" \
        "Device memory: " "prefers-color-scheme:dark" "one, evaluation" &&
        [ "$(grep -o '<path class="line c0"' page.html | wc -l)" -ge 4 ] &&
        [ "$(grep -o '<circle class="dot' page.html | wc -l)" -eq 10 ] &&
        holds page.html '<i class="c0 dots"></i>one, evaluation' 'i.dots::after{' &&
        [ "$(grep -o '>step</text>' page.html | wc -l)" -eq "$(grep -o 'class="axis"' page.html | wc -l)" ]
}
check "the page has the curves" curves
alone() {
    ! grep -qE "https?:|<script|@import|<link rel=\"stylesheet|src=" page.html
}
check "the page asks for nothing" alone
# Step times over three decades have a logarithmic axis, on which zero has no place.
awk 'BEGIN { for (i = 1; i <= 40; i++)
    printf "{\"step\": %d, \"loss\": 2, \"step_seconds\": %g, \"predicted_seconds\": %g}\n", i,
        i < 3 ? 10 : 0.01, 0.012 }' >decades.jsonl
check "a logarithmic axis" run 0 "$zinf" plot decades.jsonl --no-charts
holds decades.html ", logarithmic" && ! grep -qE ' (d|y|cy)="[^"]*(nan|inf)' decades.html
verdict $? "every curve on it has a place"
mkdir 'a<b>&"'
cp one/log.jsonl 'a<b>&"/log.jsonl'
check "names are escaped" run 0 "$zinf" plot 'a<b>&"' --no-charts
holds 'a<b>&"/plot.html' '<h1>a&lt;b&gt;&amp;&quot;</h1>'
verdict $? "and in the run's folder by default"

check "CSV" run 0 "$zinf" plot one --csv one.csv --no-charts
[ "$(wc -l <one.csv)" -eq 21 ] && [ "$(head -n 1 one.csv | tr ',' '\n' | wc -l)" -eq 17 ] &&
    [ "$(sed -n 6p one.csv | cut -d , -f 1)" = 5 ] && [ -n "$(sed -n 6p one.csv | cut -d , -f 8)" ]
verdict $? "CSV has every step"
check "CSV to standard output" run 0 "$zinf" plot one --csv -
says "step,loss,grad_norm"
verdict $? "and nothing else there"
check "event files of runs" run 0 "$zinf" plot one two --tensorboard tb --no-charts
[ -f "$(ls tb/one/events.out.tfevents.*)" ] && [ -f "$(ls tb/two/events.out.tfevents.*)" ] &&
    grep -qa "train/learning_rate" tb/two/events.out.tfevents.*
verdict $? "event files hold tags"
grep -qa "eval/loss" events/events.out.tfevents.* && grep -qa "train/loss" events/events.*
verdict $? "a training writes them itself"
holds one/history/trainer_state.json '"log_history"' '"eval_loss"' '"global_step":	20' '"max_steps":	20' \
    "\"best_global_step\":	$(sed -n 's/{"step": \([0-9]*\),.*"eval_loss": \([-+.e0-9]*\).*/\2 \1/p' \
        one/log.jsonl | sort -g | head -n 1 | cut -d ' ' -f 2),"
verdict $? "trainer_state.json"

check "no run" run 2 "$zinf" plot
check "not a run" run 1 "$zinf" plot model
complains "model/log.jsonl" "--output folder of a training"
verdict $? "and which file is missing"
printf '{"step": 1, "loss": 2, "step_seconds": 1}\n{"step": 2, "lo' >cut.jsonl
check "a log that is being written" run 0 "$zinf" plot cut.jsonl --no-charts
[ -s cut.html ]
verdict $? "its page lies beside it"
echo nothing >bad.jsonl
check "not a log" run 1 "$zinf" plot bad.jsonl
complains "bad.jsonl: line 1"
verdict $? "and in which line"

browser=
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && browser=$name && break
done
if [ -z "$browser" ]; then
    skip "a browser shows the page" "no chromium"
else
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --enable-logging=stderr --window-size=1400,900 --screenshot="$work/page.png" \
        "file://$work/page.html" >browser.out 2>&1
    if [ $? -eq 124 ]; then
        skip "a browser shows the page" "the browser took more than a minute"
    else
        [ -s page.png ] && ! grep -q CONSOLE browser.out
        verdict $? "a browser shows the page"
    fi
fi
finish
