#!/usr/bin/env bash
#
# ullage suspend and resume of jobs that know nothing of it: the driver moves them.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB

# shellcheck disable=SC2016 # for the job's shell
spawn "$ULLAGE" run -q -m 5GiB --name big -- sh -c '
    "$0" init device 0 alloc 1GiB touch "$1.one" wait "$1.go" alloc 1MiB touch "$1.done" hold &
    exec "$0" init device 0 alloc 2GiB touch "$1.two" wait "$1.go" alloc 1MiB hold' "$GUEST" "$T/big"
big=$PID
wait_for 10 test -e "$T/big.one"
wait_for 10 test -e "$T/big.two"

capture "$ULLAGE" resume big
is "what runs cannot be resumed" "$CODE" 1
like "and it says so" "$ERR" "is running, there is nothing to resume"

before=$(used_by_all)
capture "$ULLAGE" suspend big
is "a job is suspended" "$CODE" 0
like "with its size and time" "$ERR" 'job big is suspended: 3\.2 GiB in [0-9.]+ s; resume it with ullage resume big'
is "its state" "$(job_value big state)" suspended
is "the card is free" "$(used_by_all)" 0
is "its bytes are still its own" "$(job_value big evicted_bytes)" "$(ps_json "d['jobs'][0]['devices'][0]['held_bytes']")"
is "none is resident" "$(job_value big resident_bytes)" 0
capture "$ULLAGE" ps
like "ps says where it is" "$OUT" 'suspended, 3\.2 GiB in host memory'

capture "$ULLAGE" suspend big
is "not twice" "$CODE" 1
like "and it says so" "$ERR" 'job big is suspended already'

# The card is somebody else's meanwhile: no room to come back, and the job stays whole.
spawn "$ULLAGE" run -q -m 5GiB --name other -- "$GUEST" init device 0 alloc 4GiB touch "$T/other" wait "$T/leave"
wait_for 10 test -e "$T/other"
capture "$ULLAGE" resume big
is "no room: it stays suspended" "$CODE $(job_value big state)" "1 suspended"
like "and it says why" "$ERR" 'the card has no room for process [0-9]+ to come back'
touch "$T/big.go"
sleep 0.3
check "it waits" test ! -e "$T/big.done"
touch "$T/leave"
wait_for 10 test ! -e "/proc/$PID"
wait_for 10 "$ULLAGE" resume -q big
is "with room it comes back" "$(job_value big state)" running
between "all of it" "$(used_by_all)" "$before" $((before + 2 * 2 * MIB))
wait_for 10 test -e "$T/big.done"
is "and goes on where it was" "$(grep -c '^alloc 0$' "$T/$big.out")" 4

# A suspended job that is killed leaves nothing behind.
"$ULLAGE" suspend -q big
pkill -KILL -f "$T/big"
wait_for 10 gone "$big"
# shellcheck disable=SC2317 # by wait_for
no_job() { [ "$(used_by_all) $(ps_json "len([j for j in d['jobs'] if j['name'] == 'big'])")" = "0 0" ]; }
check "a suspended job that dies leaves nothing" wait_for 10 no_job

# What cannot be moved is refused, and the rest comes back.
spawn "$ULLAGE" run -q -m 5GiB --name stuck -- "$GUEST" init device 0 alloc 1GiB touch "$T/a" hold
wait_for 10 test -e "$T/a"
ULLAGE_FAKE_FAIL=cuCheckpointProcessCheckpoint:1=801 capture "$ULLAGE" suspend stuck
is "the driver refuses" "$CODE" 1
like "and it says why" "$ERR" 'shares memory with others.*drivers before 610'
is "the job runs on" "$(job_value stuck state) $(job_value stuck evicted_bytes)" "running 0"
ULLAGE_FAKE_DELAY=cuCheckpointProcessCheckpoint=20s capture "$ULLAGE" suspend --timeout 1 stuck
is "a driver that hangs is given up on" "$CODE" 1
like "and it says so" "$ERR" 'the driver did not move out process [0-9]+ in 1 s'
is "and the process goes on" "$(job_value stuck state)" running
ULLAGE_FAKE_DRIVER_VERSION=12000 capture "$ULLAGE" suspend stuck
like "an older driver cannot" "$ERR" 'came with driver 570'

bad() { # NAME CODE PATTERN WORD...
    local name=$1 code=$2 pattern=$3
    shift 3
    capture "$ULLAGE" "$@"
    is "$name: exit code" "$CODE" "$code"
    like "$name: it says why" "$ERR" "$pattern"
}
bad "an unknown job" 1 "no job of yours is called 'nobody'; there are: stuck \(" suspend nobody
bad "no job" 2 "which job" suspend
bad "two jobs" 2 "'b' is too much" suspend a b
bad "a bad time" 2 "expected 1 to 86400 seconds" suspend --timeout 0 stuck
spawn "$ULLAGE" run -q -m 1GiB --name idle -- sleep 30
wait_for 10 job_value idle state
bad "a job without GPU memory" 1 "no process of job idle holds memory of a GPU" suspend idle
done_testing
