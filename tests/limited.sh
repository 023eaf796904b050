#!/bin/sh
# Runs one test with a limit of time, and says how long it took. A test that hangs then fails alone
# and the run goes on. Its output goes through a file: a process that outlives the test would keep a
# pipe open, and the driver that reads the pipe would wait for that process.
#
# usage: limited.sh TEST [ARGUMENT...]
#
#   ZINF_TEST_LIMIT  seconds (default: 900)
limit=${ZINF_TEST_LIMIT:-900}
said=$(mktemp) || exit 99
trap 'rm -f -- "$said"' EXIT
began=$(date +%s)
timeout -k 10 "$limit" "$@" >"$said" 2>&1 </dev/null &
running=$!
trap 'kill "$running" 2>/dev/null; exit 143' INT TERM HUP
wait "$running"
status=$?
cat -- "$said"
took=$(($(date +%s) - began))
case $status in
124 | 137) echo "# ended by its limit of $limit s (ZINF_TEST_LIMIT)" ;;
*) echo "# $took s" ;;
esac
exit "$status"
