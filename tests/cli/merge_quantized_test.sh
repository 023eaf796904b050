#!/bin/sh
# export --merge above bases that are quantised in their folders: what no adapter changes keeps its
# form, what one changes becomes numbers, and config.json says which; or all become numbers.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
fixtures=$SRCDIR/tests/fixtures
data=$fixtures/qwen3_a/tokens.npy

loss() { # model, adapter or nothing
    "$zinf" eval --model "$1" --data "$data" --seq-len 8 ${2+--adapter "$2"} 2>/dev/null |
        sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p'
}
near() { # one, other
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d < 2e-6 && d > -2e-6) }'
}
merged() { # base, options...: the loss of what export makes, which is in merged
    merged_base=$1
    shift
    rm -rf merged
    run 0 "$zinf" export --merge --model "$merged_base" --checkpoint trained/model --output merged "$@" &&
        loss merged
}
tensor() { # folder, name: its dtype
    "$zinf" inspect "$1" | awk -v name="$2" '$1 == name { print $2 }'
}

for form in llama_nf4 llama_int8 fp8/qwen3 gpt_oss_mxfp4; do
    base=$fixtures/$form
    rm -rf trained
    check "$form: adapters of two modules" run 0 "$zinf" train --model "$base" --data "$data" \
        --seq-len 8 --steps 3 --lr 0.02 --lora-rank 2 --lora-targets q_proj,v_proj --threads 1 \
        --progress none --output trained
    with=$(loss "$base" trained/model)
    near "$with" "$(merged "$base")" && ! near "$with" "$(loss "$base")"
    verdict $? "$form: what is merged computes what base and adapter do"
    if [ $form = gpt_oss_mxfp4 ]; then
        experts=model.layers.0.mlp.experts.down_proj_blocks
        [ "$(tensor merged $experts)" = U8 ]
        verdict $? "$form: experts keep their form"
        check "$form: experts do not become numbers" run 1 "$zinf" export --merge --model "$base" \
            --checkpoint trained/model --dtype fp32 --output numbers
        check "$form: and it says why" complains "mxfp4" "leave out --dtype"
        continue
    fi
    down=model.layers.0.mlp.down_proj.weight q=model.layers.0.self_attn.q_proj.weight
    [ "$(tensor merged $down)" = "$(tensor "$base" $down)" ] &&
        [ "$(tensor merged $q)" != "$(tensor "$base" $q)" ]
    verdict $? "$form: only what is changed becomes numbers"
    holds merged/config.json quantization_config '"model.layers.0.self_attn.q_proj"'
    verdict $? "$form: config.json says which"
    near "$with" "$(merged "$base" --dtype fp32)" && ! grep -q quantization_config merged/config.json
    verdict $? "$form: all may become numbers"
done
finish
