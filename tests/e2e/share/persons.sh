#!/usr/bin/env bash
#
# What people ask of the daemon: suspend, resume, budgets; and what it does when jobs, clients and it itself die.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 6GiB
start_daemon
spawn "$ULLAGE" run -q -m 4GiB --name big -- "$GUEST" init device 0 alloc 2GiB touch "$T/a" wait "$T/go" alloc 1MiB touch "$T/b" hold
big=$PID
wait_for 10 test -e "$T/a"
# shellcheck disable=SC2317 # by wait_for
served() { "$ULLAGE" budget big auto; }
wait_for 10 served

# --- suspend and resume
capture "$ULLAGE" suspend big
is "a job is suspended by the daemon" "$CODE" 0
like "with its size" "$ERR" 'job big is suspended: 2\.1 GiB'
is "its state" "$(job_value big state)" suspended
is "the card is free" "$(used_by_all)" 0
sleep 0.7
is "the daemon does not bring it back" "$(job_value big state)" suspended
capture "$ULLAGE" suspend big
is "not twice" "$CODE" 1
like "and it says so" "$ERR" 'suspended already'
kill -KILL "$DAEMON"
wait_for 10 gone "$DAEMON"
start_daemon
sleep 0.7
is "nor does one that starts again" "$(job_value big state)" suspended

spawn "$ULLAGE" run -q -m 5GiB --name other -- "$GUEST" init device 0 alloc 4800MiB touch "$T/o" wait "$T/leave"
other=$PID
wait_for 10 test -e "$T/o"
capture "$ULLAGE" resume big
is "a resume without room is taken" "$CODE" 0
like "and waits for it" "$ERR" 'comes back as soon as there is room'
is "until then it is suspended" "$(job_value big state)" suspended
touch "$T/leave"
check "then it is back" wait_for 10 is_state big running
wait_for 10 gone "$other"
touch "$T/go"
check "and goes on" wait_for 10 test -e "$T/b"
capture "$ULLAGE" resume big
is "what runs cannot be resumed" "$CODE" 1

# --- a budget that follows use
budget_of() { ps_json "next(v['budget_bytes'] for j in d['jobs'] if j['name'] == '$1' for v in j['devices'])"; }
capture "$ULLAGE" budget big auto
is "a budget follows use" "$CODE" 0
# shellcheck disable=SC2317
follows() { [ "$(budget_of big)" -ne $((4 * GIB)) ]; }
check "it changes by itself" wait_for 10 follows
between "to more than is held and less than the card" "$(budget_of big)" $((2 * GIB)) $((6 * GIB))
capture "$ULLAGE" budget big 3GiB
sleep 0.5
is "a size ends that" "$(budget_of big)" $((3 * GIB))

# --- suspended without a daemon, resumed with one
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
sleep 3.2
capture "$ULLAGE" suspend big
is "without a daemon it is suspended directly" "$CODE" 0
start_daemon
sleep 0.5
is "and stays so when one comes" "$(job_value big state)" suspended
capture "$ULLAGE" resume big
is "which resumes it" "$CODE $(job_value big state)" "0 running"

# --- the dead
"$ULLAGE" suspend -q big
pkill -KILL -f "$T/a"
wait_for 10 gone "$big"
# shellcheck disable=SC2317 # by wait_for
none() { [ "$(used_by_all) $(ps_json "len(d['jobs'])")" = "0 0" ]; }
check "a suspended job that dies leaves nothing" wait_for 10 none

spawn "$ULLAGE" run -q -m 5GiB --name dies -- "$GUEST" init device 0 alloc 4800MiB touch "$T/d" hold
dies=$PID
wait_for 10 test -e "$T/d"
spawn "$ULLAGE" run -q -m 5GiB --wait --name next -- touch "$T/next"
wait_for 10 is_state next waiting
kill -KILL "$dies"
pkill -KILL -f "$T/d"
check "the place of a job that is killed with its run is free" wait_for 10 test -e "$T/next"
# shellcheck disable=SC2317 # by wait_for
ledgers() { find "$T/shm" -type f ! -name 'ullaged-*' | wc -l; }
wait_for 10 none
# shellcheck disable=SC2317
no_ledgers() { [ "$(ledgers)" = 0 ]; }
check "and no ledger is left" wait_for 15 no_ledgers

capture "$ULLAGED"
is "a second daemon is refused" "$CODE" 1
like "and says why" "$ERR" 'a daemon answers at .* already'
kill "$DAEMON"
wait_for 10 gone "$DAEMON"

# --- one that is out anyway, and one that two want out
cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
port=$((20000 + RANDOM % 20000))
echo a-secret-token >"$T/token"
printf '%s\n' "slice = 3s" "history = none" "listen = 127.0.0.1:$port" "token_file = $T/token" >"$T/config/ullage/ullage.conf"
start_daemon
hold() { spawn "$ULLAGE" run -q --suspendable -m 500MiB --name "$1" -- "$GUEST" init device 0 alloc 400MiB touch "$T/$1" hold; }
hold one
wait_for 10 test -e "$T/one"
hold two
check "two take turns" wait_for 10 is_state one suspended
capture timeout 10 "$ULLAGE" suspend one
is "who suspends the one that is out is told so" "$CODE" 0
like "at once" "$ERR" 'job one is suspended: 400\.0 MiB in 0\.[0-9]'
ULLAGE_FAKE_DELAY=cuMemcpyDtoHAsync_v2=100ms spawn "$ULLAGE" run -q --suspendable -m 150MiB --name slow -- \
    "$GUEST" init device 0 alloc 100MiB touch "$T/slow" hold
wait_for 10 test -e "$T/slow"
spawn "$ULLAGE" suspend slow
client=$PID
wait_for 10 is_state slow suspending
id=$(job_value slow id)
# shellcheck disable=SC2016
capture python3 -c 'import sys, urllib.request as u
try:
    print(u.urlopen(u.Request(sys.argv[1], method="POST", headers={"Authorization": "Bearer a-secret-token"})).status)
except u.HTTPError as e:
    print(e.code, e.read().decode())' "http://127.0.0.1:$port/api/suspend?job=$id"
like "the page may not suspend what is being suspended" "$OUT" '^409 .*already'
check "and takes nobody's answer" wait_for 10 gone "$client"
like "who waits for it" "$(<"$T/$client.err")" 'job slow is suspended: 100\.0 MiB'
done_testing
