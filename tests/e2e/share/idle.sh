#!/usr/bin/env bash
#
# Idle caches of pools go before anybody waits, spills or is moved.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
export LD_LIBRARY_PATH=$FAKE:$BUILD_DIR
configure "suspend = asked" "watermark = 90%"
start_daemon
held() { ps_json "sum(v['held_bytes'] for j in d['jobs'] if j['name'] == '$1' for v in j['devices'])"; }
# holds_at_most NAME MIB
# shellcheck disable=SC2317 # by wait_for
holds_at_most() { [ "$(held "$1")" -le $(($2 * MIB)) ]; }

# --- a job that only keeps what another one needs
spawn "$ULLAGE" run -q -m 550MiB --name keeps -- "$GUESTS/cache" \
    take 50MiB take 350MiB check touch "$T/a" wait "$T/free" free take 50MiB touch "$T/kept" \
    wait "$T/again" check take 300MiB check fork again take 100MiB check touch "$T/b"
keeps=$PID
wait_for 10 test -e "$T/a"
touch "$T/free"
wait_for 10 test -e "$T/kept"
is "what is freed is kept" $(($(held keeps) / MIB)) 410
spawn "$ULLAGE" run -q -m 500MiB --name needs -- "$GUEST" init device 0 alloc 300MiB touch "$T/has" wait "$T/leave"
needs=$PID
check "what another one needs is given back" wait_for 10 test -e "$T/has"
between "down to the watermark, and no further" $(($(held keeps) / MIB)) 200 284
is "nobody was moved" "$(job_value keeps state) $(job_value needs state)" "running running"

# --- a promise to a job that is not there yet
run -q -m 400MiB --request 200MiB --name asks -- true
is "a promise is made of what is idle too" "$CODE $ERR" "0 "
between "which went first" $(($(held keeps) / MIB)) 60 100
touch "$T/leave"
wait_for 10 gone "$needs"
touch "$T/again"
check "later it takes again what it needs" wait_for 10 test -e "$T/b"
is "with every byte right, in a second pool too" "$(grep -vx 'take 0\|check right' "$T/$keeps.out")" "fork 0"

wait_for 10 gone "$keeps"

# --- above the watermark, before anybody waits
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
configure "suspend = asked" "watermark = 60%"
start_daemon
spawn "$ULLAGE" run -q -m 550MiB --name high -- "$GUESTS/cache" take 30MiB take 500MiB touch "$T/c" wait "$T/free2" free take 30MiB hold
high=$PID
wait_for 10 test -e "$T/c"
sleep 0.5
is "what is in use stays" $(($(held high) / MIB)) 540
touch "$T/free2"
check "what is idle goes down to the watermark" wait_for 10 holds_at_most high 361
between "and no further" $(($(held high) / MIB)) 340 361

# --- a job that may spill: caches first, then the host
spawn "$ULLAGE" run -q -m 550MiB --spill 300MiB --name spills -- "$GUEST" \
    init device 0 alloc 400MiB touch "$T/d" wait "$T/more" alloc 200MiB touch "$T/e" wait "$T/end"
spills=$PID
wait_for 10 test -e "$T/d"
is "what others only keep is better than the host" "$(job_value spills spilled_bytes) $(($(held spills) / MIB))" "0 410"
touch "$T/more"
check "what nobody can give goes to the host at once" wait_for 5 test -e "$T/e"
is "and is counted" $(($(job_value spills spilled_bytes) / MIB)) 200
is "without anybody's being moved" "$(job_value high state)" running
touch "$T/end"
wait_for 10 gone "$spills"
is "it ends well" "$(grep -c '^alloc 0$' "$T/$spills.out")" 2
kill -KILL "$high"
done_testing
