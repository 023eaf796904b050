#!/bin/sh
# man: the pages are clean mdoc, and a command's page lists the options that `zinf help` lists.
. "$SRCDIR/tests/support/command.sh"

for page in "$SRCDIR"/man/*.[157] "$SRCDIR"/man/zinf_aio.3 "$BUILDDIR"/man/zinf_api.3; do
    name="lint $(basename "$page")"
    if ! command -v mandoc >/dev/null; then
        skip "$name" "mandoc is not installed"
    else
        check "$name" run 0 mandoc -T lint -W warning "$page"
    fi
done

# "No" at the beginning of a tag is a macro that prints nothing: "No MPI" would say "MPI". A line
# that ends in a backslash is joined with the next.
eaten=$(grep -n -e '^\.It No ' -e '[^\\]\\$' "$SRCDIR"/man/*.[1357])
[ -z "$eaten" ] || echo "# $eaten"
[ -z "$eaten" ]
verdict $? "no word or line's end of a page is lost"

for command in init train data eval embed generate serve gradients export estimate inspect config report plot verify doctor launch \
    "bench nvme" "bench optim" "bench gemm" "bench attention" "bench pcie" \
    "bench memory" "bench schedule" "bench all"; do
    page="$SRCDIR/man/zinf-$(echo "$command" | tr ' ' -).1"
    wide=$("$zinf" $command --help | awk 'length > 80')
    [ -z "$wide" ] || echo "# $wide"
    [ -z "$wide" ]
    verdict $? "help of zinf $command in 80 columns"
    used=$("$zinf" $command --help | grep -o -e ' --[a-z][a-z-]*' | tr -d ' ' | sort -u)
    listed=$(sed -n 's/^\.It Fl Fl \([a-z-]*\).*/--\1/p' "$page" | sort -u)
    shown=$(sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESC/s/.*Fl Fl \([a-z-]*\).*/--\1/p' "$page" | sort -u)
    if [ -n "$used" ] && [ "$used" = "$listed" ] && [ "$used" = "$shown" ]; then
        verdict 0 "options of zinf $command"
    else
        echo "# zinf help:" $used
        echo "# page lists:" $listed
        echo "# page's synopsis:" $shown
        verdict 1 "options of zinf $command"
    fi
done
for command in train eval generate serve estimate config "bench schedule"; do
    twice=$("$zinf" help --rows $command | cut -f 1 | sort | uniq -d)
    [ -z "$twice" ] || echo "# twice:" $twice
    [ -z "$twice" ]
    verdict $? "zinf $command has each option once"
done
check "every option of a row is in its page" run 0 "$SRCDIR/scripts/man-options.sh" "$zinf" --check
finish
