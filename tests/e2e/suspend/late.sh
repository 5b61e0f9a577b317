#!/usr/bin/env bash
#
# Processes of a suspended job that had nothing on the card when it was suspended: they wait with nothing, and go on with
# the rest.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

# shellcheck disable=SC2317 # by wait_for
members() { [ "$(ps_json "len(d['jobs'][0]['processes'])")" = "$1" ]; }
# shellcheck disable=SC2317 # by wait_for
card_is() { [ "$(used_by_all)" = "$1" ]; }

for mode in --suspendable --quiet; do # the latter is there already: moved by the driver
    # One with memory, one that has called cuInit and no more, one that has not.
    # shellcheck disable=SC2016 # for the job's shell
    spawn "$ULLAGE" run -q "$mode" -m 3GiB --name late -- sh -c '
        "$0" label idle init touch "$2.init" wait "$2.on" device 0 alloc 60MiB touch "$2.idle" wait "$2.end" &
        "$0" label late wait "$2.on" touch "$2.begins" init device 0 alloc 40MiB touch "$2.late" wait "$2.end" &
        "$1" init 0 alloc 20M 3 touch "$2.has" wait "$2.end"
        wait' "$GUEST" "$WORKER" "$T/m$mode"
    job=$PID
    wait_for 20 test -e "$T/m$mode.has"
    wait_for 20 test -e "$T/m$mode.init"
    capture "$ULLAGE" suspend late
    is "$mode: it is suspended" "$CODE $(job_value late state)" "0 suspended"
    stays=$(used_by_all)
    [ $mode = --suspendable ] || is "$mode: nothing is on the card" "$stays" 0
    touch "$T/m$mode.on"
    wait_for 20 test -e "$T/m$mode.begins"
    check "$mode: the late one joins" wait_for 10 members 3
    sleep 0.3
    check "$mode: neither gets anything" test ! -e "$T/m$mode.idle" -a ! -e "$T/m$mode.late"
    is "$mode: it is suspended still" "$(job_value late state) $(used_by_all)" "suspended $stays"
    capture "$ULLAGE" suspend late
    is "$mode: not twice" "$CODE" 1
    capture "$ULLAGE" resume late
    is "$mode: it is resumed" "$CODE" 0
    wait_for 20 test -e "$T/m$mode.idle"
    check "$mode: and all go on" wait_for 20 test -e "$T/m$mode.late"
    is "$mode: with what they asked for" "$(grep -c 'alloc 0$' "$T/$job.out")" 2
    capture "$ULLAGE" suspend late
    is "$mode: now they are moved too" "$CODE $(job_value late state)" "0 suspended"
    [ $mode = --suspendable ] || is "$mode: the card is empty" "$(used_by_all)" 0
    "$ULLAGE" resume -q late
    touch "$T/m$mode.end"
    wait_for 20 gone "$job"
    check "$mode: nothing is left on the card" wait_for 10 card_is 0

    # What is suspended dies; what its job does next is suspended as well.
    spawn "$ULLAGE" run -q "$mode" -m 3GiB --name next -- sh -c "
        '$GUEST' init device 0 alloc 60MiB touch '$T/n$mode.a' hold & echo \$! >'$T/n$mode.pid'; wait
        exec '$GUEST' touch '$T/n$mode.b' init device 0 alloc 40MiB touch '$T/n$mode.c'"
    job=$PID
    wait_for 20 test -e "$T/n$mode.a"
    "$ULLAGE" suspend -q next
    kill -KILL "$(cat "$T/n$mode.pid")"
    wait_for 20 test -e "$T/n$mode.b"
    sleep 0.3
    is "$mode: a successor waits" "$(job_value next state) $(test -e "$T/n$mode.c" && echo goes on)" "suspended "
    capture "$ULLAGE" resume next
    wait_for 20 gone "$job"
    check "$mode: until the job is resumed" test -e "$T/n$mode.c"
done
done_testing
