#!/bin/sh
# What an installed prefix gives to a C program: every function of every installed header links, by
# pkg-config alone, and the examples compile, and train from rows that a program makes.
. "$SRCDIR/tests/support/command.sh"
if [ -n "${ZINF_SANITIZER-}" ] || [ ! -f "$BUILDDIR/.libs/libzinf.so" ] || ! command -v pkg-config >/dev/null; then
    skip "an installed prefix" "a shared library and pkg-config are needed"
    finish
fi
prefix=$work/prefix
make -s -C "$BUILDDIR" install prefix="$prefix" exec_prefix="$prefix" \
    bashcompletiondir="$prefix/share/b" zshcompletiondir="$prefix/share/z" \
    fishcompletiondir="$prefix/share/f" >"$work/said.out" 2>"$work/said.err"
verdict $? "make install"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name zinf.pc)")
export PKG_CONFIG_PATH
sed -i "s|^prefix=.*|prefix=$prefix|; s|^exec_prefix=.*|exec_prefix=$prefix|; s|^libdir=.*|libdir=$prefix/lib|; s|^includedir=.*|includedir=$prefix/include|" \
    "$PKG_CONFIG_PATH/zinf.pc"
check "what the library itself needs is named, and found" pkg-config --print-errors --exists zinf
pkg-config --print-requires-private zinf >"$work/said.out"
says liburing libcjson libpcre2-8 icu-uc libxxhash zlib libzstd libcrypto
verdict $? "with all libraries that it is linked to"
libdir=$(pkg-config --variable=libdir zinf)
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
built() { # source, program
    # shellcheck disable=SC2046  # words of pkg-config
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror "$1" -o "$2" $(pkg-config --cflags --libs zinf) \
        >"$work/said.out" 2>"$work/said.err"
}
headers=$(cd "$prefix/include/zinf" && ls ./*.h | sed 's|^\./||')
for header in $headers; do
    echo "#include <zinf/$header>"
done >"$work/all.c"
functions=$(for header in $headers; do
    sed -e 's:/\*[^*]*\*/::g' "$prefix/include/zinf/$header" | awk '/\/\*/ { inside = 1 }
        !inside && !/^ *#/ && !/static inline/ && !/^ +/ { print } /\*\// { inside = 0 }' |
        grep -oE '\bzinf_[a-z0-9_]+\(' | tr -d '('
done | sort -u | grep -vxE 'zinf_bf16_(from|to)_f32|zinf_align_up')
{
    echo "#include <stdio.h>"
    echo "int main(void) {"
    echo "    void *all[] = {"
    for function in $functions; do
        echo "        (void *)$function,"
    done
    echo "    };"
    echo "    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) if (!all[i]) return 1;"
    printf '%s\n' '    printf("%zu functions\n", sizeof all / sizeof *all);' '    return 0;' '}'
} >>"$work/all.c"
check "all $(echo "$functions" | wc -l) functions of $(echo "$headers" | wc -w) headers link" \
    built "$work/all.c" "$work/all"
check "and load" run 0 "$work/all"
for example in adamw_step copy_file train; do
    check "examples/$example.c compiles" built "$SRCDIR/examples/$example.c" "$work/$example"
done
"$zinf" init --arch gpt2 --size small --layers 2 --hidden 64 --heads 2 --tokenizer bytes --context 64 \
    --output "$work/model" >/dev/null 2>&1
check "a model's whole life from C" run 0 "$work/train" "$work/model" "$work/out"
says "step 20 of 20: loss" "3 and 3 are" "a step of our own: loss" "parameters" &&
    [ -f "$work/out/model/config.json" ] && [ -f "$work/out/again/model.safetensors" ]
verdict $? "which leaves models"
[ ! -s "$work/said.err" ]
verdict $? "and nothing on the terminal that nobody asked for"
make -s -C "$BUILDDIR" uninstall prefix="$prefix" exec_prefix="$prefix" \
    bashcompletiondir="$prefix/share/b" zshcompletiondir="$prefix/share/z" \
    fishcompletiondir="$prefix/share/f" >"$work/said.out" 2>"$work/said.err"
left=$(find "$prefix" ! -type d)
[ -z "$left" ] || echo "# left:" $left
[ -z "$left" ]
verdict $? "uninstall leaves nothing"
[ -f "$work/out/cache/rows.jsonl" ] && [ ! -e "$work/out/again/cache/eval-rows.jsonl" ]
verdict $? "rows stay with a training alone"
finish
