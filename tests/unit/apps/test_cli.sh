#!/usr/bin/env bash
#
# test_cli.sh: the command line as a user types it, on a fake machine of two cards: what bad input is
# answered with, exit codes, signals, reports, budgets that add up to too much.
#
# Usage: test_cli.sh ULLAGE FAKECUDA_FOLDER TRACE input|all
# "input" leaves out what starts programs: a sanitizer's libraries cannot be preloaded into them.

set -u

ullage=$1 trace=$3 part=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$2 ULLAGE_FAKE_GPUS=6GiB,6GiB ULLAGE_FAKE_STATE=$work/cards
export XDG_STATE_HOME=$work/state XDG_CONFIG_HOME=$work/config ULLAGE_SHM_DIR=$work/shm
unset CUDA_VISIBLE_DEVICES ULLAGE_MEMORY ULLAGE_GROWTH ULLAGE_REPORT ULLAGE_LOG ULLAGE_JOB
mkdir -p "$work/shm" "$work/config/ullage"
failures=0

# check EXIT TEXT COMMAND...: the exit code, and that the output says TEXT (a fixed string).
check() {
    local wanted=$1 text=$2 got
    shift 2
    "$@" >"$work/out" 2>&1
    got=$?
    if [ "$got" -ne "$wanted" ] || ! grep -qF -e "$text" "$work/out"; then
        printf 'FAILED: %s\n  exit %s, wanted %s and "%s"; it said:\n' "$*" "$got" "$wanted" "$text"
        sed 's/^/    /' "$work/out"
        failures=$((failures + 1))
    fi
}

# until_true COMMAND...: ctest's limit ends a wait in vain.
until_true() {
    until "$@" >/dev/null 2>&1; do sleep 0.02; done
}

# refuse EXIT TEXT OPTION...: `run` with these options starts nothing.
refuse() {
    local wanted=$1 text=$2
    shift 2
    check "$wanted" "$text" "$ullage" run "$@" -- touch "$work/started"
    if [ -e "$work/started" ]; then
        printf 'FAILED: run %s started its command\n' "$*"
        rm -f "$work/started"
        failures=$((failures + 1))
    fi
}

refuse 2 "'10XB'" -m 10XB
refuse 2 "'-1'" -m -1
refuse 2 "'0'" -m 0
refuse 2 "'400%'" -m 400%
refuse 2 "expected" -m ''
refuse 3 'device 5' -m 5=4GiB
refuse 3 '-g 9' -g 9
refuse 3 'GPU-nobody' -g GPU-nobody
refuse 2 'LOCAL_RANK' -g local
refuse 2 "'x'" --max-request x
refuse 2 '--frobnicate' --frobnicate
refuse 125 '/nowhere/r.json' --report /nowhere/r.json
refuse 125 'folder' --report "$work"
check 2 'expected' "$ullage" run -m 4GiB
check 2 "did you mean 'replay'" "$ullage" repaly
check 2 "'yaml'" "$ullage" ps -o yaml
check 0 'no jobs' "$ullage" ps
check 0 '"jobs": []' "$ullage" ps -o json
check 0 'job,id,account' "$ullage" ps -o csv
check 0 'Usage: ullage run' "$ullage" run --help
check 0 'ullage ' "$ullage" --version

printf 'memory = 10XB\n' >"$work/config/ullage/ullage.conf"
refuse 2 'ullage.conf line 1'
printf 'memroy = 1GiB\n' >"$work/config/ullage/ullage.conf"
refuse 2 "unknown key 'memroy'"
rm "$work/config/ullage/ullage.conf"

check 1 'nothing.gz' "$ullage" replay "$work/nothing.gz"
printf 'time_us,action,id,size,stream\n' >"$work/plain.gz"
check 1 'not gzip' "$ullage" replay "$work/plain.gz"
head -c 50000 "$trace" >"$work/cut.gz"
check 1 'truncated' "$ullage" replay "$work/cut.gz"
printf 'time_us,action,id,size,stream\n0,a,1,-5,0\n' | gzip >"$work/negative.gz"
check 1 "line 2: size is '-5'" "$ullage" replay "$work/negative.gz"
check 2 'cuda:N' "$ullage" replay --device 7 "$trace"

if [ "$part" = all ]; then
    check 0 'no GPU memory was used' "$ullage" run -m 4GiB -- true
    check 7 'exit 7' "$ullage" run -- sh -c 'exit 7'
    check 143 'exit 143' "$ullage" run -- sh -c "kill -TERM \$\$"
    check 127 'no-such-command' "$ullage" run -- no-such-command
    check 126 'Permission denied' "$ullage" run -- /etc/passwd
    check 0 'device of 12' env ULLAGE_LOG="$work/log" "$ullage" run -q -- echo 'device of 12'
    check 0 'exit 0' cat "$work/log"

    # Setting, keeping and warning about what makes frameworks start small.
    check 0 'TF_FORCE_GPU_ALLOW_GROWTH=true' "$ullage" run --growth -- env
    check 0 'your own setting' env TF_FORCE_GPU_ALLOW_GROWTH=false "$ullage" run --growth -- true

    # A program that asks for more, its report, and what to ask for next time.
    check 1 'out of memory at line' "$ullage" run -m 2GiB --report "$work/r.json" -- "$ullage" replay "$trace"
    check 0 '"sufficient_bytes"' cat "$work/r.json"
    check 0 '-m on the command line' cat "$work/r.json"
    check 1 'ullage-report-' "$ullage" run -m 2GiB -- "$ullage" replay "$trace"
    check 0 'completed' "$ullage" run -m 75% -- "$ullage" replay "$trace"
    check 0 'next time -m' "$ullage" run -m 75% -- "$ullage" replay "$trace"
    check 0 'preallocated; repeat with --growth' "$ullage" run -- "$ullage" replay --preallocate "$trace"
    check 0 'limit                3.0 GiB' "$ullage" run -g 1 -m 3GiB -- sh -c "'$ullage' replay '$trace'; true"
    check 0 'logical 0 = physical 1' env CUDA_VISIBLE_DEVICES=1,0 "$ullage" run -- "$ullage" ps

    # Signals sent to ullage reach the command; its own are those it was started with.
    # shellcheck disable=SC2016 # expanded by the inner shell
    "$ullage" run -- sh -c 'trap "exit 9" USR1; touch "$0"; while :; do sleep 0.05; done' "$work/trapped" 2>/dev/null &
    until_true test -e "$work/trapped"
    kill -USR1 $!
    wait $!
    check 0 9 echo "$?"
    check 0 "$(grep -E 'SigBlk|SigIgn' /proc/self/status)" "$ullage" run -- grep -E 'SigBlk|SigIgn' /proc/self/status

    # Two jobs that have more than the card together; a job inside a job is no third.
    # shellcheck disable=SC2016
    "$ullage" run -m 4GiB --name big -- sh -c 'touch "$0"; while [ -e "$0" ]; do sleep 0.05; done' "$work/big" 2>/dev/null &
    until_true test -e "$work/big"
    check 0 'which has 6.0 GiB' "$ullage" run -m 4GiB -- true
    check 0 '"name": "big"' "$ullage" ps -o json
    rm "$work/big"
    wait
    "$ullage" run -m 5GiB -- "$ullage" run -m 4GiB -- "$ullage" replay "$trace" >"$work/nested" 2>&1
    check 0 'notes: 0' sh -c "echo notes: \$(grep -cF note: '$work/nested')"
    check 0 'of 4.0 GiB' cat "$work/nested"
    check 0 'of 5.0 GiB' cat "$work/nested"
    check 0 'no jobs' "$ullage" ps
fi

[ "$failures" -eq 0 ] && printf 'all as expected\n'
exit $((failures > 0))
