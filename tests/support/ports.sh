# ports: for tests whose processes meet at a port; after tests/support/command.sh. Sets $port to one
# of 100 that are this test's until it ends: tests that run at the same time, of other builds too,
# have other ones. They lie below those that the system gives away by itself.
# The lock is on an open file, and goes with the last process that has it open.
take_ports() { # number of a block
    lock=/tmp/zinf-ports-$1
    [ -e "$lock" ] || (umask 022 && : >"$lock") 2>/dev/null
    [ -r "$lock" ] || return
    exec 8<"$lock"
    flock -n 8
}
blocks=120
block=$(($$ % blocks))
blocks_tried=0
if command -v flock >/dev/null; then
    until take_ports $block || [ $blocks_tried -ge $blocks ]; do
        block=$(((block + 1) % blocks))
        blocks_tried=$((blocks_tried + 1))
    done
fi
first_port=$((20000 + block * 100)) port=$first_port

# For the next meeting; zinf listens one port further than the launcher.
next_port() {
    port=$((first_port + (port + 2 - first_port) % 100))
}
