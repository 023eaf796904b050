# A manual page with the declarations of headers in it: a line "@HEADER src/train/train.h@" becomes what
# that header declares, as it stands there, between its guards, and "@EXAMPLE examples/train.c@" that
# file. Usage: awk -v root=DIR -f this PAGE.in

function show(line) {
    gsub(/\\/, "\\e", line)
    gsub(/-/, "\\-", line)
    sub(/^[.']/, "\\\\\\&&", line)
    print line
}

function display(header,    line, inside, blank) {
    printf ".Ss <zinf/%s>\n.Bd -literal\n", substr(header, match(header, /[^\/]*$/))
    while ((getline line < (root "/" header)) > 0) {
        if (line ~ /^extern "C"/) {
            getline line < (root "/" header) # its endif
            inside = 1
            continue
        }
        if (inside && line ~ /^#ifdef __cplusplus/)
            break
        if (line ~ /{ not installed/) { # what only the library needs
            while ((getline line < (root "/" header)) > 0 && line !~ /} not installed/)
                continue
            continue
        }
        if (!inside || line ~ /^\/\* ---- /)
            continue
        blank = line == "" ? blank + 1 : 0
        if (blank < 2 && (line != "" || started))
            show(line)
        started = started || line != ""
    }
    started = 0
    close(root "/" header)
    print ".Ed"
}

/^@HEADER .*@$/ {
    sub(/^@HEADER /, "")
    sub(/@$/, "")
    display($0)
    next
}
/^@EXAMPLE .*@$/ {
    sub(/^@EXAMPLE /, "")
    sub(/@$/, "")
    print ".Bd -literal"
    for (file = root "/" $0; (getline line < file) > 0;)
        show(line)
    print ".Ed"
    next
}
{ print }
