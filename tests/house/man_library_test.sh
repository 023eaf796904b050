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
compile_example() { # page, header folder or "": into $work/example
    example_of "$1" | sed -E "s:<zinf/(base|memory)\.h>:<base/\1.h>:; s:<zinf/([a-z]*)\.h>:<$2\1.h>:" \
        >"$work/example.c"
    (cd "$BUILDDIR" && ./libtool --quiet --mode=link --tag=CC ${CC:-cc} -Wall -Wextra -Werror \
        -I"$SRCDIR" -I"$SRCDIR/src" -o "$work/example" "$work/example.c" libzinf.la) \
        >"$work/said.out" 2>"$work/said.err"
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

# zinf_train(3) shows its headers as they are; its example trains.
page=$BUILDDIR/man/zinf_train.3
missing=
for header in train generate estimate checkpoints; do
    for word in $(identifiers "$SRCDIR/src/train/$header.h"); do
        sed 's/\\-/-/g' "$page" | grep -qw -e "$word" || missing="$missing $word"
    done
done
[ -z "$missing" ] || echo "# not in zinf_train(3):$missing"
[ -z "$missing" ]
verdict $? "zinf_train(3) names all of its headers"
compile_example "$page" train/
verdict $? "the example of zinf_train(3) compiles"
if [ -n "${ZINF_SANITIZER-}" ]; then
    skip "and trains" "the example is not built for a sanitizer"
else
    "$zinf" init --arch gpt2 --size small --layers 2 --hidden 32 --heads 2 --vocab 257 --context 32 \
        --output "$work/model" >/dev/null 2>&1
    make_text "$work/text.txt" 40
    check "and trains" run 0 "$work/example" "$work/model" "$work/text.txt" "$work/out"
    says "step 10 of 10: loss" && [ -f "$work/out/model/config.json" ]
    verdict $? "and leaves a model"
fi
finish
