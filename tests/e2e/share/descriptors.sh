#!/usr/bin/env bash
#
# No descriptor is left: the daemon takes nobody for gone that it only does not see, and does not turn in circles; and who waits
# for a place in the queue is told at once what is missing.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
start_daemon
spawn "$ULLAGE" run -q -m 500MiB --name holder -- "$GUEST" init device 0 alloc 400MiB touch "$T/has" wait "$T/end"
holder=$PID
wait_for 10 test -e "$T/has"
wait_for 10 is_state holder running
spawn "$ULLAGE" run -m 400MiB --wait --name waits -- touch "$T/started"
waits=$PID
wait_for 10 grep -q 'waits: device 0 has' "$T/$waits.err"

prlimit --pid "$DAEMON" --nofile=3:
check "a daemon without descriptors says so" wait_for 10 grep -q 'which jobs are there is not seen' "$T/$DAEMON.err"
# ticks: of a hundredth of a second that the daemon has run
ticks() { awk '{ print $14 + $15 }' "/proc/$DAEMON/stat"; }
before=$(ticks)
spawn "$ULLAGE" run -q -m 100MiB --wait --name knocks -- touch "$T/knocked" # nobody opens
sleep 1.5 # after one second a job whose file is not there is gone
between "and sleeps between its looks, whoever knocks" "$(($(ticks) - before))" 0 15
prlimit --pid "$DAEMON" --nofile=1024:
check "who knocked meanwhile is let in" wait_for 20 test -e "$T/knocked"
check "who waits has waited on" test ! -e "$T/started"
is "and was told nothing else" "$(grep -vE "^ullage: (waits: device 0|note: with this one)" "$T/$waits.err")" ""
touch "$T/end"
wait_for 10 gone "$holder"
check "it starts once there is room" wait_for 10 test -e "$T/started"

# However few are left for `ullage run`: from none at all to enough.
SAID='' WRONG=''
for ((left = 4; left < 40; left++)); do
    capture prlimit --nofile=$left "$ULLAGE" run -q -m 100MiB --wait -- true
    [ "$CODE" != 0 ] || break
    SAID+="$CODE $ERR"$'\n'
    [[ $CODE == 5 || $ERR == *"went away"* ]] && WRONG+="with $left: $ERR"$'\n'
done
is "with enough it runs" "$CODE" 0
like "with one too few the reason is said" "$SAID" '125 ullage: cannot (read|make) [^;]*: Too many open files; the command was not started'
is "the daemon is never taken for one that went away" "$WRONG" ""
done_testing
