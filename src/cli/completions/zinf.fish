# fish completion of zinf, from what this zinf's own help lists.
function __zinf_words
    zinf help $argv 2>/dev/null | string match -rg '^  ([a-z-]+) '
end
function __zinf_options
    set -l command (commandline -opc)[2..-1]
    test "$command[1]" = bench; and set command $command[1..2]; or set command $command[1]
    zinf help $command 2>/dev/null | string match -arg '(--[a-z][a-z-]*)' | sort -u
end
complete -c zinf -n __fish_use_subcommand -f -a "help (__zinf_words)"
complete -c zinf -n "__fish_seen_subcommand_from bench; and test (count (commandline -opc)) -eq 2" \
    -f -a "(__zinf_words bench)"
complete -c zinf -n "not __fish_use_subcommand; and string match -q -- '-*' (commandline -ct)" \
    -f -a "(__zinf_options)"
