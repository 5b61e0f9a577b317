#!/usr/bin/env bash
#
# ullage run --suspendable: what goes wrong half-way leaves the job whole, or nothing at all.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

# Moving out is slow in these jobs, so that there is a half-way: 50 blocks of 16 MiB, in pieces of a few MiB.
SLOW=cuMemcpyDtoHAsync_v2=20ms,cuMemcpyHtoDAsync_v2=2ms
slow_job() { # NAME
    ULLAGE_FAKE_DELAY=$SLOW start_job "$1" init 0 alloc 16MiB 50 touch "$T/$1.has" wait "$T/$1.go" rounds 20 0 \
        sum touch "$T/$1.done" wait "$T/$1.end"
    wait_for 40 test -e "$T/$1.has"
}
# shellcheck disable=SC2317 # by wait_for
half_way() { # NAME STATE
    [ "$(job_value "$1" state)" = "$2" ] || return 1
    local out
    out=$(job_value "$1" evicted_bytes)
    [ "$out" -gt $((100 * MIB)) ] && [ "$out" -lt $((650 * MIB)) ]
}
timeout 60 "$WORKER" init 0 alloc 16MiB 50 rounds 20 0 sum >"$T/alone"
host_memory() { # of all the job's processes, in MiB, but for what the kernel may take
    local sum=0 pid kib
    for pid in $(pgrep -f "$T/$1\.has"); do
        kib=$(awk '/^Anonymous/ { n += $2 } /^LazyFree/ { n -= $2 } END { print n }' "/proc/$pid/smaps_rollup" 2>/dev/null)
        sum=$((sum + ${kib:-0}))
    done
    echo $((sum / 1024))
}
ends_the_same() { # NAME
    touch "$T/$1.go"
    wait_for 60 test -e "$T/$1.done"
    is "$1: the same to the last bit" "$(<"$T/$JOB.out")" "$(<"$T/alone")"
    touch "$T/$1.end"
    wait_for 20 gone "$JOB"
    check "$1: nothing is left on the card" wait_for 10 card_is_empty
}

slow_job interrupted
before=$(used_by_all)
spawn "$ULLAGE" suspend interrupted
suspend=$PID
check "there is a half-way" wait_for 20 half_way interrupted suspending
kill -INT "$suspend"
wait_for 40 gone "$suspend"
wait_for 40 state_is interrupted running
is "interrupted half-way, all of it comes back" "$(job_value interrupted state) $(used_by_all)" "running $before"
like "and it says so" "$(<"$T/$suspend.err")" 'stopped'
between "no host memory is kept" "$(host_memory interrupted)" 0 200
ends_the_same interrupted

slow_job killed
spawn "$ULLAGE" suspend killed
suspend=$PID
check "killed: there is a half-way" wait_for 20 half_way killed suspending
kill -KILL "$suspend"
# shellcheck disable=SC2317 # by wait_for
settled() { [[ $(job_value "$1" state) =~ ^(suspended|running)$ ]]; }
check "when ullage suspend is killed, the job gets somewhere" wait_for 40 settled killed
if [ "$(job_value killed state)" = suspended ]; then
    check "suspended: only what stays is on the card" only_what_stays killed
    "$ULLAGE" resume -q killed
fi
is "and it can run on" "$(job_value killed state)" running
ends_the_same killed

# shellcheck disable=SC2317 # by wait_for
no_jobs() {
    [ "$(ps_json "len(d['jobs'])")" = 0 ]
}
slow_job dies
spawn "$ULLAGE" suspend dies
suspend=$PID
check "dies: there is a half-way" wait_for 20 half_way dies suspending
pkill -KILL -f "$T/dies\.has"
wait_for 20 gone "$JOB"
check "a job that is killed half-way leaves nothing on the card" wait_for 10 card_is_empty
check "nor a job" wait_for 10 no_jobs
wait_for 30 gone "$suspend"
check "and ullage suspend ends" gone "$suspend"

# Somebody takes the room that became free.
SLOW='' slow_job robbed
"$ULLAGE" suspend -q robbed
spawn "$ULLAGE" run -q -m 6GiB --name other -- "$GUEST" init device 0 fill 2MiB touch "$T/other" wait "$T/leave"
other=$PID
wait_for 20 test -e "$T/other"
capture "$ULLAGE" resume robbed
is "no room: it stays suspended" "$CODE $(job_value robbed state)" "1 suspended"
like "and it says why" "$ERR" 'no room'
touch "$T/leave"
wait_for 20 gone "$other"
wait_for 20 "$ULLAGE" resume -q robbed
is "with room it comes back" "$(job_value robbed state)" running
ends_the_same robbed

# The same while it is cancelled: what is out has no room to come back, and the job must not run without it.
slow_job cornered
rm -f "$T/other" "$T/leave"
spawn "$ULLAGE" suspend cornered
suspend=$PID
check "cornered: there is a half-way" wait_for 20 half_way cornered suspending
spawn "$ULLAGE" run -q -m 6GiB --name other -- "$GUEST" init device 0 fill 100MiB touch "$T/other" wait "$T/leave"
other=$PID
wait_for 20 test -e "$T/other"
kill -INT "$suspend"
wait_for 40 gone "$suspend"
wait_for 40 settled cornered
is "cancelled without room: it stays suspended" "$(job_value cornered state)" suspended
is "and what had not moved yet is out too" "$(job_value cornered evicted_bytes)" $((800 * MIB))
touch "$T/cornered.go"
sleep 0.3
check "it does not run on without its memory" test ! -e "$T/cornered.done"
touch "$T/leave"
wait_for 20 gone "$other"
wait_for 20 "$ULLAGE" resume -q cornered
ends_the_same cornered

# On a card that is full to the last byte there is no memory for a stream.
cards 600MiB
start_job crowded init 0 alloc 40MiB 2 touch "$T/crowded.has" wait "$T/crowded.go" rounds 20 0 sum
crowded=$JOB
wait_for 20 test -e "$T/crowded.has"
rm -f "$T/other" "$T/leave"
spawn "$ULLAGE" run -q -m 600MiB --name other -- "$GUEST" init device 0 fill 2MiB fill 64KiB touch "$T/other" wait "$T/leave"
other=$PID
wait_for 20 test -e "$T/other"
capture "$ULLAGE" suspend crowded
is "on a full card a job can be suspended too" "$CODE$(job_value crowded state)" 0suspended
touch "$T/leave" "$T/crowded.go"
wait_for 20 gone "$other"
"$ULLAGE" resume -q crowded
wait_for 20 gone "$crowded"
timeout 60 "$WORKER" init 0 alloc 40MiB 2 rounds 20 0 sum >"$T/crowded.alone"
is "and ends as ever" "$(<"$T/$crowded.out")" "$(<"$T/crowded.alone")"

# More than the host has: the fake card's memory is not backed until it is written.
cards 4TiB
spawn "$ULLAGE" run -q -m 3TiB --suspendable --name full -- "$GUEST" init device 0 alloc 2048GiB touch "$T/full" \
    wait "$T/full.go"
wait_for 20 test -e "$T/full"
capture "$ULLAGE" suspend full
is "a job larger than the host: refused" "$CODE" 1
like "and it says so" "$ERR" 'the host has .* of memory left'
is "nothing moved" "$(job_value full state) $(job_value full evicted_bytes)" "running 0"
touch "$T/full.go"
done_testing
