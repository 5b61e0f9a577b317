#!/usr/bin/env bash
#
# A job inside a job: a process is out as long as either wants it out, and each says so.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

# look: the states of the outer job and of the inner one in $STATES, the MiB of each that are out in $AWAY, those that each
# holds in $HELD. At one go, since Python takes its time to start.
look() {
    IFS=/ read -r STATES AWAY HELD < <(ps_json "(lambda o, i: '%s %s/%d %d/%d %d' % (o['state'], i['state'],
        o['evicted_bytes'] >> 20, i['evicted_bytes'] >> 20,
        o['devices'][0]['held_bytes'] >> 20, i['devices'][0]['held_bytes'] >> 20))(
        *(next(j for j in d['jobs'] if j['name'] == n) for n in ('outer', 'inner')))")
}
# act WORD JOB CODE STATES: what is left on the card is what is not out
act() {
    capture "$ULLAGE" "$1" --timeout 20 "$2"
    look
    is "$mode: $1 $2" "$CODE $STATES" "$3 $4"
}

# are_out WANTED: MiB of both. What the driver moves is seen in its figures, which may differ by a page for a context's own.
# shellcheck disable=SC2317 # by check
are_out() {
    local outer inner wanted_outer wanted_inner slack=2
    [ "$mode" = --suspendable ] && slack=0
    read -r outer inner <<<"$AWAY"
    read -r wanted_outer wanted_inner <<<"$1"
    ((outer - wanted_outer <= slack && wanted_outer - outer <= slack)) &&
        ((inner - wanted_inner <= slack && wanted_inner - inner <= slack)) && return
    echo "out: $AWAY, wanted: $1"
    return 1
}

timeout 60 "$WORKER" init 0 alloc 20M 3 rounds 20 0 sum >"$T/alone"
timeout 60 "$WORKER" init 0 alloc 20M 2 rounds 20 0 sum >>"$T/alone"
for mode in --suspendable --quiet; do # the latter is there already: moved by the driver
    # shellcheck disable=SC2016 # for the job's shell
    spawn "$ULLAGE" run -q "$mode" -m 3GiB --name outer -- sh -c '
        "$0" run -q '$mode' -m 2GiB --name inner -- "$1" init 0 alloc 20M 3 touch "$2.in" wait "$2.go" rounds 20 0 sum &
        "$1" init 0 alloc 20M 2 touch "$2.out" wait "$2.go" rounds 20 0 sum
        wait' "$ULLAGE" "$WORKER" "$T/m$mode"
    job=$PID
    wait_for 20 test -e "$T/m$mode.in"
    wait_for 20 test -e "$T/m$mode.out"
    act suspend outer 0 "suspended suspended"
    # Of the outer one's 100 MiB and the inner one's 60; the driver moves all that they hold.
    wanted=("100 60" "60 60")
    [ $mode = --suspendable ] || wanted=("$HELD" "${HELD#* } ${HELD#* }")
    check "$mode: all of it is out" are_out "${wanted[0]}"
    act suspend outer 1 "suspended suspended"
    act resume inner 1 "suspended suspended"
    like "$mode: it says with whom it comes back" "$ERR" 'job inner is suspended as a part of job outer: resume that one'
    act resume outer 0 "running running"
    is "$mode: nothing is out" "$AWAY" "0 0"
    act resume outer 1 "running running"

    act suspend inner 0 "running suspended"
    check "$mode: only the inner one is out" are_out "${wanted[1]}"
    act suspend inner 1 "running suspended"
    act suspend outer 0 "suspended suspended"
    check "$mode: the rest too" are_out "${wanted[0]}"
    act resume outer 0 "running suspended"
    check "$mode: the inner one stays out" are_out "${wanted[1]}"
    act resume inner 0 "running running"

    act suspend outer 0 "suspended suspended"
    act suspend inner 0 "suspended suspended"
    act suspend inner 1 "suspended suspended"
    act resume inner 0 "suspended suspended"
    like "$mode: resumed, it waits for the one around it" "$ERR" 'job inner comes back with the job around it'
    act resume outer 0 "running running"
    is "$mode: nothing is out any more" "$AWAY" "0 0"
    touch "$T/m$mode.go"
    wait_for 30 gone "$job"
    is "$mode: the same to the last bit" "$(sort "$T/$job.out")" "$(sort "$T/alone")"
    check "$mode: nothing is left on the card" wait_for 10 card_is_empty
done
done_testing
