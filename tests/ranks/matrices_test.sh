#!/bin/sh
# Optimizers of whole matrices over ranks: each matrix is one rank's, at every stage. Checkpoints of
# two are those of one, byte for byte, what is kept of matrices beside moments too, and another
# number of ranks goes on from them, within a period of a projection. So do ranks in a pipeline, which
# have other layers each.
. "$SRCDIR/tests/support/command.sh"
. "$SRCDIR/tests/support/ranks.sh"

config() { # file, accumulation, type, parameters
    zero_stage=3 rank_config "$1" 1 "$2" nvme "$work" ', "durability": "none", "timeout": 60'
    sed "s/\"AdamW\", \"params\": {\"lr\": 1e-3}/\"$3\", \"params\": {\"lr\": 1e-3$4}/" "$1" >"$1.tmp"
    mv "$1.tmp" "$1"
    grep -q "\"$3\"" "$1" || exit 99
}
make_rank_model
options="$options --steps 5"
# shellcheck disable=SC2086 # options are words
train() { "$zinf" train $options "$@"; }

goes_on() { # folder, seats, configuration, ranks in a pipeline, whose checkpoint: two's
    mkdir "$work/$1" && cp -r "${5:-$two}/checkpoint-2" "$work/$1/"
    check "$type: $2 go on as $1" run 0 train --config "$3" --seats "$2" \
        --pipeline-parallel "${4:-1}" --resume="$work/$1/checkpoint-2" --output "$work/$1"
    check "$type: to the same weights" cmp "$one/model/model.safetensors" \
        "$work/$1/model/model.safetensors"
    check "$type: and the same state" cmp "$one/checkpoint-5/optimizer/$last" \
        "$work/$1/checkpoint-5/optimizer/$last"
}

# Two in a pipeline by two: each has its layers' matrices, and of these every other one.
in_a_grid() {
    grid=$work/$type-grid
    check "$type: two by two" run 0 train --config "$two.json" --seats 4 --pipeline-parallel 2 \
        --save-every 2 --output "$grid"
    check "$type: the same losses, norms and weights of two by two" same_result "$one" "$grid"
    check "$type: and the same state" cmp "$one/checkpoint-2/optimizer/$last" \
        "$grid/checkpoint-2/optimizer/$last"
    goes_on "$type-grid-again" 4 "$two.json" 2 "$grid"
    goes_on "$type-grid-by-one" 1 "$one.json" 1 "$grid"
}

for type in Muon NorMuon GaLoreAdamW APOLLO; do
    keys=
    last=moment2.safetensors
    case $type in
        GaLoreAdamW | APOLLO) keys=', "rank": 3, "update_proj_gap": 3' last=moment3.safetensors ;;
        NorMuon) last=moment3.safetensors ;;
    esac
    one=$work/$type-1 two=$work/$type-2
    config "$one.json" 8 $type "$keys"
    config "$two.json" 4 $type "$keys"
    config "$work/four.json" 2 $type "$keys"
    check "$type: one rank" run 0 train --config "$one.json" --seats 1 --save-every 2 --output "$one"
    check "$type: two, at stage 3, state on a drive" run 0 train --config "$two.json" --seats 2 \
        --save-every 2 --output "$two"
    check "$type: the same losses, norms and weights" same_result "$one" "$two"
    same=0
    for file in "$one"/checkpoint-2/optimizer/*; do
        cmp "$file" "$two/checkpoint-2/optimizer/${file##*/}" || same=1
    done
    [ -f "$one/checkpoint-2/optimizer/$last" ] || same=1
    verdict $same "$type: and the same checkpoint"
    goes_on "$type-4" 4 "$work/four.json"
    [ "$type" != NorMuon ] || goes_on "$type-pipe" 4 "$two.json" 2
    [ "$type" != Muon ] || in_a_grid
    [ "$type" = Muon ] || goes_on "$type-5" 1 "$one.json"
done

finish
