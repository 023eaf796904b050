# The functions that a page of section 3 describes: those it names by .Fn, .Fo or .BI, and those of
# declarations in its displays. The page's own name is no link.
FNR == 1 {
    own = FILENAME
    sub(/^.*\//, "", own)
    sub(/\.3$/, "", own)
}
/^\.(Fn|Fo|It Fn) zinf_/ || /^\.BI / || /^[a-z].* [*]*zinf_[a-z0-9_]+\(/ {
    if (match($0, /zinf_[a-z0-9_]+/) && ($0 !~ /^\.BI / || $0 ~ /zinf_[a-z0-9_]+\(/)) {
        name = $0
        if (name ~ /\(/) {
            sub(/\(.*/, "", name)
            sub(/^.*[^a-z0-9_]zinf_/, "zinf_", name)
        } else {
            sub(/^\.(It )?F[no] /, "", name)
            sub(/[ ,].*/, "", name)
        }
        if (name ~ /^zinf_[a-z0-9_]+$/ && name != own && !seen[name]++)
            print name
    }
}
