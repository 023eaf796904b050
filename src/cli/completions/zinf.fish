# fish completion of zinf, from the rows that this zinf itself has.
function __zinf_words
    zinf help $argv 2>/dev/null | string match -rg '^  ([a-z-]+) '
end
function __zinf_rows
    set -l command (commandline -opc)[2..-1]
    test "$command[1]" = bench; and set command $command[1..2]; or set command $command[1]
    zinf help --rows $command 2>/dev/null
end
function __zinf_options
    __zinf_rows | cut -f 1
end
function __zinf_values # of the option that stands before, with words of it between
    set -l before (commandline -opc)
    set -l options (string match -- '-*' $before[2..-1])
    test (count $options) -gt 0; or return
    __zinf_rows | awk -F '\t' -v option="$options[-1]" \
        '$1 == option { sub(/ \.\.\.$/, "", $3); gsub(/ /, "\n", $3); print $3 }'
end
complete -c zinf -n __fish_use_subcommand -f -a "help (__zinf_words)"
complete -c zinf -n "__fish_seen_subcommand_from bench; and test (count (commandline -opc)) -eq 2" \
    -f -a "(__zinf_words bench)"
complete -c zinf -n "not __fish_use_subcommand; and string match -q -- '-*' (commandline -ct)" \
    -f -a "(__zinf_options)"
complete -c zinf -n "not __fish_use_subcommand; and not string match -q -- '-*' (commandline -ct)" \
    -a "(__zinf_values)"
