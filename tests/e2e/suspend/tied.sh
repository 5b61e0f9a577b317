#!/usr/bin/env bash
#
# Jobs whose processes share memory, which drivers before 610 move out and do not bring back; and ways back that fail.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB
WORKER=$GUESTS/worker

# shellcheck disable=SC2016 # for the job's shell
spawn "$ULLAGE" run -q -m 3GiB --name pair -- sh -c '
    "$0" init 0 alloc 1M 1 export "$1.meet" &
    "$0" init 0 alloc 40M 1 touch "$1.has" wait "$1.go" import "$1.meet" 20 5 touch "$1.over" wait "$1.end"; wait' "$WORKER" "$T/pair"
pair=$PID
wait_for 20 test -e "$T/pair.has"
# shellcheck disable=SC2317 # by wait_for
shared() { [ -s "$T/pair.meet" ] && ! cmp -s -n 64 "$T/pair.meet" /dev/zero; }
wait_for 20 shared

refused() { # NAME: who has shared something, if only by giving it a name, is not moved by an old driver
    capture "$ULLAGE" suspend pair
    is "$1: refused" "$CODE" 1
    like "$1: it says why, and what to do" "$ERR" \
        'process [0-9]+ \(.*worker.*\) shares memory or events with other processes \(CUDA IPC\), which drivers before 610.*this one is 580\.159\.fake.*nothing was moved.*--suspendable'
    is "$1: nothing has changed" "$(job_value pair state) $(job_value pair evicted_bytes)" "running 0"
}
refused "named"
touch "$T/pair.go"
wait_for 20 test -e "$T/pair.over"
refused "opened elsewhere"

# A driver that can.
ULLAGE_FAKE_DRIVER=610.10 capture "$ULLAGE" suspend pair
is "driver 610 moves it" "$CODE $(job_value pair state)" "0 suspended"
is "the card is free" "$(used_by_all)" 0
check "and brings it back" "$ULLAGE" resume -q pair
touch "$T/pair.end"
check "it goes on to its end" wait_for 20 gone "$pair"

# Who shares nothing.
spawn "$ULLAGE" run -q -m 2GiB --name lone -- "$WORKER" init 0 alloc 40M 2 touch "$T/lone" wait "$T/lone.go" rounds 5 0 sum
wait_for 20 test -e "$T/lone"
check "who shares nothing is moved" "$ULLAGE" suspend -q lone

# The way back fails: it stays suspended, and it can be tried again.
ULLAGE_FAKE_FAIL=cuCheckpointProcessRestore:1=1 capture "$ULLAGE" resume lone
is "a way back that fails" "$CODE" 1
like "says what the driver said, and what can be done" "$ERR" \
    'the driver could not bring back process [0-9]+: CUDA error 1; .ullage resume. can be tried again'
is "the job is suspended still" "$(job_value lone state)" suspended
capture "$ULLAGE" suspend lone
like "and says so" "$ERR" 'job lone is suspended already'
check "the second time it comes back" "$ULLAGE" resume -q lone
is "and runs" "$(job_value lone state) $(job_value lone evicted_bytes)" "running 0"

# The driver gives it up.
ULLAGE_FAKE_LENIENT=checkpoint.lost "$ULLAGE" suspend -q lone
for round in first second; do
    capture "$ULLAGE" resume lone
    is "given up, $round time" "$CODE $(job_value lone state)" "1 suspended"
    like "it says that there is nothing to be done, $round time" "$ERR" \
        'failed to bring back process [0-9]+ and has given it up: its memory is lost, end it'
done
done_testing
