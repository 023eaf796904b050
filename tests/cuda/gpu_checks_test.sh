#!/bin/bash
# gpu_checks: what tests/bench/gpu.sh leaves behind, on the stand-in for CUDA: results and logs, also
# where there is no GPU or a test fails.
. "$SRCDIR/tests/support/command.sh"
module=$BUILDDIR/tests/.libs/zinf-cuda-standin.so
mpi=$BUILDDIR/.libs/zinf-mpi.so
TMPDIR=$work
# What is in front of a user with a GPU for a minute may take longer on the stand-in, beside other tests.
SECONDS_LEFT=850 DOCTOR_LIMIT=400
export TMPDIR SECONDS_LEFT DOCTOR_LIMIT
gpu=$SRCDIR/tests/bench/gpu.sh
build=$work/build
mkdir -p "$build/tests/cuda"
ln -s "$zinf" "$build/zinf"

make_program() { # name, text of a shell script
    printf '#!/bin/sh\n%s\n' "$2" >"$build/tests/cuda/cuda_$1_test"
    chmod +x "$build/tests/cuda/cuda_$1_test"
}
results() { # folder: all three are there
    [ -s "$1/summary.txt" ] && [ -s "$1/results.json" ] && [ -s "$1/logs.tar.gz" ] &&
        tar -tzf "$1/logs.tar.gz" >/dev/null
}

nothing_there() {
    run 1 env ZINF_CUDA_MODULE="$work/none.so" "$gpu" "$build" "$work/r1" suite &&
        results "$work/r1" && says "there is no GPU to check" &&
        tar -xOzf "$work/r1/logs.tar.gz" logs/machine.txt >"$work/machine.txt" &&
        holds "$work/machine.txt" "== libraries of" "no CUDA module" &&
        holds "$work/r1/results.json" '"failed": "there is no GPU to check"'
}
good_and_bad() {
    make_program good 'echo "ok 1 - a"; echo "ok 2 - b # SKIP c"; echo 1..2'
    make_program bad 'echo "not ok 1 - \"d\""; echo 1..1; exit 1'
    run 1 env ZINF_CUDA_MODULE="$module" "$gpu" "$build" "$work/r2" doctor suite &&
        results "$work/r2" &&
        holds "$work/r2/results.json" '"suite cuda_good_test": {"ok": 2, "not_ok": 0, "skipped": 1}' \
            '"suite cuda_bad_test": {"ok": 0, "not_ok": 1, "skipped": 0}' '"seconds": ' &&
        holds "$work/r2/summary.txt" "FAILED: cuda_bad_test" "kernels    ok" "doctor     ok, " \
            "suite      1 FAILED, " "what failed:"
}
# A kernel that writes nothing: the doctor says so, and what asked for it is told.
bad_kernel() {
    run 1 env ZINF_CUDA_MODULE="$module" ZINF_STANDIN_SKIPS=xielu "$gpu" "$build" "$work/r8" doctor &&
        results "$work/r8" && holds "$work/r8/results.json" '"doctor": {"status": 1, ' &&
        holds "$work/r8/summary.txt" "xielu, fp32" "doctor     1 FAILED, " "  doctor: status 1"
}
# What compute-sanitizer is asked for, and what becomes of its answer; here it is a script.
sanitized() {
    mkdir -p "$work/bin" && printf '%s\n' '#!/bin/sh' 'echo "$@"' \
        'case "$*" in *racecheck*) exit 9 ;; esac' >"$work/bin/compute-sanitizer" &&
        chmod +x "$work/bin/compute-sanitizer" &&
        run 1 env PATH="$work/bin:$PATH" ZINF_CUDA_MODULE="$module" "$gpu" "$build" "$work/r9" sanitizer &&
        says "memcheck, doctor: clean" "FAILED: racecheck, doctor: status 9" "synccheck, doctor: clean" &&
        tar -xOzf "$work/r9/logs.tar.gz" logs/sanitizer-memcheck-doctor.txt >"$work/asked.txt" &&
        holds "$work/asked.txt" "--tool memcheck --error-exitcode 9" "zinf doctor" &&
        run 0 env PATH="$work/bin:$PATH" ZINF_CUDA_MODULE="$module" SANITIZER_SECONDS=0 "$gpu" \
            "$build" "$work/r9" sanitizer && says "memcheck, doctor: left out"
}
# One that hangs is ended, and those behind it are left out once the suite has had its time.
one_that_hangs() {
    rm -f "$build"/tests/cuda/cuda_*_test
    make_program good 'echo "ok 1 - a"; echo 1..1'
    make_program hung 'sleep 100'
    make_program later 'echo "ok 1 - a"; echo 1..1'
    run 1 env ZINF_CUDA_MODULE="$module" SUITE_LIMIT=8 SUITE_SECONDS=8 "$gpu" "$build" "$work/r3" \
        suite && results "$work/r3" && says "FAILED: cuda_hung_test" \
        "cuda_later_test: left out, the suite has had its time" &&
        holds "$work/r3/results.json" '"suite cuda_good_test": {"ok": 1'
}
# Ended from outside in the middle of a program, as by a lease that is up.
ended_from_outside() {
    env ZINF_CUDA_MODULE="$module" "$gpu" "$build" "$work/r4" suite >"$work/said.out" 2>&1 &
    child=$!
    waited=0
    until grep -q '^cuda_good_test' "$work/r4/summary.txt" 2>"$work/said.err"; do
        [ $((waited += 1)) -lt 300 ] || return 1
        sleep 0.2
    done
    kill -TERM $child
    wait $child
    [ $? -eq 1 ] && results "$work/r4" && holds "$work/r4/summary.txt" "ended from outside" &&
        holds "$work/r4/results.json" '"suite cuda_good_test"'
}
# Every phase and every command of it, with the smallest models, in a build that has a module for
# GPUs as well; and what is there when it is killed at any moment: figures so far, as whole JSON.
dry_run() {
    mkdir -p "$build/.libs" "$build/tests/.libs" &&
        echo "for GPUs, of which there is none" >"$build/.libs/zinf-cuda.so" &&
        ln -sf "$module" "$build/tests/.libs/zinf-cuda-standin.so" &&
        run 0 env -u ZINF_CUDA_MODULE PYTHON=false "$gpu" --dry-run "$build" "$work/r5" &&
        results "$work/r5" && says "distance from the host device" "wide-nf4: " "drive: " &&
        ! grep -q "^left out\|^FAILED" "$work/r5/summary.txt" &&
        holds "$work/r5/results.json" '"offload-32 pageable_copies": 0' '"widest-nf4 tokens_per_second": '
}
# Losses of two GPUs, by seats and by processes, through RAM and among themselves.
two_gpus() {
    run 0 env ZINF_CUDA_MODULE="$module" ZINF_MPI_MODULE="$mpi" "$SRCDIR/tests/bench/gpus.sh" --dry-run "$build" "$work/r7" \
        bits ends && results "$work/r7" && says "device-1: " "2 starts and ends" &&
        ! grep -q "^left out\|^FAILED" "$work/r7/summary.txt"
}
is_whole() { # a JSON object, one key a line
    [ "$(head -n 1 "$1")" = "{" ] && [ "$(tail -n 1 "$1")" = "}" ] &&
        ! sed '1d;$d' "$1" | grep -qv '^  ".*": .*,\{0,1\}$'
}
has_figures() { # so many at least
    [ "$(grep -c '^  "' "$work/r6/results.json")" -ge "$1" ]
}
# Before its first figure, and a little after some of them: what is there by then stays.
killed_at_any_moment() {
    for figures in 0 2 5 7 9; do
        rm -rf "$work/r6"
        setsid env ZINF_CUDA_MODULE="$module" PYTHON=false WORK="$work" "$gpu" --dry-run "$build" \
            "$work/r6" bench losses xl >"$work/said.out" 2>"$work/said.err" &
        child=$!
        [ $figures = 0 ] || wait_until $child has_figures $figures
        sleep 0.$((3 + figures / 5))
        kill -9 -- -$child
        wait $child 2>"$work/waited"
        [ $figures = 0 ] || has_figures $figures || return 1
        [ ! -e "$work/r6/results.json" ] || is_whole "$work/r6/results.json" || return 1
    done
}
check "no GPU: the reason is kept" nothing_there
if [ -f "$module" ]; then
    check "what is good and what is not" good_and_bad
    check "a kernel that does nothing" bad_kernel
    check "compute-sanitizer's answers" sanitized
    check "a program that hangs" one_that_hangs
    check "ended from outside" ended_from_outside
    rm -f "$build"/tests/cuda/cuda_*_test
    check "every phase, with the smallest models" dry_run
    if [ -f "$mpi" ] && command -v mpirun >/dev/null; then
        check "two GPUs, with the smallest model" two_gpus
    else
        skip "two GPUs, with the smallest model" "no MPI here"
    fi
    check "killed at any moment" killed_at_any_moment
else
    skip "what is good, what is not, what hangs" "no stand-in for CUDA here"
fi
finish
