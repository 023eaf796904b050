#!/bin/sh
# house: what the sources must look like as a whole. Words of one family of models stand in that
# family's file alone; files call each other without a circle, and so do headers include each other;
# calls between folders point down, as includes do (arrows_test.sh); functions stay short enough to
# read. Long files and functions are listed for the reader.
#
# Circles are found from the objects, by who defines what another one needs: a table of functions
# that is needed counts as a call.
. "$SRCDIR/tests/support/command.sh"
cd "$SRCDIR" || exit 99

MOST_FUNCTION_LINES=60
program='aio net cpu_optim kernels offload src'

# Where a word may stand although it is a family's, each with its reason.
#   src/model/families/family.c, family.h   the table of families
#   src/train/save/gguf*                    what another program calls families and their parts
exceptions='src/model/families/family\.[ch]|src/train/save/gguf[a-z_]*\.[ch]'

# ---- reporting ----

# Findings: the name of each, and after a tab what is there to say about it.
judge() { # name of the case, file of findings
    sed 's/^/# /; s/\t/: /' "$2"
    [ ! -s "$2" ]
    verdict $? "$1"
}

sources() { # folders...
    find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort
}

# ---- scripts ----

find tests -name '*_test.sh' ! -perm -u+x >"$work/scripts"
judge "test scripts may be executed" "$work/scripts"

mkdir "$work/empty"
(
    cd "$work/empty" || exit 99
    "$SRCDIR/scripts/build.sh" --help | grep -q '^usage: ' || printf -- '--help\tsays no usage\n'
    ls -A
) >"$work/made"
judge "build.sh --help says its usage and makes nothing" "$work/made"

# ---- words of a family ----

words() { # words as a pattern, the file where they may stand
    sources src/model src/train src/api src/cli offload | grep -vxE "$2|$exceptions" |
        xargs grep -oiHE -e "$1" /dev/null | tr 'A-Z' 'a-z' | sort | uniq -c |
        sed 's/^ *\([0-9]*\) \([^:]*\):\(.*\)/word \3 in \2\t\1 times/'
}
family='src/model/families/'
{
    words 'gpt-?2|\bw[tp]e\b|n_(positions|embd|inner|ctx)|transformer\.h' "${family}gpt(2|_bigcode|j)\.c"
    words '\bc_attn\b' "${family}gpt(2|_bigcode)\.c"
    words '\bln_[12]\b' "${family}gpt(2|_bigcode|j)\.c"
    words '\bc_(fc|proj)\b' "${family}(gpt2|gpt_bigcode|starcoder2)\.c"
    words '\bln_f\b' "${family}(gpt2|gpt_bigcode|gptj|falcon|bloom)\.c"
    words '[a-z]*_pdrop' "${family}(gpt2|gpt_bigcode|gptj|phi3)\.c"
    words '\bllama(_|\b)|_llama' "${family}(llama4?|mistral)\.c" # "llama_4_scaling_beta"; "llama3" is also a kind of RoPE
    words 'mistral' "${family}mistral\.c"
    words 'qwen-?2' "${family}qwen2(_moe)?\.c"
    words 'qwen-?3' "${family}qwen3(_moe|_next)?\.c"
    words 'phi-?3|qkv_proj' "${family}phi3\.c"
    words 'gate_up_proj' "${family}(phi3|family_tensors|family_experts|granite|gpt_oss|gemma4|llama4)\.c"
    words 'smollm' "${family}smollm3\.c"
    words 'ministral' "${family}mistral\.c"
    words 'bamba' "${family}bamba\.c"
    words 'granite' "${family}granite\.c"
    words 'seed_?oss' "${family}seed_oss\.c"
    words 'exaone' "${family}exaone4\.c"
    words 'hunyuan' "${family}hunyuan_dense\.c"
    words '\bglm' "${family}(glm4|glm4_moe|chatglm)\.c"
    words 'deepseek_|deepseekv|kimi' "${family}deepseek\.c"
    words 'cohere' "${family}cohere\.c"
    words 'ernie' "${family}ernie4_5\.c"
    words 'gpt_?oss' "${family}gpt_oss\.c"
    words 'gpt-?j|rotary_dim"|fc_(in|out)\b' "${family}gptj\.c"
    words 'internlm|\bwqkv\b|tok_embeddings' "${family}internlm2\.c"
    words 'stablelm' "${family}stablelm\.c"
    words 'nemotron' "${family}nemotron(_h)?\.c"
    words 'gpt_?neox|embed_(in|out)\b|rotary_(pct|emb_base)' "${family}gpt_neox\.c"
    words 'star_?coder' "${family}(starcoder2|gpt_bigcode)\.c"
    words 'big_?code|santa_?coder' "${family}gpt_bigcode\.c"
    words 'olmo' "${family}olmo(2|e|_hybrid)\.c"
    words 'lfm2?\b|block_ff_dim' "${family}lfm2\.c"
    words '\bopt_|word_embed_proj|do_layer_norm' "${family}opt\.c"
    words 'embed_positions' "${family}(opt|bart|gptj)\.c"
    words '\bbart|blenderbot|encoder_attn|final_logits' "${family}(bart|blenderbot)\.[ch]"
    words 'falcon|ln_(attn|mlp)' "${family}falcon(_h1)?\.c"
    words 'chatglm|multi_query_(att|group)|kv_channels' "${family}chatglm\.c"
    words 'bloom|word_embeddings_layernorm' "${family}bloom\.c"
    words 'baichuan|w_pack|z_loss_weight' "${family}baichuan\.c"
    words 'apertus' "${family}apertus\.c"
    words 'gemma' "${family}gemma[a-z0-9_]*\.[ch]"
    words 'logit_softcapping|query_pre_attn' "${family}gemma[a-z0-9_]*\.[ch]"
    words 'layer_scalar|attention_k_eq_v|kv_shared|per_layer_(input|model|projection)' "${family}gemma4\.c"
    words '\bt5\b|t5_|SelfAttention|DenseReluDense|EncDecAttention' "${family}t5\.c"
    words '\broberta' "${family}(bert|roberta)\.[ch]"
    words 'deberta_v2|rel_embeddings|position_buckets|share_att_key' "${family}deberta_v2\.c"
    words 'type_vocab' "${family}(bert|roberta|deberta_v2)\.[ch]"
    # Names that several families share in their files.
    words '[qkvo]_proj\b|(gate|up|down)_proj|model\.layers|input_layernorm|self_attn' \
        "${family}[a-z0-9_]*\.c"
    words 'query_key_value|dense_(h_to_4h|4h_to_h)|post_(attention|feedforward)_layernorm' \
        "${family}[a-z0-9_]*\.c"
    words 'gpt_?(neo\b|j|bigcode)|\bphi-?[0-9]|mixtral|\bbert\b|\bt5\b' \
        "${family}[a-z0-9_]*\.[ch]"
} >"$work/words"
judge "words of one family stand in its file" "$work/words"

# ---- who decides ----

# How things travel and in which order is decided in src/train/plan, for trainings, estimates and the
# search alike: src/train/step emits legs and visits, and asks nothing that would decide anew.
decides='reach\[|->sliced|->by_link|->lends|->direct\b|->must_link|->may_link|whole_state|layer_major'
{
    sources src/train/step | xargs grep -nE "$decides" /dev/null | sed 's/:/\t/2'
    sources src offload | grep -v '^src/train/plan/' |
        xargs grep -nE '\b(itinerary_(make|count)|travel_of|plan_set_places)\(' /dev/null |
        sed 's/:/\t/2'
} >"$work/decides"
judge "ways and orders are decided in src/train/plan alone" "$work/decides"
n_makers=$(sources src | xargs grep -cE '^struct (legs|leg) way_[a-z_]+\(const struct travel' |
    awk -F : '$2 > 0 && /\.c:/ { n++; what = $1 } END { print n, what }')
[ "$n_makers" = "1 src/train/plan/way.c" ]
verdict $? "legs are made in one file"

# ---- the CUDA module ----

# Its headers and the program's are compared by a checksum: none that they reach may be left out of it.
listed=$(sed -n '/^device_interface_headers =/,/[^\\]$/p' kernels/local.mk | grep -oE '(src|kernels)/[a-z0-9_/]+\.h')
for header in $listed; do
    sed -n 's/^#include "\(.*\)"/\1/p' "$header"
done | sort -u | while read -r reached; do
    case " $(echo $listed) " in *" $reached "* | *" src/$reached "*) ;;
    *) printf '%s\tis not in device_interface_headers of kernels/local.mk\n' "$reached" ;;
    esac
done >"$work/interface"
[ -n "$listed" ] || echo "no list" >"$work/interface"
judge "the CUDA module's interface has all of its headers" "$work/interface"

# ---- sizes ----

# A file is as long as its subject: the longest are listed for the reader, and nothing fails.
sources $program | xargs wc -l | awk '$2 != "total"' | sort -rn |
    head -n 10 | awk '{ print "# long file " $2 ": " $1 " lines" }'

# By the form that clang-format gives: a function's braces stand alone in the first column. Its
# signature counts.
sources $program | xargs awk '
    FNR == 1 { begin = 1 }
    /^[a-zA-Z_].*[(]/ && !inside {
        begin = FNR
        name = $0
        sub(/[(].*/, "", name)
        sub(/.*[ *]/, "", name)
    }
    /^[{]/ { inside = 1 }
    /^}/ {
        if (inside)
            print FNR - begin + 1, name, FILENAME
        inside = 0
    }
    ' | sort -rn >"$work/functions"
head -n 10 "$work/functions" | sed 's/\([0-9]*\) \([^ ]*\) \(.*\)/# long function \2 in \3: \1 lines/'
awk -v most=$MOST_FUNCTION_LINES '$1 > most { print $2 " in " $3 "\t" $1 " lines" }' \
    "$work/functions" >"$work/long"
judge "functions have at most $MOST_FUNCTION_LINES lines" "$work/long"
[ "$(wc -l <"$work/functions")" -gt 1000 ]
verdict $? "the functions were found"

# ---- circles ----

# Of lines "from to what": whatever lies on a circle, as "circle NAME", with what it needs on it.
circles() {
    awk '
    $1 != $2 {
        edge[$1, $2] = edge[$1, $2] " " $3
        node[$1]; node[$2]
    }
    END {
        # What nobody needs, or what needs nobody, is on no circle: it goes, again and again.
        do {
            delete needs; delete needed
            for (pair in edge) {
                split(pair, end, SUBSEP)
                needs[end[1]]; needed[end[2]]
            }
            gone = 0
            for (i in node) if (!(i in needs && i in needed)) { gone++; delete node[i] }
            for (pair in edge) {
                split(pair, end, SUBSEP)
                if (!(end[1] in node && end[2] in node)) delete edge[pair]
            }
        } while (gone)
        for (pair in edge) reaches[pair]
        for (k in node) for (i in node) if ((i, k) in reaches)
            for (j in node) if ((k, j) in reaches) reaches[i, j] = 1
        for (i in node) if ((i, i) in reaches)
            for (j in node) if ((i, j) in edge && (j, i) in reaches)
                print "circle " i "\tneeds " j ":" edge[i, j]
    }' | sort
}

sources $program | grep '\.h$' | xargs grep -Ho '^ *# *include "[^"]*/[^"]*"' |
    sed 's/: *# *include "/ /; s/"$//' | while read -r header path; do
    [ -f "$path" ] || path=src/$path
    echo "$header $path includes"
done | circles >"$work/circles"
judge "headers include each other without a circle" "$work/circles"

# "SYMBOL FILE" of what the sources' objects define (T: also data), and of what they need.
object_of() { # source; libtool puts a library's name before that of an object with own flags
    folder=$BUILDDIR/${1%/*} name=${1##*/}
    name=${name%.c}.o
    for object in "$folder/.libs/$name" "$folder/.libs"/*_la-"$name" "$folder/$name"; do
        [ ! -f "$object" ] || { echo "$object" && return; }
    done
}
symbols() { # option of nm
    cut -d ' ' -f 2 "$work/objects" | xargs nm -A -P -g "$1" |
        awk 'NR == FNR { source[$2] = $1; next } { sub(/:$/, "", $1); print $2, source[$1] }' \
            "$work/objects" -
}
if command -v nm >/dev/null; then
    # Sources without an object are modules that this build leaves out.
    : >"$work/objects"
    : >"$work/missing"
    modules='kernels/cuda/|net/net_mpi|net/net_nccl|src/cli/serve/serve_'
    find $program -name '*.c' | sort | while read -r source; do
        object=$(object_of "$source")
        [ -z "$object" ] || echo "$source $object" >>"$work/objects"
        [ -n "$object" ] || echo "no object of $source" >>"$work/missing"
    done
    grep -vE "^no object of ($modules)" "$work/missing" >"$work/lost"
    judge "every source has an object" "$work/lost"
    # The CUDA module has functions of its own for those of src/base that it is handed.
    symbols --defined-only | grep -v '^zinf_.* kernels/cuda/module\.c' | sort >"$work/defined"
    symbols --undefined-only | sort >"$work/needed"
    # "FROM TO SYMBOL"; names that begin with __ are a sanitizer's.
    join -o 1.2,2.2,0 "$work/needed" "$work/defined" | grep -v ' __' >"$work/calls"
    [ "$(wc -l <"$work/calls")" -gt 3000 ]
    verdict $? "the calls were found"
    circles <"$work/calls" >"$work/circles"
    judge "files call each other without a circle" "$work/circles"
    # Folders that stand on each other; those of one level do not.
    awk '
    BEGIN {
        split("src/base|aio net cpu_optim kernels src/config src/formats src/text src/metrics|" \
              "offload src/model|src/train|src/api src/bench|src/cli", levels, "|")
        for (l in levels) {
            n = split(levels[l], folders, " ")
            for (i = 1; i <= n; i++) level[folders[i]] = l
        }
    }
    function folder(path) { match(path, /^(src\/)?[a-z_]+/); return substr(path, 1, RLENGTH) }
    {
        a = folder($1); b = folder($2)
        if (a != b && level[b] >= level[a])
            print "call from " $1 " to " $2 "\t" $3
    }' "$work/calls" >"$work/upward"
    judge "calls between folders point down" "$work/upward"
else
    skip "calls without a circle, and downward" "nm is not installed"
fi

finish
