#!/bin/sh
# serve: what clients see of it. Answers are those of zinf generate, alone and in company; what is
# wrong, slow or broken is told or dropped and changes nothing for others; a signal ends it in order.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
server=
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null; rm -rf "$work"' EXIT

if ! command -v curl >/dev/null; then
    skip "serve" "curl is not installed"
    finish
fi
# shellcheck disable=SC2120  # check gives it options
serve() { # options...: $server, $url; false where it ended
    "$zinf" serve --model model --threads 1 --device host --port 0 "$@" >url 2>server.err </dev/null &
    server=$!
    url=
    while [ -z "$url" ] && kill -0 "$server" 2>/dev/null; do
        sleep 0.1
        url=$(cat url)
    done
    [ -n "$url" ]
}
end_server() { # the exit status
    kill -TERM "$server" 2>/dev/null
    wait "$server"
    got=$?
    server=
    return $got
}
ask() { # status, path, body: the answer is in said.out
    code=$(curl -s -o said.out -w '%{http_code}' "$url$2" -d "$3" 2>said.err)
    [ "$code" = "$1" ] || echo "# $code instead of $1: $(cat said.out)"
    [ "$code" = "$1" ]
}
look() { # status, path, curl's options...
    wanted=$1 path=$2
    shift 2
    code=$(curl -s -o said.out -w '%{http_code}' "$@" "$url$path" 2>said.err)
    [ "$code" = "$wanted" ] || echo "# $code instead of $wanted: $(cat said.out)"
    [ "$code" = "$wanted" ]
}
field() { # key, file: its text, with JSON's escapes
    sed -n "s/.*\"$1\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" "$2"
}
generated() { # options...: the new text, as JSON writes it
    "$zinf" generate --model model --threads 1 --device host --json "$@" 2>/dev/null | sed -n 1p >made
    field text made
}
draws='"max_tokens":20,"temperature":0.7,"top_k":40'

check "a model" run 0 "$zinf" init --arch gpt2 --size small --layers 2 --hidden 64 --heads 4 \
    --vocab 257 --context 256 --tokenizer bytes --seed 5 --output model
if ! serve; then
    grep -q 'install libmicrohttpd-dev' server.err
    verdict $? "a build without a server says what is missing"
    finish
fi

# ---- each dialect ----

check "health" look 200 /health
check "models" look 200 /v1/models
says '"id":"model"' '"object":"list"'
verdict $? "are listed"
check "one of them" look 200 /v1/models/model
check "another" look 404 /v1/models/other
check "info" look 200 /info
check "the page" look 200 /
says '<title>zinf</title>' && ! grep -qE '(src|href)=' said.out && ! grep -qE 'https?://' said.out
verdict $? "has nothing from a network"

check "completions" ask 200 /v1/completions "{\"model\":\"model\",\"prompt\":\"abc\",\"seed\":3,$draws}"
text=$(field text said.out)
[ -n "$text" ] && [ "$text" = "$(generated --prompt abc --max-new-tokens 20 --temperature 0.7 --top-k 40 --seed 3)" ]
verdict $? "are the texts of zinf generate"
says '"prompt_tokens":3' '"object":"text_completion"' '"finish_reason":"'
verdict $? "and counted"
check "generate" ask 200 /generate '{"inputs":"abc","parameters":{"max_new_tokens":20,"temperature":0.7,"top_k":40,"seed":3,"details":true}}'
[ "$(field generated_text said.out)" = "$text" ] && says '"seed":3' '"input_length":3'
verdict $? "is the same text"
check "a list, at TGI's first path" ask 200 / '{"inputs":"abc","parameters":{"max_new_tokens":2,"return_full_text":true}}'
grep -q '^\[{"generated_text":"abc' said.out
verdict $? "with the prompt"
check "several prompts" ask 200 /v1/completions "{\"prompt\":[\"abc\",\"Q\"],\"seed\":3,$draws}"
says '"index":1' '"prompt_tokens":4'
verdict $? "are answered together"

check "a stream" ask 200 /v1/completions "{\"prompt\":\"abc\",\"seed\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true},$draws}"
sed -n 's/^data: {/{/p' said.out >events
[ "$(field text events | tr -d '\n')" = "$text" ] && says '"completion_tokens":' 'data: [DONE]'
verdict $? "is the same text in pieces"
check "TGI's stream" ask 200 /generate_stream '{"inputs":"abc","parameters":{"max_new_tokens":20,"temperature":0.7,"top_k":40,"seed":3}}'
sed -n 's/.*"token":{"id":[0-9]*,"text":"\(\([^"\\]\|\\.\)*\)".*/\1/p' said.out | tr -d '\n' >pieces
[ "$(cat pieces)" = "$text" ] && [ "$(field generated_text said.out)" = "$text" ]
verdict $? "too, and whole at its end"
stop=$(printf %s "$text" | sed 's/\\u00..//g; s/\\.//g' | LC_ALL=C tr -cd 'A-Za-z0-9' | cut -c2)
check "a stop string" ask 200 /v1/completions "{\"prompt\":\"abc\",\"seed\":3,\"stop\":[\"$stop\"],$draws}"
[ -n "$stop" ] && says '"finish_reason":"stop"' && ! field text said.out | sed 's/\\u00..//g' | grep -qF -e "$stop"
verdict $? "is not in the answer"

# ---- what is wrong ----

check "no JSON" ask 400 /v1/completions '{"prompt":'
says '{"error":{"message":"' '"type":"invalid_request_error"'
verdict $? "is told as OpenAI tells it"
check "not UTF-8" ask 400 /v1/completions "$(printf '{"prompt":"\377\376"}')"
check "a NUL" ask 400 /v1/completions '{"prompt":"a\u0000b"}'
check "no NUL" ask 200 /v1/completions '{"prompt":"a\\u0000b","max_tokens":1}'
deep=$(printf '%5000s' '' | tr ' ' '[')
check "deep JSON" ask 400 /v1/completions "{\"prompt\":$deep"
check "nothing" ask 400 /v1/completions ''
check "an empty prompt" ask 400 /v1/completions '{"prompt":""}'
check "no prompt" ask 400 /v1/completions '{"model":"model"}'
check "no messages" ask 400 /v1/chat/completions '{"messages":[]}'
check "an unknown model" ask 404 /v1/completions '{"model":"gpt-9","prompt":"a"}'
says '"code":"model_not_found"'
verdict $? "by its code"
check "a temperature below 0" ask 400 /v1/completions '{"prompt":"a","temperature":-1}'
check "what is not known here" ask 400 /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]}'
says 'tools is not supported here'
verdict $? "is named"
check "more than there is room for" ask 400 /v1/completions '{"prompt":"a","max_tokens":1000}'
says 'max-total-tokens'
verdict $? "names the option"
check "no chat template" ask 400 /v1/chat/completions '{"messages":[{"role":"user","content":"a"}]}'
says 'chat template'
verdict $? "is told to who chats"
check "no such path" ask 404 /v1/nothing '{}'
check "another method" look 405 /v1/completions
head -c 1200000 /dev/zero | tr '\0' a >huge
check "a huge body" look 413 /v1/completions --data-binary @huge
check "one of unknown length" look 413 /v1/completions -H 'Transfer-Encoding: chunked' -H 'Expect:' --data-binary @huge
check "a page of another site" look 403 /v1/models -H 'Origin: http://example.com'
check "a stranger's name of this machine" look 403 /v1/models -H 'Host: example.com'
check "our own page" look 200 /v1/models -H "Origin: $url"

# ---- clients that go, and many at once ----

curl -sN --max-time 0.3 "$url/v1/completions" -d '{"prompt":"abc","max_tokens":250,"stream":true}' >/dev/null 2>&1
port=${url##*:}
if command -v bash >/dev/null; then
    bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; printf 'POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{' >&3; sleep 20" &
    half=$!
fi
if command -v bash >/dev/null; then
    # shellcheck disable=SC2016  # bash expands it
    timeout 20 bash -c 'for ((i = 0; i < 3000; i++)); do
        exec 3<>/dev/tcp/127.0.0.1/$1 && printf "POST /gen" >&3; exec 3>&-; done' bash "$port" 2>/dev/null
    check "after 3000 clients that hang up" look 200 /health --max-time 60
fi
bodies=0
while [ $bodies -lt 50 ]; do
    bodies=$((bodies + 1))
    curl -s -o "answer.$bodies" "$url/v1/completions" \
        -d "{\"prompt\":\"text $bodies\",\"seed\":$bodies,$draws}" &
    pids="${pids:-} $!"
done
# shellcheck disable=SC2086  # a list of numbers
wait $pids
same=0
bodies=0
while [ $bodies -lt 50 ]; do
    bodies=$((bodies + 1))
    [ "$(field text answer.$bodies)" = "$(generated --prompt "text $bodies" --max-new-tokens 20 --temperature 0.7 --top-k 40 --seed $bodies)" ] &&
        same=$((same + 1))
done
echo "# $same of 50"
[ $same -eq 50 ]
verdict $? "50 clients at once get the texts of zinf generate"
[ -z "${half:-}" ] || kill "$half" 2>/dev/null
check "metrics" look 200 /metrics
passes=$(sed -n 's/^zinf_passes_total //p' said.out)
texts=$(sed -n 's/^zinf_pass_texts_total //p' said.out)
[ "$texts" -gt "$passes" ]
verdict $? "texts shared passes: $texts in $passes"

# ---- the end ----

curl -s -o last "$url/v1/completions" -d '{"prompt":"abc","seed":3,"max_tokens":240,"temperature":1}' &
last=$!
sleep 0.2
check "a signal ends it" end_server
wait $last
says_last() { holds last '"finish_reason"' || holds last 'shutting_down' || [ ! -s last ]; }
check "and what was being answered" says_last

# ---- a key, a template, limits ----

check "with a key and a template" serve --api-key geheim --chat-template alpaca --name bot --max-requests 1
check "nobody" look 401 /v1/models
check "a wrong key" look 401 /v1/models -H 'Authorization: Bearer geheim2'
check "the key" look 200 /v1/models -H 'Authorization: Bearer geheim'
check "health needs none" look 200 /health
check "nor does the page" look 200 /
check "a chat" look 200 /v1/chat/completions -H 'Authorization: Bearer geheim' \
    -d '{"model":"bot","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"seed":4,"max_tokens":12,"temperature":0.7}'
[ "$(field content said.out)" = "$(generated --chat --chat-template alpaca --prompt hi --max-new-tokens 12 --temperature 0.7 --seed 4)" ]
verdict $? "answers as zinf generate --chat"
check "it ends" end_server

# ---- a model that does not fit, and adapters ----

make_text text 60
check "an adapter" run 0 "$zinf" train --model model --data text --seq-len 32 --steps 3 --lr 0.5 \
    --lora-rank 2 --threads 1 --device host --output tuned
mkdir drive
cat >offload.json <<END
{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "$work/drive"}},
 "zinf": {"placement": "exact"}}
END
check "on a drive, with an adapter" serve --config offload.json --adapter tuned=tuned/model --batch 3
for number in 1 2 3 4; do
    [ $((number % 2)) -eq 1 ] && name=model || name=tuned
    curl -s -o "by.$name.$number" "$url/v1/completions" \
        -d "{\"model\":\"$name\",\"prompt\":\"line\",\"seed\":3,$draws}" &
    asked="${asked:-} $!"
done
# shellcheck disable=SC2086  # a list of numbers
wait $asked
base=$(generated --prompt line --max-new-tokens 20 --temperature 0.7 --top-k 40 --seed 3)
tuned=$(generated --prompt line --max-new-tokens 20 --temperature 0.7 --top-k 40 --seed 3 --adapter tuned/model)
[ "$base" != "$tuned" ] && [ "$(field text by.model.1)" = "$base" ] && [ "$(field text by.model.3)" = "$base" ] &&
    [ "$(field text by.tuned.2)" = "$tuned" ] && [ "$(field text by.tuned.4)" = "$tuned" ]
verdict $? "each by its name"
check "it ends, too" end_server

# ---- many at once, of a model larger than the memory ----

# What the program itself takes depends on how it is built: the limits are counted from there.
megabytes() { # a line of the table of the plan
    sed -n "s/^ *$1  *\([0-9]*\)\.[0-9]* MiB.*/\1/p" server.err
}
check "a deep model" run 0 "$zinf" init --arch gpt2 --size small --layers 200 --hidden 64 --heads 4 \
    --vocab 257 --context 64 --tokenizer bytes --seed 5 --output deep
deep="--model deep --threads 1 --device host"
run 1 "$zinf" serve $deep --config offload.json --batch 2 --max-total-tokens 32 --host-memory 1MiB --port 0
cp said.err server.err
host=$(($(megabytes 'host   this program and its libraries') + 14))
serve --model deep --config offload.json --batch 2 --max-total-tokens 32 \
    --host-memory ${host}MiB --device-memory 17MiB
verdict $? "is served in 31 MiB beside the program"
[ "$(stat -c %s deep/model.safetensors)" -gt $((38 << 20)) ]
verdict $? "and has more than 38"
number=0
deep_pids=
while [ $number -lt 50 ]; do
    number=$((number + 1))
    curl -s -o "deep.$number" "$url/v1/completions" \
        -d "{\"prompt\":\"text $number\",\"seed\":$number,\"max_tokens\":6,\"temperature\":0.7}" &
    deep_pids="$deep_pids $!"
done
# shellcheck disable=SC2086  # a list of numbers
wait $deep_pids
number=0
same=0
while [ $number -lt 50 ]; do
    number=$((number + 1))
    "$zinf" generate $deep --json --prompt "text $number" --seed $number --max-new-tokens 6 \
        --temperature 0.7 >made 2>/dev/null
    [ -s made ] && [ "$(field text "deep.$number")" = "$(field text made)" ] && same=$((same + 1))
done
echo "# $same of 50"
[ $same -eq 50 ]
verdict $? "each of 50 clients gets the text of zinf generate"
check "it ends as well" end_server

# ---- what takes too long ----

check "with little time" serve --model deep --batch 1 --ignore-eos --timeout 2
# A byte every half second is never silent for long, and would take a minute.
trickle() {
    i=0
    while [ $i -lt 60 ] && printf a 2>/dev/null; do
        i=$((i + 1))
        sleep 0.5
    done
}
trickle | curl -s -m 40 -o slow -X POST -H 'Expect:' -T - "$url/generate" &
slow=$!
# Each has more to say than there is time for, so that all but the first wait for longer than they may.
number=0
while [ $number -lt 12 ]; do
    number=$((number + 1))
    curl -s -o "late.$number" -w '%{http_code}\n' "$url/v1/completions" \
        -d '{"prompt":"abc","max_tokens":50,"n":16,"temperature":1}' >>late &
    late_pids="${late_pids:-} $!"
done
# shellcheck disable=SC2086  # a list of numbers
wait $late_pids
echo "#" $(sort late | uniq -c) # status and how often
[ "$(grep -c 504 late)" -ge 8 ] && grep -l 'has waited for longer than zinf serve.s --timeout' late.* >/dev/null
verdict $? "requests that wait end by 504"
wait $slow
code=$?
echo "# curl: $code"
[ $code -ne 0 ] && [ $code -ne 28 ] && [ ! -s slow ]
verdict $? "a client that sends a byte at a time is cut off"
check "others are answered" ask 200 /generate '{"inputs":"abc","parameters":{"max_new_tokens":2}}'
check "the end of it" end_server

check "a port that is none" run 2 "$zinf" serve --model model --port 70000
check "an adapter that is not there" run 1 "$zinf" serve --model model --adapter a=nowhere
complains "there is no folder nowhere"
verdict $? "is named"
finish
