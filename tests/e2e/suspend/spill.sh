#!/usr/bin/env bash
#
# ullage run --spill: what does not fit goes to host memory at addresses of the device, and is counted.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB

# Over the budget.
spawn "$ULLAGE" run -m 1GiB --spill 2GiB --name big -- "$GUEST" init device 0 alloc 800MiB alloc 1GiB alloc 1000MiB \
    touch "$T/big" wait "$T/go" alloc 140MiB free free free alloc 2GiB touch "$T/big2" wait "$T/go2" free
job=$PID
wait_for 10 test -e "$T/big"
is "what is above the budget is given too" "$(grep -c '^alloc 0$' "$T/$job.out")" 3
is "the card holds what the budget allows" "$(used_by_all)" $((900 * MIB))
is "the rest is counted" "$(job_value big spilled_bytes)" $((2024 * MIB))
between "and is not held" "$(job_value big resident_bytes)" $((890 * MIB)) $((900 * MIB))
is "one line says so" "$(grep -c 'goes to host memory (--spill).*slow' "$T/$job.err")" 1
capture "$ULLAGE" ps
like "ps says so" "$OUT" '2\.0 GiB spilled to host memory, which is slow'
touch "$T/go"
wait_for 10 test -e "$T/big2"
is "not more than --spill says, and what is freed can be had again" "$(tr '\n' ' ' <"$T/$job.out")" \
    "init 0 device 0 0 alloc 0 alloc 0 alloc 0 alloc 2 free 0 free 0 free 0 alloc 0 "
is "all of it" "$(job_value big spilled_bytes)" $((2 * GIB))
like "a refusal is a refusal" "$(cat "$T/$job.err")" 'asked for 140\.0 MiB .*of 1\.0 GiB are held'
touch "$T/go2"
wait_for 10 gone "$job"
like "the summary says how much" "$(cat "$T/$job.err")" 'up to 2\.0 GiB spilled to host memory, which is slow'

# The card is full, though the budget is not.
spawn "$ULLAGE" run -q -m 4GiB --name other -- "$GUEST" init device 0 alloc 3GiB touch "$T/other" hold
wait_for 10 test -e "$T/other"
run -m 4GiB --spill 1GiB --report "$T/report.json" -- "$GUEST" init device 0 alloc 2GiB alloc 1GiB alloc 1GiB
is "a full card spills too" "$(grep ^alloc <<<"$OUT" | tr '\n' ' ')" "alloc 0 alloc 0 alloc 2 "
is "the report has it" "$(json "d['jobs'][0]['spilled_peak_bytes']" "$T/report.json")" "$GIB"
run -q -m 4GiB -- "$GUEST" init device 0 alloc 2GiB alloc 1GiB
is "not without --spill" "$(grep ^alloc <<<"$OUT" | tr '\n' ' ')" "alloc 0 alloc 2 "

# Small blocks share pages of the host too.
cards 6GiB
spawn "$ULLAGE" run -q -m 200MiB --spill 8MiB --name small -- "$GUEST" init device 0 fill 64KiB touch "$T/small" hold
wait_for 10 test -e "$T/small"
is "small blocks share pages" "$(job_value small spilled_bytes)" $((8 * MIB))
between "and fill them" "$(sed -n 's/^fill \([0-9]*\) .*/\1/p' "$T/$PID.out")" $((102 * MIB)) $((108 * MIB))

# Two processes have one account, and the dead give back.
# shellcheck disable=SC2016 # for the job's shell
spawn "$ULLAGE" run -q -m 500MiB --spill 64MiB --name two -- sh -c '
    "$0" init device 0 wait "$1.context" alloc 290MiB alloc 40MiB touch "$1.a" wait "$1.kill" kill &
    "$0" init device 0 touch "$1.context" wait "$1.a" label second alloc 40MiB alloc 22MiB touch "$1.b" wait "$1.again" alloc 380MiB alloc 40MiB touch "$1.c" hold' \
    "$GUEST" "$T/two"
two=$PID
wait_for 10 test -e "$T/two.b"
is "two processes have one account" "$(grep ^second "$T/$two.out" | tr '\n' ' ')" "second: alloc 2 second: alloc 0 "
is "all that --spill gives but 2 MiB" "$(job_value two spilled_bytes)" $((62 * MIB))
touch "$T/two.kill"
# shellcheck disable=SC2317 # by wait_for
left() { [ "$(job_value two spilled_bytes)" = $((22 * MIB)) ]; }
check "what a killed process had is given back" wait_for 10 left
touch "$T/two.again"
wait_for 10 test -e "$T/two.c"
is "and can be had again" "$(grep '^second: alloc' "$T/$two.out" | tail -n 1) $(job_value two spilled_bytes)" \
    "second: alloc 0 $((62 * MIB))"

# What was spilled stays where it is while the rest is moved.
cards 6GiB
words=(init 0 alloc 60M 3 alloc 100K 50 touch "$T/words" rounds 100)
run -q -m 2GiB -- "$GUESTS/worker" "${words[@]}" 0 sum
wanted=$OUT
rm "$T/words"
spawn "$ULLAGE" run -q -m 260MiB --spill 1GiB --suspendable --name both -- "$GUESTS/worker" "${words[@]}" 20 sum
both=$PID
wait_for 10 test -e "$T/words"
capture "$ULLAGE" suspend both
is "a job that spills is suspended" "$CODE $(job_value both state)" "0 suspended"
is "what it spilled stays" "$(job_value both spilled_bytes) $(job_value both evicted_bytes)" "$((60 * MIB)) $((126 * MIB))"
check "it goes on" "$ULLAGE" resume -q both
wait_for 20 gone "$both"
is "with the same sum" "$(cat "$T/$both.out")" "$wanted"

run -m 1GiB --spill 3X -- true
is "a bad size" "$CODE" 2
like "it says which" "$ERR" "3X.*--spill on the command line"
done_testing
