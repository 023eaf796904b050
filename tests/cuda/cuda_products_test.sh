#!/bin/sh
# cuda_products: of several algorithms for a product the fastest is taken, and stays with the run: a
# GPU on which others are faster goes on with the same bits, on one rank or two. On the stand-in for
# CUDA, whose algorithms have sums of different last bits.
. "$SRCDIR/tests/support/command.sh"
cd "$work" || exit 99
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
[ -f "$module" ] || { skip "algorithms of the CUDA device" "no stand-in here"; finish; }
ZINF_CUDA_MODULE=$module ZINF_STANDIN_ALGORITHMS=5 ZINF_STANDIN_SPEEDS=1
XDG_CACHE_HOME=$work/cache
export ZINF_CUDA_MODULE ZINF_STANDIN_ALGORITHMS ZINF_STANDIN_SPEEDS XDG_CACHE_HOME
"$zinf" init --arch gpt2 --size small --layers 1 --hidden 32 --heads 2 --context 64 --vocab 257 \
    --tokenizer bytes --output model >/dev/null 2>&1 || exit 99
make_text text.txt 20
train() { # output, options...
    output=$1
    shift
    run 0 "$zinf" train --model model --data text.txt --seq-len 32 --micro-batch 2 --lr 1e-3 \
        --threads 1 --dropout 0 --progress none --device cuda --output "$output" "$@"
}
losses() { # output, least step
    sed -n 's/.*"step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1/log.jsonl" |
        awk -v least="$2" '$1 >= least'
}
alike() { # output, output, least step
    losses "$1" "$3" >a && losses "$2" "$3" >b && [ -s a ] && cmp -s a b
}
unlike() { ! alike "$@"; }
other_speeds() { # without what is known of this machine
    rm -rf cache
    ZINF_STANDIN_SPEEDS=$1
}

echo '{"zinf": {"time_products": false}}' >off.json
check "first proposals" train first --steps 4 --config off.json
[ ! -e first/products.json ] && [ ! -e cache ]
verdict $? "leave no file"
check "timed ones" train one --steps 4 --save-every 2
[ -s one/products.json ] && cmp -s one/products.json one/checkpoint-2/products.json
verdict $? "are in the run's folder and its checkpoint's"
check "have other bits" unlike first one 1
check "another run of this machine" train two --steps 4
check "has the same bits" alike one two 1
other_speeds 2
check "on a GPU with other speeds" train three --steps 4
check "a new run has other bits" unlike one three 1
other_speeds 2
cp -r one/checkpoint-2 kept
check "one that goes on" train on --steps 4 --resume=kept
check "keeps them" alike one on 3
check "one that goes on and may not time" train untimed --steps 4 --resume=kept --config off.json
check "keeps them, too" alike one untimed 3
check "one without choices" train plain --steps 4 --save-every 2 --config off.json
cp -r plain/checkpoint-2 kept-plain
check "that goes on and may time" train later --steps 4 --resume=kept-plain
[ ! -e later/products.json ] && alike first later 3
verdict $? "keeps the first proposals"
other_speeds 3
# Ranks add the gradients of micro-batches in a tree; one rank does so if it is asked to.
echo '{"zinf": {"gradient_sum": "tree"}}' >tree.json
ZINF_STANDIN_GPUS=2
export ZINF_STANDIN_GPUS
check "two ranks" train ranks --steps 4 --seats 2 --micro-batch 1 --save-every 2 --config tree.json
cp -r ranks/checkpoint-2 kept-ranks
unset ZINF_STANDIN_GPUS
other_speeds 4
check "on other GPUs" train both --steps 4 --micro-batch 1 --accumulate 2 --resume=kept-ranks \
    --config tree.json
check "one rank goes on with the same bits" alike ranks both 3
# Sums of gradients: five micro-batches are added four times. Those of a layer's matrices are by
# products, unless these begin with the sum, and so have other bits.
by_products() { grep -q "products add to sums by themselves" said.err; }
by_kernels() { grep -q "a kernel adds them to sums, as products that add have other bits" said.err; }
kept_apart() { grep -q "a kernel adds them to sums, as this training began without" said.err; }
added() { # by whom: numbers of a step
    sed -n "s/.*gradient sums of a step:.* \\([0-9][0-9]*\\)[a-z ]* by $1.*/\\1/p" said.err | head -n 1
}
matrices=$((4 * (3 + 1 + 4 + 4) * 32 * 32))
five() { # output, options...
    out=$1
    shift
    train "$out" --micro-batch 1 --accumulate 5 "$@"
}
for order in layer-major micro-major; do
    echo "{\"zinf\": {\"accumulation_order\": \"$order\"}}" >order.json
    other_speeds 2
    check "$order" five "$order" --steps 3 --save-every 1 --config order.json
    by_products
    verdict $? "products add gradients to sums"
    products=$(added products) kernels=$(added kernels)
    [ "$products" = "$matrices" ]
    verdict $? "all of matrices: $products numbers, $kernels others"
    other_speeds 2
    ZINF_STANDIN_ADDS_FIRST=1
    export ZINF_STANDIN_ADDS_FIRST
    check "where those add in another order" five "$order-apart" --steps 3 --save-every 1 \
        --config order.json
    by_kernels
    verdict $? "a kernel does"
    [ "$(added products)" = 0 ] && [ "$(added kernels)" = $((products + kernels)) ]
    verdict $? "of as many numbers"
    check "and the bits are the same" alike "$order" "$order-apart" 1
    cp -r "$order/checkpoint-1" "kept-$order"
    check "a run that goes on there" five "$order-on" --steps 3 --resume="kept-$order"
    unset ZINF_STANDIN_ADDS_FIRST
    by_kernels && alike "$order" "$order-on" 2
    verdict $? "has these bits, too"
    cp -r "$order-apart/checkpoint-1" "kept-$order-apart"
    check "one that began with a kernel" five "$order-same" --steps 3 --resume="kept-$order-apart"
    kept_apart && alike "$order" "$order-same" 2
    verdict $? "stays with it"
done
echo '{"zinf": {"gradient_sum": "tree", "accumulation_order": "layer-major"}}' >tree.json
other_speeds 2
ZINF_STANDIN_GPUS=2
export ZINF_STANDIN_GPUS
check "two ranks, in a tree" train tree --steps 2 --seats 2 --micro-batch 1 --accumulate 4 \
    --config tree.json
unset ZINF_STANDIN_GPUS
by_products
verdict $? "add by products"
other_speeds 2
ZINF_STANDIN_ADDS_FIRST=1
export ZINF_STANDIN_ADDS_FIRST
check "one rank, by kernels" train tree-one --steps 2 --micro-batch 1 --accumulate 8 \
    --config tree.json
unset ZINF_STANDIN_ADDS_FIRST
by_kernels && alike tree tree-one 1
verdict $? "has the same bits"
other_speeds 2
ZINF_STANDIN_BLAS_VERSION=140000
export ZINF_STANDIN_BLAS_VERSION
check "another library" train library --steps 4 --resume=kept
complains "kept/products.json" "cuBLASLt 130000" "cuBLASLt 140000" "chosen anew"
verdict $? "is named"
check "chooses anew" unlike one library 3
unset ZINF_STANDIN_BLAS_VERSION
echo '{"format": 1, "by": "' >kept/products.json
"$zinf" train --model model --data text.txt --resume=kept --output broken --device cuda --steps 4 >said.out 2>said.err
[ $? -ne 0 ] && grep -q "kept/products.json is damaged" said.err
verdict $? "a damaged file of a checkpoint is refused"
other_speeds 1
check "a machine that is known" train known --steps 4
sed -i 's/"algorithm":\["\(.\)[^"]*/&\1/' cache/zinf/products-*.json
check "another algorithm in what is known of it" train damaged --steps 4
check "is not taken" alike one damaged 1
finish
