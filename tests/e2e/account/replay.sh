#!/bin/bash
# replay.sh: recorded programs under the budgets of the demo, and the account of a long one against the
# card's.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)

trace=$TRACES/resnet50_b64.csv.gz
peak() {
    card "d['cards'][0]['tags'].get('$1', {}).get('peak_used', 0)"
}
"$ULLAGE" run -q -- "$ULLAGE" replay "$trace" >/dev/null # learns the context's size

outcome() {
    json "d['outcome']" <<<"$OUT"
}

capture "$ULLAGE" replay "$trace" --preallocate -o json
is "without a budget it takes the card: completed" "$CODE $(outcome)" "0 completed"
between "held: all but TensorFlow's reserve" "$(json "d['held_bytes']" <<<"$OUT")" $((5 * GIB)) $((6 * GIB))
run -q --growth -- "$ULLAGE" replay "$trace" --preallocate -o json
is "--growth: completed" "$CODE $(outcome)" "0 completed"
between "held follows need" "$(json "d['held_bytes']" <<<"$OUT")" 3560000000 4300000000

for limit in 5GiB 75%; do
    export ULLAGE_FAKE_TAG=$limit
    run -q -m "$limit" -- "$ULLAGE" replay "$trace" -o json
    is "-m $limit: completed" "$CODE $(outcome)" "0 completed"
    between "-m $limit: the card saw no more" "$(peak "$limit")" 3560000000 \
        "$(json "d['limit_bytes']" <<<"$OUT")"
done
for limit in 50% 2048M 20%; do
    export ULLAGE_FAKE_TAG=$limit
    rm -f "$T/state/ullage/"*.json
    run -m "$limit" -- "$ULLAGE" replay "$trace" -o json
    is "-m $limit: exit 1" "$CODE" 1
    like "-m $limit: out of memory at a line" "$(outcome)" "out of memory at line [0-9]+: wanted .*, free"
    between "-m $limit: the card saw no more" "$(peak "$limit")" $((GIB / 2)) \
        "$(json "d['limit_bytes']" <<<"$OUT")"
    check "-m $limit: with a report" json "d['jobs'][0]['refusals'][0]['wanted_bytes']" \
        "$(find "$T/state" -name 'ullage-report-*.json')"
done

# Two programs that take all they see: without ullage the second fails, with 45% each both run.
unset ULLAGE_FAKE_TAG
small=$T/small.csv.gz
printf '%s\n' time_us,action,id,size,stream 1,a,1,1000000000,0 2,f,1,1000000000,0 | gzip >"$small"
# shellcheck disable=SC2317 # by wait_for
took() { [ "$(used_by_all)" -ge 2000000000 ]; }
# both COMMAND...: one takes its memory, and the other one comes while it holds that; how both ended, in $OUTCOMES
both() {
    local pids=() hold
    OUTCOMES=
    for hold in 3 0; do
        spawn "$@" replay "$small" --preallocate --hold $hold -o json
        pids+=("$PID")
        [ $hold = 0 ] || wait_for 10 took
    done
    for pid in "${pids[@]}"; do
        wait_for 10 gone "$pid"
        OUTCOMES+="$(json "d['outcome'].split(':')[0]" "$T/$pid.out") "
    done
}
both "$ULLAGE"
is "two that preallocate, alone: the second fails" "$OUTCOMES" "completed out of memory at the start "
both "$ULLAGE" run -q -m 45% -- "$ULLAGE"
is "two that preallocate, 45% each: both complete" "$OUTCOMES" "completed completed "

# 16,000 operations: our peak is the card's, to the byte.
long=$T/long.csv.gz
awk 'BEGIN {
    srand(16); live = id = 0; print "time_us,action,id,size,stream"
    for (i = 0; i < 16000; i++) {
        if (live < 300 && (live == 0 || rand() < 0.5)) {
            size = int(rand() < 0.5 ? rand() * 4096 + 1 : rand() * 16777216 + 1)
            print i ",a," id "," size ",0"; at[live] = id++; bytes[live++] = size
        } else {
            k = int(rand() * live); print i ",f," at[k] "," bytes[k] ",0"
            at[k] = at[--live]; bytes[k] = bytes[live]
        }
    }
}' | gzip >"$long"
export ULLAGE_FAKE_TAG=long
run -q -m 90% --report "$T/report" -- "$ULLAGE" replay "$long" -o json
is "16,000 operations: completed" "$CODE $ERR$(json "[d['operations'], d['outcome']]" <<<"$OUT")" \
    '0 [16000, "completed"]'
is "the peak by our account is the card's" "$(json "d['jobs'][0]['devices'][0]['peak_bytes']" "$T/report")" \
    "$(peak long)"
done_testing
