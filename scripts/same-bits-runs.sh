# shellcheck shell=bash disable=SC2086 # settings are words without spaces
# same-bits-runs: the combinations of scripts/same-bits.sh, which sources this.

# One line each: name, then settings as KEY=VALUE that differ from the defaults in measure_one().
# A "!" in front: part of --quick.
placements() { # prefix, settings...: nine lines
    local prefix=$1 param state mark=''
    shift
    case $prefix in !*) mark='!' prefix=${prefix#!} ;; esac
    for param in none cpu nvme; do
        for state in none cpu nvme; do
            # Of the quick ones, the diagonal and the two that are furthest from it.
            case $mark$param-$state in
            !none-none | !cpu-cpu | !nvme-nvme | !none-nvme | !nvme-none)
                echo "!$prefix/param-$param/state-$state" "param=$param" "state=$state" "$@" ;;
            *) echo "$prefix/param-$param/state-$state" "param=$param" "state=$state" "$@" ;;
            esac
        done
    done
}
schedules() { # prefix, settings...: four lines
    local prefix=$1 schedule
    shift
    for schedule in serial prefetch update-in-forward update-in-backward; do
        echo "$prefix/$schedule" "schedule=$schedule" "$@"
    done
}
# Eight samples a step, by several ranks. Where parameters are whole on each rank they are on the
# device.
several_ranks() {
    local by stage n mark places place tree='extra=,"gradient_sum":"tree","timeout":60'
    for stage in 1 2 3; do
        places=none
        [ $stage -lt 3 ] || places='cpu nvme'
        for place in $places; do
            for n in 1 2 4; do
                mark=''
                [ $n != 2 ] || mark='!'
                echo "${mark}seats-$n/stage-$stage/$place" "by=seats" "ranks=$n" "stage=$stage" \
                    "accumulation=$((4 / n))" "param=$place" state=nvme precision=bf16 "$tree"
            done
            for by in mpi tcp; do
                [ "$by$mpi" != mpi0 ] || continue
                echo "$by-2/stage-$stage/$place" "by=$by" ranks=2 "stage=$stage" accumulation=2 \
                    "param=$place" state=cpu "$tree"
            done
        done
        for place in $places; do
            echo "seats-2/stage-$stage/$place/copies" by=seats ranks=2 "stage=$stage" accumulation=2 \
                "param=$place" state=nvme copies=1 precision=bf16 "$tree"
        done
    done
    echo seats-2/adafactor by=seats ranks=2 stage=2 param=none optimizer=Adafactor accumulation=2 "$tree"
    echo seats-2/experts by=seats ranks=2 model=experts accumulation=2 \
        "$tree,\"expert_fetch\":\"chosen\""
}
# Models that are no plain decoder.
other_models() {
    local place fetch copies nf4='"quantize":"nf4","adapter":{"r":4}'
    for place in none cpu nvme; do
        for copies in 0 1; do
            echo "nf4/$place/copies-$copies" "param=$place" state=cpu precision=bf16 accumulation=2 \
                "copies=$copies" "extra=,$nf4"
            echo "pairs/$place/copies-$copies" kind=pairs model=pairs "param=$place" \
                "state=$place" accumulation=2 "copies=$copies"
            echo "classes/$place/copies-$copies" kind=classes model=classes "param=$place" \
                "state=$place" accumulation=2 "copies=$copies"
            for fetch in auto all chosen; do
                echo "experts/$fetch/$place/copies-$copies" model=experts "param=$place" \
                    "state=$place" micro=1 accumulation=4 "copies=$copies" \
                    "extra=,\"expert_fetch\":\"$fetch\""
            done
        done
        echo "!experts/$place" model=experts "param=$place" "state=$place" accumulation=2 copies=1
        echo "!nf4/$place" "param=$place" state=nvme precision=bf16 "extra=,$nf4"
        echo "!pairs/$place" kind=pairs model=pairs "param=$place" "state=$place" copies=1
        echo "!classes/$place" kind=classes model=classes "param=$place" "state=$place" copies=1
    done
    echo nf4/files param=nvme precision=bf16 'extra=,"adapter":{"r":4}'
    echo nf4/files/copies param=nvme precision=bf16 copies=1 'extra=,"adapter":{"r":4}'
}
# Steps that are predicted and not run, of what is too large to run.
large_models() {
    local large='kind=program precision=bf16 seq=1024 accumulation=2 group=1e9' place machine ranks gather
    local gpu='--machine+4090,ram=200G,nvme=7/6' llama='init=--arch,llama,--layers,6,--size'
    for place in none cpu nvme; do
        for machine in "${gpu/4090/a100-80}" --machine+h100,ram=900G,nvme=13/9 --machine+cpu,ram=200G,nvme=3/2; do
            echo "program/$place/$machine" $large "$llama,7b" "param=$place" "state=$place" \
                "machine=$machine"
        done
        for gather in host device; do
            [ $place-$gather != none-host ] || continue # slices do not go that way
            for ranks in --ranks+4 --ranks+8+--gpus-per-host+4+--network+25Gbit/s --seats+4; do
                echo "program/$place/$ranks/$gather" $large "$llama,7b" "param=$place" \
                    "state=$place" "machine=$gpu+$ranks" "extra=,\"gather\":\"$gather\""
            done
        done
    done
    echo program/70b $large "$llama,70b" "machine=$gpu"
    echo program/70b/cpu $large "$llama,70b" state=nvme param=cpu "machine=$gpu"
    echo program/experts $large 'init=--arch,mixtral,--layers,4,--size,8x7b' "machine=$gpu"
    echo program/pairs $large 'init=--arch,t5,--layers,4,--size,xl' "machine=$gpu"
    echo program/adapter $large "$llama,13b" "machine=$gpu" 'extra=,"adapter":{"r":8}'
    echo program/nf4 $large "$llama,13b" "machine=$gpu" \
        'extra=,"quantize":"nf4","adapter":{"r":8}'
    echo program/factored $large optimizer=Adafactor "$llama,7b" "machine=$gpu"
    echo program/in-place $large clip=0 schedule=update-in-place "$llama,7b" "machine=$gpu"
    echo program/tree $large "$llama,7b" "machine=$gpu" 'extra=,"gradient_sum":"tree"'
}
combinations() {
    # About every second step clips: single samples, and too little learning to change the norms.
    local clips='micro=1 seq=8 lr=2e-5 steps=14 clip=7.9' p place o extra
    placements '!fp32' precision=fp32
    placements 'bf16' precision=bf16
    placements 'fp32/x4' precision=fp32 accumulation=4
    placements '!bf16/x4' precision=bf16 accumulation=4
    placements 'fp32/dropout-off/clip-off' precision=fp32 dropout=0 clip=0
    for p in fp32 bf16; do
        schedules "$p/device" precision=$p param=none state=none
        schedules "$p/cpu" precision=$p param=cpu state=cpu
        schedules "$p/nvme" precision=$p
        schedules "$p/nvme/x4" precision=$p accumulation=4
        schedules "$p/nvme/copies" precision=$p copies=1
        schedules "!$p/nvme/clips" precision=$p $clips
        schedules "$p/cpu/clips" precision=$p param=cpu state=cpu $clips
        schedules "$p/nvme/x4/clip-off" precision=$p accumulation=4 clip=0
        schedules "$p/share" precision=$p ratio=0.4 $clips
        for place in none cpu nvme; do
            for o in micro-major layer-major; do
                echo "!$p/$place/x4/$o" precision=$p param=$place state=$place accumulation=4 \
                    order=$o
            done
        done
        for extra in '"activation_checkpointing":"always"' '"activation_checkpointing":"never"' \
            '"activation_device":"cpu","activation_checkpointing":"always"' \
            '"activation_device":"nvme","activation_checkpointing":"always"' \
            '"grad_device":"cpu"' '"grad_device":"nvme"' '"look_ahead":0' '"look_ahead":3' \
            '"placement":"exact"' '"placement":"fill"' '"optimizer_device":"auto"' \
            '"durability":"none"' '"async_save":true' '"device_memory":"1700KiB"'; do
            echo "$p/x2/$extra" precision=$p accumulation=2 "extra=,$extra"
        done
    done
    schedules fp16/nvme precision=fp16 clip=1000 steps=14
    schedules fp16/cpu/x4 precision=fp16 clip=1000 steps=14 param=cpu state=cpu accumulation=4
    for o in Adam AdamW8bit Adafactor Lion Adagrad SGD; do
        for place in cpu nvme; do
            echo "optimizer/$o/$place" "optimizer=$o" param=$place state=$place accumulation=2
        done
        echo "optimizer/$o/bf16" "optimizer=$o" precision=bf16
    done
    for place in none cpu nvme; do
        echo "!threads-2/$place" param=$place state=$place threads=2 accumulation=2
        echo "odd/$place" model=odd param=$place state=$place micro=3 seq=13 accumulation=2
        echo "odd/bf16/$place" model=odd precision=bf16 param=$place state=$place micro=3 seq=13
        echo "tiles/$place" model=tiles param=$place state=$place accumulation=4
        echo "tiles/bf16/$place" model=tiles precision=bf16 param=$place state=$place
        echo "!resume/$place" kind=resume param=$place state=$place
        echo "resume/bf16/$place" kind=resume precision=bf16 param=$place state=$place
        echo "gradients/$place" kind=gradients param=$place state=$place
        echo "gradients/tiles/$place" kind=gradients model=tiles param=$place state=$place
        echo "gradients/bf16/$place" kind=gradients precision=bf16 param=$place state=$place
        echo "eval/$place" kind=eval param=$place state=$place
        echo "eval/bf16/$place" kind=eval precision=bf16 param=$place state=$place
        echo "generate/$place" kind=generate param=$place state=$place
        echo "generate/tiles/$place" kind=generate model=tiles param=$place state=$place
    done
    for p in fp32 bf16 fp16; do
        echo "init/$p" kind=init precision=$p
        echo "fresh/$p" kind=fresh precision=$p
        echo "export/$p" kind=export precision=$p
    done
    several_ranks
    other_models
    [ $programs = 0 ] || large_models
    if [ $cuda = 1 ]; then
        placements 'cuda/fp32' device=cuda steps=3
        placements 'cuda/bf16/x4' device=cuda precision=bf16 accumulation=4 steps=3
        for p in fp32 bf16; do
            schedules "cuda/$p/nvme" device=cuda precision=$p
            schedules "!cuda/$p/cpu/clips" device=cuda precision=$p param=cpu state=cpu $clips
            echo "cuda/$p/layer-major" device=cuda precision=$p accumulation=4 order=layer-major
            echo "cuda/$p/auto" device=cuda precision=$p 'extra=,"optimizer_device":"auto"'
            echo "cuda/$p/share" device=cuda precision=$p ratio=0.4
            echo "cuda/gradients/$p" device=cuda kind=gradients precision=$p
            echo "cuda/generate/$p" device=cuda kind=generate precision=$p
        done
        for place in cpu nvme; do
            echo "cuda/experts/$place" device=cuda model=experts param=$place state=$place micro=1
            echo "cuda/pairs/$place" device=cuda kind=pairs model=pairs param=$place state=$place
        done
        echo cuda/odd device=cuda model=odd micro=3 seq=13
        echo cuda/tiles device=cuda model=tiles accumulation=2
        echo cuda/resume device=cuda kind=resume
    fi
}
