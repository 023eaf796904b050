#!/bin/sh
# man: pages of the library name every public identifier of their header, and their examples are
# programs that compile and run as they stand.
. "$SRCDIR/tests/support/command.sh"

# Words of a header without comments and lines for the preprocessor.
identifiers() {
    sed -e 's:/\*[^*]*\*/::g' "$1" | awk '/\/\*/ { inside = 1 } !inside && !/^ *#/ { print }
        /\*\// { inside = 0 }' | grep -o '[A-Za-z_][A-Za-z_0-9]*' | sort -u |
        grep -vxE 'typedef|struct|enum|const|void|char|int|bool|float|double|extern|C|inline|static|return|NULL|u?int[0-9]*_t|size_t'
}
example_of() { # page: the last display with a main
    sed -e 's/\\-/-/g' -e 's/\\e/\\/g' "$1" | awk '
        /^\.Bd -literal|^\.EX/ { text = ""; inside = 1; next }
        /^\.Ed|^\.EE/ { if (text ~ /int main/) print text; inside = 0 }
        inside { text = text $0 "\n" }'
}
for pair in aio/aio.h:zinf_aio cpu_optim/optim.h:zinf_optim; do
    header=$SRCDIR/${pair%:*}
    page=$SRCDIR/man/${pair#*:}.3
    missing=
    for word in $(identifiers "$header"); do
        grep -qw -e "$word" "$page" || missing="$missing $word"
    done
    [ -z "$missing" ] || echo "# not in ${pair#*:}(3):$missing"
    [ -z "$missing" ]
    verdict $? "${pair#*:}(3) names all of ${pair%:*}"
    example_of "$page" | sed "s:zinf/\([a-z]*\)\.h:${pair%/*}/\1.h:" >"$work/example.c"
    (cd "$BUILDDIR" && ./libtool --quiet --mode=link --tag=CC ${CC:-cc} -Wall -Wextra -Werror \
        -I"$SRCDIR" -I"$SRCDIR/src" -o "$work/example" "$work/example.c" libzinf.la) \
        >"$work/said.out" 2>"$work/said.err"
    verdict $? "the example of ${pair#*:}(3) compiles"
    if [ -n "${ZINF_SANITIZER-}" ]; then
        skip "and runs" "the example is not built for a sanitizer"
    else
        check "and runs" run 0 "$work/example" "$header"
    fi
done

# zinf_api(3) shows its headers as they are, and an example that is in examples/ (installed_test.sh
# compiles and runs that one).
page=$BUILDDIR/man/zinf_api.3
missing=
for header in api/api train/checkpoints; do
    sed '/{ not installed/,/} not installed/d' "$SRCDIR/src/$header.h" >"$work/header.h"
    for word in $(identifiers "$work/header.h"); do
        sed 's/\\-/-/g' "$page" | grep -qw -e "$word" || missing="$missing $word"
    done
done
[ -z "$missing" ] || echo "# not in zinf_api(3):$missing"
[ -z "$missing" ]
verdict $? "zinf_api(3) names all of its headers"
example_of "$page" | sed '$d' | diff - "$SRCDIR/examples/train.c" >"$work/said.out" 2>&1
verdict $? "its example is examples/train.c"
finish
