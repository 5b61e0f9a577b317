#!/usr/bin/env bash
#
# ullage run with --wait, --request, --prewarm and --priority: who starts when, who is refused, and what is said.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 6GiB

# --- without a daemon
for option in --wait --wait=5 --request=1GiB --prewarm=1GiB --prewarm=last; do
    run -m 2GiB $option -- touch "$T/started"
    is "$option needs the daemon" "$CODE" 5
    like "and says what to do" "$ERR" 'start ullaged.*the command was not started'
done
check "nothing was started" test ! -e "$T/started"
run -m 2GiB --priority 3 --group g -- true
is "a priority does not" "$CODE" 0
like "and it says from when it counts" "$ERR" 'counts once ullaged runs'

for bad in --wait=x --wait=-1 --wait=0 --priority=1.5 --priority=1001 --request=4X --prewarm=lost --group=; do
    run -m 2GiB "$bad" -- true
    is "$bad is refused" "$CODE" 2
done
run -m 2GiB --request 3GiB -- true
is "a request above the budget is refused" "$CODE" 2
like "and it says so" "$ERR" '--request of 3\.0 GiB on device 0 is above the budget of 2\.0 GiB'

# --- a queue
configure "suspend = asked"
start_daemon
spawn "$ULLAGE" run -q -m 5GiB --name holder -- "$GUEST" init device 0 alloc 4GiB touch "$T/has" wait "$T/end" exit 0
wait_for 10 test -e "$T/has"

run -m 4GiB --wait=1 --name late -- touch "$T/late"
is "no room in time" "$CODE" 1
like "it says who holds what" "$ERR" 'device 0 has 1\.[89] GiB of 6\.0 GiB left, 4\.0 GiB are asked for; holder \([0-9a-f]+\) holds 4\.1 GiB'
like "and that it gave up" "$ERR" 'there was no room in 1 s; the command was not started'
check "it did not start" test ! -e "$T/late"

run -m 4GiB --request 3GiB --name greedy -- touch "$T/greedy"
is "a promise that cannot be kept is refused" "$CODE" 1
like "it says who is in its way and what to do" "$ERR" "cannot be promised: .*holder \\([0-9a-f]+\\) holds 4\\.1 GiB; the command was not started\\. Ask for less, or wait for it with --wait"

spawn "$ULLAGE" run -m 4GiB --wait --name low -- sh -c "echo low >>$T/order; exit 7"
low=$PID
wait_for 10 is_state low waiting
spawn "$ULLAGE" run -q -m 4GiB --wait --priority 5 --name high -- sh -c "echo high >>$T/order; exec sleep 0.5"
high=$PID
wait_for 10 is_state high waiting
spawn "$ULLAGE" run -q -m 4GiB --wait --name gives_up -- touch "$T/gave"
gives_up=$PID
wait_for 10 is_state gives_up waiting
is "ps shows its priority" "$(job_value high priority)" 5
kill -INT "$gives_up"
wait_for 10 gone "$gives_up"
is "an interrupted wait leaves nothing" "$(ps_json "len([j for j in d['jobs'] if j['name'] == 'gives_up'])")" 0
check "and starts nothing" test ! -e "$T/gave"

# The daemon goes and comes: who waits goes on waiting.
kill -KILL "$DAEMON"
wait_for 10 gone "$DAEMON"
start_daemon
sleep 0.5
check "they wait still" test ! -e "$T/order"
is "also those that were started" "$(job_value holder state)" running

touch "$T/end"
wait_for 10 gone "$low"
wait_for 10 gone "$high"
is "both start, the higher first" "$(tr '\n' ' ' <"$T/order")" "high low "
like "who waits says so" "$(cat "$T/$low.err")" 'waits: device 0 has'

# --- prewarm last
run -m 5GiB --name learned -- "$GUEST" init device 0 alloc 3GiB
spawn "$ULLAGE" run -q -m 5GiB --name in_the_way -- "$GUEST" init device 0 alloc 4GiB touch "$T/way" wait "$T/end2"
wait_for 10 test -e "$T/way"
run -m 5GiB --prewarm last --wait=0.5 --name learned -- true
like "its last peak is what is freed" "$ERR" '3\.1 GiB are asked for'
touch "$T/end2"
run -m 5GiB --prewarm last --wait=10 --name learned -- true
is "then it starts" "$CODE" 0
run -m 5GiB --prewarm last --name unknown -- true
like "one that never ran has no peak" "$ERR" 'no job called unknown has ended yet'
is "and starts" "$CODE" 0
done_testing
