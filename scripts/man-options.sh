#!/bin/sh
# man-options.sh ZINF [--check]: the pages of the commands list the options that ZINF has. What a
# page lacks is added from the option's row, at the end of its list, and values and their words are
# the row's; a page may say more than the row, and an option that is gone is named. --check writes
# nothing: it fails where a page would change.
set -eu
zinf=$1
mode=${2:-}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for page in "$here"/man/zinf-*.1; do
    command=$(basename "$page" .1 | sed 's/^zinf-//; s/^bench-/bench /')
    # shellcheck disable=SC2086  # bench and its mode are two words
    "$zinf" help --rows $command >"$work/rows" 2>/dev/null || continue
    grep -q '^--' "$work/rows" || continue
    awk -F '\t' '
    # "Ar N", "Ar FILE ...", "Cm a | b", "Ar N | Cm a": how mdoc has the value of row i.
    function value(i,    words, n, text, w) {
        n = split(row[i, 3], words, " ")
        if (row[i, 2] == "") return ""
        if (row[i, 2] ~ /^\[=/) return " Ns Op = Ns Ar DIR"
        if (words[n] == "...") n--
        if (n && length(row[i, 3]) < 80 && row[i, 2] !~ /\.\.\.$/) {
            text = (row[i, 2] == "N" ? " Ar N |" : "") " Cm " words[1]
            for (w = 2; w <= n; w++) text = text " | " words[w]
            return text
        }
        text = row[i, 2]
        sub(/\.\.\.$/, " ...", text)
        return " Ar " text
    }
    function paragraph(i,    text) {
        text = row[i, 6]
        gsub(/\\n/, "\n", text)
        return ".It Fl Fl " name[i] value(i) "\n" text
    }
    FNR == NR {
        n_rows++
        for (f = 1; f <= NF; f++) row[n_rows, f] = $f
        name[n_rows] = substr($1, 3)
        is_row[name[n_rows]] = 1
        next
    }
    # A value is what the row says, but where the page has more to say of its parts.
    /^\.It Fl Fl/ && !/ Ns / {
        split($0, part, " ")
        for (i = 1; i <= n_rows; i++)
            if (name[i] == part[4]) $0 = ".It Fl Fl " part[4] value(i)
    }
    { line[++n_lines] = $0 }
    /^\.Sh/ { synopsis = /SYNOPSIS/ }
    synopsis && /Fl Fl/ {
        last_op = n_lines
        word = $0; sub(/.*Fl Fl /, "", word); sub(/ .*/, "", word)
        in_synopsis[word] = 1
    }
    /^\.It Fl Fl/ {
        word = $0; sub(/^\.It Fl Fl /, "", word); sub(/ .*/, "", word)
        listed[word] = 1
        if (!(word in is_row)) print "# gone: --" word > "/dev/stderr"
        in_list = 1
    }
    /^\.Bl/ { depth++ }
    /^\.El/ { depth--; if (in_list && !depth) { last_el = n_lines; in_list = 0 } }
    END {
        for (i = 1; i <= n_lines; i++) {
            if (i == last_el)
                for (r = 1; r <= n_rows; r++)
                    if (!(name[r] in listed)) print paragraph(r)
            print line[i]
            if (i == last_op)
                for (r = 1; r <= n_rows; r++)
                    if (!(name[r] in in_synopsis)) print ".Op Fl Fl " name[r] value(r)
        }
    }' "$work/rows" "$page" >"$work/page"
    cmp -s "$work/page" "$page" && continue
    if [ "$mode" = --check ]; then
        echo "$page is not what the rows say: run scripts/man-options.sh ZINF"
        status=1
    else
        cp "$work/page" "$page"
        echo "$page"
    fi
done
exit $status
