#!/usr/bin/env bash
#
# Jobs that together do not fit: nobody fails, they take turns. Those that the driver moves, and those that move
# themselves.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 240MiB # a twenty-fifth of what the words below say: the fake card has real bytes
export ULLAGE_FAKE_CONTEXT=10MiB
# On a busy machine a move takes long, and then slices are long, too: nobody gives up because of that.
configure "slice = 1s" "allocation_wait = 100s"
start_daemon

# ended JOB...: their last words, and whatever went wrong
ended() {
    local job
    for job in "$@"; do
        wait_for 60 gone "$job" || echo "hangs"
        tail -n 1 "$T/$job.out"
        cat "$T/$job.err"
    done | tr '\n' ' '
}

# --- two of 5 GiB on 6; in the second round one moves itself and the other is moved
for way in --suspendable --quiet; do
    jobs=()
    for job in one two; do
        [ $job = two ] || option=$way
        spawn "$ULLAGE" run -q "$option" -m 200MiB --name $job -- "$GUESTS/share" 5 36MiB 3
        jobs+=("$PID")
        option=--suspendable
    done
    is "$way: two that fill the card both end well, every byte as it was" "$(ended "${jobs[@]}")" "right right "
done

# --- a trainer that grows beside an inference job that was promised its memory
for way in --suspendable --quiet; do
    spawn "$ULLAGE" run -q -m 200MiB --request 124MiB --priority 5 "$way" --name serve -- \
        "$GUESTS/share" serve 112MiB 8
    serve=$PID
    spawn "$ULLAGE" run -q -m 240MiB "$way" --name train -- "$GUESTS/share" 6 28MiB 2
    train=$PID
    is "$way: what was promised is there, round by round" "$(ended "$serve")" "right "
    is "$way: the trainer that grows beside it ends well too" "$(ended "$train")" "right "
done

# --- three priorities: the higher come through the lower
jobs=()
for p in 1 2 3; do
    option=--suspendable
    [ $p != 2 ] || option=--quiet
    # The lowest has much to do, so that it is not through before the others have come.
    spawn "$ULLAGE" run -q "$option" -m 200MiB --priority $p --name p$p -- "$GUESTS/share" 4 40MiB $((p == 1 ? 40 : 10)) "$T/ended.p$p"
    jobs+=("$PID")
    wait_for 10 is_state p$p running
done
is "three priorities: all end well" "$(ended "${jobs[@]}")" "right right right "
is "the lowest is the last" "$(find "$T" -name 'ended.p*' -printf '%T@ %f\n' | sort -n | tail -n 1 | cut -d' ' -f2)" ended.p1

# --- a group: both ranks are out, or none; the one without a group is out meanwhile
for way in --suspendable --quiet; do
    jobs=()
    for rank in 0 1; do
        spawn "$ULLAGE" run -q -m 120MiB "$way" --group ring --name "rank$rank" -- \
            "$GUEST" init device 0 alloc 72MiB touch "$T/rank$rank$way" wait "$T/ring$way"
        jobs+=("$PID")
        wait_for 20 test -e "$T/rank$rank$way"
    done
    spawn "$ULLAGE" run -q -m 200MiB "$way" --priority 3 --name above -- \
        "$GUEST" init device 0 alloc 160MiB touch "$T/above$way" wait "$T/below$way"
    above=$PID
    check "$way: room is made by a group" wait_for 20 test -e "$T/above$way"
    is "$way: of which all are suspended" "$(job_value rank0 state) $(job_value rank1 state)" "suspended suspended"
    touch "$T/below$way" "$T/ring$way"
    is "$way: and all come back" "$(ended "$above" "${jobs[@]}")" "alloc 0 alloc 0 alloc 0 "
done

# --- a want that cannot be met ends
configure "suspend = asked" "allocation_wait = 1s"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
start_daemon
spawn "$ULLAGE" run -q -m 200MiB --name fixed -- "$GUEST" init device 0 alloc 160MiB touch "$T/fixed" hold
fixed=$PID
wait_for 10 test -e "$T/fixed"
began=$(date +%s%N)
run -q -m 200MiB --name fails -- "$GUEST" init device 0 alloc 120MiB
is "out of memory in the end" "$(tail -n 1 <<<"$OUT")" "alloc 2"
between "after a second, not after sixty" $((($(date +%s%N) - began) / 1000000)) 900 20000
run -q -m 100MiB --name above -- "$GUEST" init device 0 alloc 200MiB
like "above the budget it fails at once" "$OUT" 'alloc 2'

# Without the daemon it fails at once again.
kill -KILL "$DAEMON"
wait_for 10 gone "$DAEMON"
sleep 3.2
began=$(date +%s%N)
run -q -m 200MiB --name alone -- "$GUEST" init device 0 alloc 120MiB
is "without the daemon: out of memory" "$(tail -n 1 <<<"$OUT")" "alloc 2"
between "at once, not after a minute" $((($(date +%s%N) - began) / 1000000)) 0 20000
kill -KILL "$fixed"
done_testing
