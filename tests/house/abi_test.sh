#!/bin/sh
# The library's ABI: it exports what the headers of the manual's section 3 declare and a few functions
# beside them, and nothing else; all of it is in headers that are installed, and described there.
. "$SRCDIR/tests/support/command.sh"
library=$BUILDDIR/.libs/libzinf.so
headers="aio/aio.h aio/drive_bench.h cpu_optim/optim.h src/train/train.h src/train/decode.h src/train/generate.h src/train/estimate.h
    src/train/checkpoints.h"
beside="zinf_error zinf_log_set_level zinf_log_set_sink zinf_dtype_bytes zinf_dtype_name zinf_dtype_parse
    zinf_size_format zinf_size_parse zinf_cpu_count zinf_config_destroy zinf_config_load
    zinf_config_parse zinf_config_print zinf_config_write zinf_dataset_close zinf_dataset_n_tokens
    zinf_dataset_n_windows zinf_dataset_open zinf_dataset_window zinf_tokenizer_close
    zinf_tokenizer_decode zinf_tokenizer_encode zinf_tokenizer_end_of_text zinf_tokenizer_open
    zinf_tokenizer_vocab zinf_tokens_free"

functions_of() { # headers: that they declare
    for header; do
        sed -e 's:/\*[^*]*\*/::g' "$SRCDIR/$header" | awk '/\/\*/ { inside = 1 }
            !inside && !/^ *#/ && !/static inline/ && !/^ +return/ { print } /\*\// { inside = 0 }' |
            grep -oE '\bzinf_[a-z0-9_]+\(' | tr -d '('
    done | sort -u
}
{ functions_of $headers; printf '%s\n' $beside; } | sort -u >"$work/wanted"

exported() {
    nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort -u \
        >"$work/exported"
    diff "$work/wanted" "$work/exported" | sed -n 's/^</# not exported:/p; s/^>/# exported too:/p'
    cmp -s "$work/wanted" "$work/exported"
}
installed() { # headers that make install puts there
    (cd "$SRCDIR" && sed -e :a -e '/\\$/{N;s/\\\n//;ta' -e '}' \
        $(find aio cpu_optim kernels offload src -name local.mk) | sed -n 's/^INSTALLED_H += //p' |
        tr -s ' \t' '\n\n')
}
declared() {
    (cd "$SRCDIR" && cat $(installed)) >"$work/declarations"
    while read -r function; do
        grep -q "\<$function(" "$work/declarations" ||
            { echo "# $function is in no installed header"; return 1; }
    done <"$work/wanted"
}
described() {
    pages="$SRCDIR/man/zinf_aio.3 $SRCDIR/man/zinf_optim.3 $BUILDDIR/man/zinf_train.3"
    while read -r function; do
        grep -qw -e "$function" $pages || { echo "# $function is in no page"; return 1; }
    done <"$work/wanted"
}
if [ ! -f "$library" ] || ! command -v nm >/dev/null; then
    skip "what the library exports" "no shared library, or no nm"
else
    check "the library exports $(wc -l <"$work/wanted") functions and nothing else" exported
fi
check "each is declared in an installed header" declared
check "each is described in the manual" described
finish
