#!/usr/bin/env bash
#
# Memory that a suspendable program maps itself moves with the rest, unless others have it too.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB
WORKER=$GUESTS/worker

words=(init 0 alloc 10M 2 map 4M 12 map 2M 24 mapexport 8M touch "$T/mapped" remap 80)
run -q -m 2GiB -- "$WORKER" "${words[@]}" 0 mapsum sum unmap mapsum
wanted=$OUT
is "alone" "$CODE" 0
before=$(used_by_all)

# It may be without one of its handles, of 4 MiB at most, between a release and the next cuMemCreate.
rm "$T/mapped"
spawn "$ULLAGE" run -q -m 2GiB --suspendable --name mapped -- "$WORKER" "${words[@]}" 20 mapsum sum unmap mapsum
job=$PID
wait_for 10 test -e "$T/mapped"
for round in 1 2 3; do
    capture "$ULLAGE" suspend mapped
    is "round $round: it is suspended" "$CODE $(job_value mapped state)" "0 suspended"
    between "round $round: what it mapped is out" "$(job_value mapped evicted_bytes)" $((112 * MIB)) $((116 * MIB))
    is "round $round: but for what it exported" "$(ps_json "next(
        j['devices'][0]['by_class']['data'] - j['evicted_bytes'] for j in d['jobs'])")" $((8 * MIB))
    between "round $round: the rest is resident" "$(used_by_all)" $((108 * MIB)) $((112 * MIB))
    check "round $round: it goes on" "$ULLAGE" resume -q mapped
    sleep 0.1
done
wait_for 20 gone "$job"
is "and ends as alone" "$(cat "$T/$job.out")" "$wanted"
is "with nothing left" "$(used_by_all)" "$before"

# The card is somebody else's meanwhile: nothing is lost.
rm "$T/mapped"
spawn "$ULLAGE" run -q -m 2GiB --suspendable --name mapped -- "$WORKER" "${words[@]}" 20 mapsum sum unmap mapsum
job=$PID
wait_for 10 test -e "$T/mapped"
"$ULLAGE" suspend -q mapped
spawn "$GUEST" init device 0 alloc 5900MiB touch "$T/other" wait "$T/leave"
wait_for 10 test -e "$T/other"
capture "$ULLAGE" resume mapped
is "no room: it stays suspended" "$CODE $(job_value mapped state)" "1 suspended"
touch "$T/leave"
wait_for 10 gone "$PID"
check "with room it comes back" wait_for 10 "$ULLAGE" resume -q mapped
wait_for 20 gone "$job"
is "and ends as alone" "$(cat "$T/$job.out")" "$wanted"

# A copy that fails half-way, on the way out and on the way back.
for call in cuMemcpyDtoHAsync_v2:20 cuMemMap:100 cuMemSetAccess:100; do
    rm "$T/mapped"
    spawn env ULLAGE_FAKE_FAIL=$call=2 "$ULLAGE" run -q -m 2GiB --suspendable --name mapped -- \
        "$WORKER" "${words[@]}" 0 sleep 1 mapsum sum unmap mapsum
    job=$PID
    wait_for 10 test -e "$T/mapped"
    for round in 1 2 3; do
        "$ULLAGE" suspend -q mapped 2>/dev/null || continue # nothing to resume
        wait_for 5 "$ULLAGE" resume -q mapped 2>/dev/null
    done
    wait_for 20 gone "$job"
    is "$call fails once" "$(cat "$T/$job.out")" "$wanted"
done
done_testing
