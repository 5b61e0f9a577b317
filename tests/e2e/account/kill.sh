#!/bin/bash
# kill.sh: deaths at any moment leave no bytes behind, and give none away too early.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Contexts of 4 MiB are charged whole to the process, so that the card's peak and the budget compare
# to the byte.
export ULLAGE_FAKE_CONTEXT=4MiB
run -q -- "$GUESTS/account_scene" host # learns the context's size

peak() {
    card "d['cards'][0]['tags'].get('$1', {}).get('peak_used', 0)"
}

seed=${SEED:-1000} # the same in every run; SEED=N tries another
export ULLAGE_FAKE_TAG=killed
run -q -m 320MiB --report "$T/report" -- "$GUESTS/account_kill" "$GUESTS/account_edge" 300 "$seed"
is "300 kills, seed $seed: all is given back" "$CODE $ERR" "0 "
is "all were killed at work" "$OUT" "killed 300"
is "and the report agrees" "$(json "d['jobs'][0]['devices'][0]['held_bytes']" "$T/report")" 0
between "the card's peak stays below the budget" "$(peak killed)" $((200 * MIB)) $((320 * MIB))

# What a dead process held is charged until the card has let go of it, and is then available.
export ULLAGE_FAKE_TAG=dead
# shellcheck disable=SC2016 # expanded by the inner shell
run -q -m 400MiB -- bash -c '
    "$0" hold 300 >"$1" &
    until grep -q holding "$1"; do sleep 0.01; done
    kill -KILL $!
    "$0" until 300' "$GUESTS/account_scene" "$T/holding"
is "memory of a dead process comes back" "$CODE" 0
like "but not before the card has it" "$OUT" "refused ([3-9]|[1-9][0-9]+)"
between "so that the card's peak stays below the budget" "$(peak dead)" $((308 * MIB)) $((400 * MIB))

# 64 processes want the last pages at once: 40 of them fit.
export ULLAGE_FAKE_TAG=last
budget=$((64 * 4 * MIB + 40 * 2 * MIB))
# shellcheck disable=SC2016 # expanded by the inner shell
spawn "$ULLAGE" run -q -m "$budget" --name last -- bash -c '
    for i in {1..64}; do "$0" last "$1/go" "$1/done" >"$1/last.$i" 2>&1 & done
    wait' "$GUESTS/account_scene" "$T"
# shellcheck disable=SC2317 # called through wait_for
all_say() {
    [ "$(cat "$T"/last.* 2>/dev/null | grep -c "^$1")" = 64 ]
}
check "64 processes are ready" wait_for 20 all_say ready
touch "$T/go"
check "all have an answer" wait_for 20 all_say result
is "40 were given a page" "$(cat "$T"/last.* | grep -c '^result 0')" 40
is "24 were refused" "$(cat "$T"/last.* | grep -c '^result 2')" 24
is "ullage holds exactly the budget" \
    "$(ps_json "[j['devices'][0]['held_bytes'] for j in d['jobs'] if j['name'] == 'last'][0]")" "$budget"
is "the card has given exactly the budget, and never more" "$(peak last)" "$budget"
touch "$T/done"
wait_for 10 gone "$PID"
done_testing
