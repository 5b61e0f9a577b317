#!/usr/bin/env bash
#
# Blocks that several processes of a suspendable job have open: they stay on the card, the rest moves.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB
WORKER=$GUESTS/worker

words() { # FOLDER SIZE MS
    mkdir -p "$1"
    echo "init 0 alloc 20M 4 alloc $2 3 spawn init 0 alloc 10M 1 touch $1/in import $1/m 150 $3 touch $1/out sum end export $1/m join sum"
}

for size in 3M 4K; do
    # shellcheck disable=SC2046 # words
    run -q -m 2GiB -- "$WORKER" $(words "$T/plain.$size" $size 0)
    wanted=$(grep -E '^(imported|sum)' <<<"$OUT" | sort)
    # shellcheck disable=SC2046
    spawn "$ULLAGE" run -q -m 2GiB --suspendable --name "job$size" -- "$WORKER" $(words "$T/s.$size" $size 40)
    job=$PID
    wait_for 10 grep -q ^imported "$T/$job.out"
    held=$(job_value "job$size" resident_bytes)
    capture "$ULLAGE" suspend "job$size"
    is "$size: it is suspended" "$CODE $(job_value "job$size" state)" "0 suspended"
    # Small blocks lie in one page, which stays; of the large ones, one does. Contexts stay.
    [ $size = 3M ] && out=$(((80 + 10 + 2 * 4) * MIB)) || out=$(((80 + 10) * MIB))
    is "$size: all but the block that both have open" "$(job_value "job$size" evicted_bytes)" "$out"
    between "$size: the rest is resident" "$(job_value "job$size" resident_bytes)" $((held - out)) $((held - out + 4 * MIB))
    check "$size: it goes on" "$ULLAGE" resume -q "job$size"
    wait_for 30 gone "$job"
    is "$size: and ends as ever" "$(grep -E '^(imported|sum)' "$T/$job.out" | sort)" "$wanted"
done

# The owner dies while another has its block open: that one holds it, and it is not moved.
spawn "$ULLAGE" run -q -m 2GiB --suspendable --name heir -- sh -c "
    '$WORKER' init 0 alloc 8M 1 export '$T/h' &
    echo \$! >'$T/h.pid'
    exec '$WORKER' init 0 import '$T/h' 200 20 touch '$T/h.done' hold"
job=$PID
wait_for 10 grep -q ^imported "$T/$job.out"
kill -KILL "$(cat "$T/h.pid")"
# shellcheck disable=SC2317 # by wait_for
inherited() { [ "$(ps_json "[len(j['processes']) for j in d['jobs']]")" = "[1]" ]; }
check "the owner is gone" wait_for 10 inherited
held=$(job_value heir resident_bytes)
between "its block is held still" "$held" $((102 * MIB)) $((116 * MIB))
capture "$ULLAGE" suspend heir
is "nothing can be moved" "$CODE $(job_value heir evicted_bytes)" "0 0"
"$ULLAGE" resume -q heir
check "and the heir goes on" wait_for 20 test -e "$T/h.done"
done_testing
