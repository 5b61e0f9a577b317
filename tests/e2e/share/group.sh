#!/usr/bin/env bash
#
# Groups under the daemon: a person, or somebody of a higher priority, suspends all of one or none, and all come back.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
configure "slice = 500ms"
start_daemon
states() { ps_json "' '.join(j['state'] for j in d['jobs'] if j['group'] == 'train')"; }
# shellcheck disable=SC2317 # by wait_for
are() { [ "$(states)" = "$1" ]; }

for rank in 0 1; do
    spawn "$ULLAGE" run -q -m 400MiB --suspendable --group train --name "rank$rank" -- "$GUESTS/worker" \
        seed $((rank + 5)) init 0 alloc 100MiB 2 collectives "$T/meet" $rank 1000 8 7 sum
done
wait_for 10 test -e "$T/meet"
wait_for 10 are "running running"
sleep 0.3

capture "$ULLAGE" suspend -q rank1
is "a person suspends one: both are" "$CODE $ERR $(states)" "0  suspended suspended"
sleep 0.5
is "and stay so" "$(states)" "suspended suspended"
capture "$ULLAGE" suspend -q rank0
is "twice is an error" "$CODE" 1
capture "$ULLAGE" resume -q rank0
is "they come back" "$CODE $ERR" "0 "
check "both" wait_for 10 are "running running"

spawn "$ULLAGE" run -q -m 500MiB --priority 5 --name high -- "$GUEST" init device 0 alloc 400MiB touch "$T/has" wait "$T/stop"
check "who goes first gets the memory" wait_for 20 test -e "$T/has"
is "of both" "$(states)" "suspended suspended"
touch "$T/stop"
check "and then they go on" wait_for 20 are "running running"

capture "$ULLAGE" suspend -q --expect 601 rank0
is "for longer than collectives wait: refused" "$CODE" 1
like "and why" "$ERR" 'group train would be away for about 601 s'
check "both run" wait_for 10 are "running running"
done_testing
