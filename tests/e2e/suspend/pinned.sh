#!/usr/bin/env bash
#
# Where the bytes of a suspended job go: memory that is pinned on the way, beforehand (run --pinned), or never.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB
WORKER=$GUESTS/worker

# shellcheck disable=SC2317 # by wait_for
value_is() { # NAME KEY VALUE
    [ "$(job_value "$1" "$2")" = "$3" ]
}

words=(init 0 alloc 40M 8 alloc 100K 50)
rest=(rounds 4 0 sum)
run -q -m 2GiB -- "$WORKER" "${words[@]}" "${rest[@]}"
wanted=$OUT
is "alone" "$CODE" 0

begin() { # NAME OPTION...
    NAME=$1
    shift
    spawn "$ULLAGE" run -m 2GiB --suspendable --name "$NAME" "$@" -- "$WORKER" "${words[@]}" touch "$T/$NAME.has" \
        wait "$T/$NAME.go" "${rest[@]}"
    JOB=$PID
    wait_for 20 test -e "$T/$NAME.has"
}
suspend_and_end() { # TIMES
    local round
    for round in $(seq "$1"); do
        capture "$ULLAGE" suspend "$NAME"
        is "$NAME: suspended, $round" "$CODE" 0
        like "$NAME: all of it, and it says how fast, $round" "$ERR" '326\.0 MiB in [0-9.]+ s, at [0-9.]+ GB/s'
        check "$NAME: it goes on, $round" "$ULLAGE" resume -q "$NAME"
    done
    touch "$T/$NAME.go"
    wait_for 20 gone "$JOB"
    is "$NAME: the same to the last bit" "$(cat "$T/$JOB.out")" "$wanted"
}

# On the way; refused after one part, so that the ring's buffers are made in the usual way too; never.
begin plain
is "nothing is pinned ahead unless it is asked for" "$(job_value plain pinned_bytes)" 0
suspend_and_end 2
ULLAGE_FAKE_FAIL=cuMemHostRegister_v2:2=801,cuMemHostRegister_v2:3=801 begin half
suspend_and_end 1
begin never --pinned none
suspend_and_end 1

# Beforehand, as the program grows and no more than that.
begin some --pinned 300MiB
check "so much is pinned ahead" wait_for 10 value_is some pinned_bytes $((300 * MIB))
capture "$ULLAGE" ps
like "ps says so" "$OUT" '300\.0 MiB of host memory pinned for it'
suspend_and_end 2
ULLAGE_FAKE_FAIL=cuMemHostRegister_v2:1=801 begin cannot --pinned 300MiB
wait_for 10 grep -q 'the driver pins no host memory' "$T/$JOB.err"
like "who cannot pin says so" "$(cat "$T/$JOB.err")" 'the driver pins no host memory \(--pinned\)'
is "and has nothing pinned" "$(job_value cannot pinned_bytes)" 0
suspend_and_end 1

# The option is the job's: its processes share it.
# shellcheck disable=SC2016 # for the job's shell
spawn "$ULLAGE" run -q -m 2GiB --suspendable --pinned 600MiB --name two -- sh -c '
    "$0" init 0 alloc 100M 1 touch "$1.a" wait "$1.go" &
    "$0" init 0 alloc 300M 1 touch "$1.b" wait "$1.go"; wait' "$WORKER" "$T/two"
wait_for 20 test -e "$T/two.a"
wait_for 20 test -e "$T/two.b"
check "two processes share what may be pinned, each no more than it may need" wait_for 10 value_is two pinned_bytes \
    $((512 * MIB))
sleep 0.3
is "and the rest is too little for another part" "$(job_value two pinned_bytes)" $((512 * MIB))
touch "$T/two.go"
wait_for 20 gone "$PID"

run -m 1GiB --pinned 1GiB -- true
is "--pinned alone" "$CODE" 2
like "says what it needs" "$ERR" '--pinned needs --suspendable'
run -m 1GiB --suspendable --pinned 3X -- true
is "a bad size" "$CODE" 2
like "says which" "$ERR" "3X.*--pinned on the command line"
done_testing
