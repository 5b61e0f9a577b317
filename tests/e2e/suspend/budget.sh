#!/usr/bin/env bash
#
# ullage budget: what a running job may hold, changed while it runs.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB,8GiB

budget_of() { # NAME LOGICAL
    ps_json "next(v['budget_bytes'] for j in d['jobs'] if j['name'] == '$1' for v in j['devices'] if v['logical'] == $2)"
}

spawn "$ULLAGE" run -q -m 1GiB --name live -- "$GUEST" init device 0 alloc 600MiB touch "$T/has" \
    wait "$T/go" alloc 800MiB touch "$T/more" wait "$T/go2" alloc 1MiB free free alloc 1MiB touch "$T/last" hold
job=$PID
wait_for 10 test -e "$T/has"

capture "$ULLAGE" budget live 2GiB
is "a budget is raised" "$CODE$OUT$ERR" 0
is "ps shows it on both devices" "$(budget_of live 0) $(budget_of live 1)" "$((2 * GIB)) $((2 * GIB))"
touch "$T/go"
wait_for 10 test -e "$T/more"
is "the job may hold more at once" "$(grep ^alloc "$T/$job.out" | tr '\n' ' ')" "alloc 0 alloc 0 "

capture "$ULLAGE" budget live 0=1GiB
is "a budget below what is held is taken" "$CODE" 0
like "and it says what that means" "$ERR" 'holds 1\.5 GiB on device 0: it gets no more until it is under 1\.0 GiB'
is "of that device only" "$(budget_of live 0) $(budget_of live 1)" "$GIB $((2 * GIB))"
touch "$T/go2"
wait_for 10 test -e "$T/last"
is "growth is refused until it is under it" "$(grep ^alloc "$T/$job.out" | tr '\n' ' ')" \
    "alloc 0 alloc 0 alloc 2 alloc 0 "

before="$(budget_of live 0) $(budget_of live 1)"
bad() { # NAME CODE PATTERN WORD...
    local name=$1 code=$2 pattern=$3
    shift 3
    capture "$ULLAGE" budget "$@"
    is "$name: exit code" "$CODE" "$code"
    like "$name: it says why" "$ERR" "$pattern"
}
bad "an unknown job" 1 "no job of yours is called 'nobody'; there are: live \(" nobody 1GiB
bad "above the card" 1 "a budget of 7\.0 GiB on device 0, which has 6\.0 GiB" live 7GiB
bad "no such device" 3 "sees no device '2'" live 2=1GiB
bad "no size" 2 "expected a job and a size" live
bad "a bad size" 2 "'4X'" live 4X
bad "one that follows use needs the daemon" 5 "needs the daemon" live auto
is "and nothing changed" "$(budget_of live 0) $(budget_of live 1)" "$before"

capture "$ULLAGE" budget "$(ps_json "d['jobs'][0]['id']")" 50%
is "a job is found by its id, and shares are of the card" "$(budget_of live 0) $(budget_of live 1)" \
    "$((3 * GIB)) $((4 * GIB))"

spawn "$ULLAGE" run -q -m 1GiB --name live -- "$GUEST" init device 0 alloc 1MiB touch "$T/twin" hold
wait_for 10 test -e "$T/twin"
bad "two of one name" 1 "2 jobs are called 'live': name one by its id: live \(" live 1GiB
done_testing
