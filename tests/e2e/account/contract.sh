#!/bin/bash
# contract.sh: what a program sees at the line, and that nobody is refused what fits.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# 100 MiB, of which NVML's figure shows 94.4.
export ULLAGE_FAKE_CONTEXT=100MiB
context=$((100 * MIB))

# scene NAME OPTION... -- SCENE ARGUMENT...
scene() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    run -q "${options[@]}" -- "$GUESTS/account_scene" "$@"
    is "$name" "$CODE $ERR" "0 "
}

run -q -- "$GUESTS/account_scene" host # learns the context's size

scene "every call over the line: 2 at once, nothing changed" -m 512MiB -- over
scene "--max-request refuses every kind of call" -m 4GiB --max-request 64MiB -- max_request
scene "memory info, total memory and NVML agree" -m 512MiB -- info $((512 * MIB))
scene "a budget above the card is the card" -m 100GiB -- total $((6 * GIB))
scene "held above the budget: 0 free, blocked until paid" -m 400MiB -- debt
scene "no context: the driver's codes" -m 50% -- no_context
scene "handles on the host do not count" -m 400MiB -- host
scene "bad frees: the driver's codes, the account stays right" -m 50% -- bad_frees
scene "a pool's unused reserve is given back for another call" -m 400MiB -- unused_reserve
scene "memory freed in a stream's order is free for it" -m 400MiB -- stream_order
scene "another process's pool has shrunk at a synchronize" -m 400MiB -- other_pool
scene "a destroyed pool's memory is charged until it is gone" -m 400MiB -- destroyed_pool
scene "streams that are gone are seen before a refusal" -m 400MiB -- module_gone
scene "what lives in a context ends with it, and nothing else" -m 50% -- own_context
scene "small arrays are charged for the worst until measured" -m 50% -- small_arrays
scene "captures are broken by nothing of ours" -m 50% -- capture
scene "captured memory is charged at the launch; replay takes no more" -m 400MiB -- replay
scene "graphs that run at the same time" -m 400MiB -- two_graphs
ULLAGE_FAKE_DELAY=cuDevicePrimaryCtxRetain=50ms \
    scene "threads that make the primary context together" -m 150MiB -- primary_race
ULLAGE_FAKE_DELAY=cuCtxSetLimit=50ms ULLAGE_FAKE_NVML=nopids,notsupported \
    scene "threads that raise a context's stacks together" -m 50% -- stacks_race

run -m 50MiB -- "$GUESTS/account_scene" small
is "a budget below a context: 2 from both calls" "$CODE" 0
like "and a line that says so" "$ERR" "asked for .*\(context, cuDevicePrimaryCtxRetain\)"

# shellcheck disable=SC2317 # by wait_for
is_empty() { [ "$(used_by_all)" = 0 ]; }

# Somebody outside the job has most of the card.
spawn "$GUESTS/account_scene" hold 5000
wait_for 5 grep -q holding "$T/$PID.out"
scene "what is really free is told" -m 100% -- crowded $((6144 * MIB - 5000 * MIB - context))
kill -KILL "$PID"
wait_for 10 is_empty # the driver needs a moment, in which what is free is less than what the next ones see later

for mode in nopids notsupported; do
    ULLAGE_FAKE_NVML=$mode scene "NVML $mode: changes are the card's" -m 75% -- estimated
done
for mode in '' nopids otherpids notsupported; do
    ULLAGE_FAKE_NVML=$mode run -q -m 75% --report "$T/report" -- "$GUESTS/account_scene" unused_reserve
    source=process
    case $mode in nopids) source=card ;; notsupported) source=estimated ;; esac
    is "NVML ${mode:-as usual}: the report says how the context was measured" \
        "$(json "d['jobs'][0]['devices'][0]['context_source']" "$T/report")" "$source"
done
cards 6GiB
ULLAGE_FAKE_INTEGRATED=1 scene "an integrated device: pinned memory counts" -m 1GiB -- integrated
done_testing
