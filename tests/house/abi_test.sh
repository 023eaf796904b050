#!/bin/sh
# The library's ABI: it exports what the installed headers declare, and nothing else; all of it is in headers that are installed, and described there.
. "$SRCDIR/tests/support/command.sh"
library=$BUILDDIR/.libs/libzinf.so
headers="aio/aio.h aio/drive_bench.h cpu_optim/optim.h src/api/api.h src/train/checkpoints.h src/base/base.h"
# Their declarations, but for what stays behind where they are installed, and inline functions.
functions_of() { # headers: that they declare
    for header; do
        sed -e '/{ not installed/,/} not installed/d' -e 's:/\*[^*]*\*/::g' "$SRCDIR/$header" | awk '/\/\*/ { inside = 1 }
            !inside && !/^ *#/ && !/static inline/ && !/^ +return/ { print } /\*\// { inside = 0 }' |
            grep -oE '\bzinf_[a-z0-9_]+\(' | tr -d '('
    done | sort -u
}
functions_of $headers >"$work/wanted"
unlisted() { # headers that are installed and not looked at here
    for header in $(installed); do
        case " $headers " in *" $header "*) ;; *) echo "# $header is installed"; return 1 ;; esac
    done
}

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
    pages="$SRCDIR/man/zinf_aio.3 $SRCDIR/man/zinf_optim.3 $BUILDDIR/man/zinf_api.3"
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
check "no other header is installed" unlisted
check "each is described in the manual" described
finish
