#!/usr/bin/env bash
#
# Memory that streams order, with --suspendable from a pool of ours: it moves with the rest, a program computes and is
# told what it is without us, nothing is refused that the driver's pool would have given, and the account is the card's.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB
run -q -m 2GiB -- "$GUESTS/account_edge" linear 1 1 1 # so that the size of a context is known

# Programs at random, some suspended.
words=(init 0 ordered 300 0 idle)
timeout 60 "$WORKER" "${words[@]}" >"$T/alone" 2>&1
run -q -m 5GiB --suspendable -- "$WORKER" "${words[@]}"
is "the same as alone" "$OUT" "$(<"$T/alone")"
like "and alone it ends well" "$(<"$T/alone")" '^ordered [0-9a-f]+.held 0$'
MOST=2
[ -n "$SANITIZED" ] || scene ordered 2 init 0 ordered 60 2 wait FILE.go ordered 60 1 idle

# What is in the pool is out while the job is suspended, and comes back when there is room.
start_job kept init 0 keep 20MiB 10 keep 100KiB 30 touch "$T/kept" wait "$T/kept.go" verify
wait_for 20 test -e "$T/kept"
# A context may be booked by a guess until the driver's figure is read, which nobody does while it is suspended.
# shellcheck disable=SC2317 # by wait_for
is_measured() { [ "$(ps_json "next(j['devices'][0]['context_source'] for j in d['jobs'] if j['name'] == 'kept')")" != estimated ]; }
wait_for 10 is_measured
held_now() { ps_json "next(j['devices'][0]['held_bytes'] for j in d['jobs'] if j['name'] == 'kept')"; }
account=$(held_now)
"$ULLAGE" suspend -q kept
is "suspended" "$(job_value kept state)" suspended
between "the pool's pages are out" "$(job_value kept evicted_bytes)" $((203 * MIB)) $((206 * MIB))
check "and not on the card" only_what_stays kept
is "the account has them still" "$(held_now)" "$account"
spawn "$GUEST" init device 0 alloc 5800MiB touch "$T/other" wait "$T/leave"
wait_for 10 test -e "$T/other"
capture "$ULLAGE" resume kept
is "no room: it stays suspended" "$CODE $(job_value kept state)" "1 suspended"
touch "$T/leave"
wait_for 10 gone "$PID"
check "with room it comes back" wait_for 10 "$ULLAGE" resume -q kept
touch "$T/kept.go"
wait_for 20 gone "$JOB"
is "with every word" "$(<"$T/$JOB.out")$(<"$T/$JOB.err")" "wrong 0"

# A call that fails half-way, on the way out and on the way back.
for call in cuMemMap:140 cuMemCreate:150; do
    rm -f "$T"/kept*
    spawn env ULLAGE_FAKE_FAIL=$call=2 "$ULLAGE" run -q -m 2GiB --suspendable --name kept -- \
        "$WORKER" init 0 keep 20MiB 10 keep 100KiB 30 touch "$T/kept" wait "$T/kept.go" verify ordered 100 0 idle
    JOB=$PID
    wait_for 20 test -e "$T/kept"
    for _ in 1 2; do
        "$ULLAGE" suspend -q kept 2>/dev/null
        "$ULLAGE" resume -q kept 2>/dev/null || "$ULLAGE" resume -q kept 2>/dev/null
    done
    touch "$T/kept.go"
    wait_for 20 gone "$JOB"
    like "$call fails once" "$(<"$T/$JOB.out")" '^wrong 0.ordered [0-9a-f]+.held'
done

[ -z "$SANITIZED" ] || done_testing # the rest takes minutes then

# The driver's, if so wanted.
spawn "$ULLAGE" run -q -m 5GiB --suspendable --driver-pools --name theirs -- "$WORKER" init 0 keep 20MiB 10 \
    touch "$T/theirs" wait "$T/theirs.go" verify
wait_for 20 test -e "$T/theirs"
"$ULLAGE" suspend -q theirs
is "--driver-pools: nothing of it moves" "$(job_value theirs state) $(job_value theirs evicted_bytes)" "suspended 0"
"$ULLAGE" resume -q theirs
touch "$T/theirs.go"
wait_for 10 gone "$PID"
is "and it ends well" "$(<"$T/$PID.out")" "wrong 0"
run -q -m 5GiB --driver-pools -- "$WORKER" init 0
like "without --suspendable it is an error" "$CODE $ERR" '^2 .*--suspendable'

# Up to the budget.
run -q -m 240MiB -- "$WORKER" init 0 limited "$T/limits" 600
is "the driver's pool refuses some" "$OUT" $'refused wrongly 0\nrefusals some'
run -q -m 240MiB --suspendable -- "$WORKER" init 0 limited "$T/limits" 600
is "ours none that it would have given" "$OUT" "refused wrongly 0"
run -q -m 1GiB --max-request 1MiB --suspendable -- "$WORKER" init 0 keep 1MiB 1 keep 1025KiB 1
like "--max-request holds" "$OUT" 'failed cuMemAllocAsync.*: 2'

# What is told of the pool and of addresses in it.
timeout 60 "$WORKER" init 0 about >"$T/about"
run -q -m 5GiB --suspendable -- "$WORKER" init 0 about
is "it looks as the driver's" "$OUT" "$(<"$T/about")"

# The account is the card's, with threads at the budget's edge, and all kinds of memory.
for mode in async mixed; do
    run -q -m 256MiB --suspendable -- "$GUESTS/account_edge" $mode 8 150 7
    like "$mode: at the edge" "$CODE $OUT" '^0 grants'
done
run -q -m 75% --suspendable -- "$GUESTS/account_kinds" 33301 200
is "every kind: the account follows the card" "$CODE$OUT$ERR" "0"

# Ends: of a context with blocks in its pool, of a child, of a process.
run -q -m 5GiB --suspendable -- "$WORKER" init 0 ordered 60 0 keep 5MiB 10 reset init 0 ordered 60 0 idle
like "a context ends with its pool" "$OUT" '^ordered [0-9a-f]+.ordered [0-9a-f]+.held 0$'
run -q -m 5GiB --suspendable -- "$WORKER" fork init 0 ordered 40 0 idle end init 0 ordered 40 0 fork touch "$T/child" end \
    ordered 20 0 idle
like "children" "$CODE $OUT" $'^0 ordered [0-9a-f]+.held 0\nordered [0-9a-f]+\nordered [0-9a-f]+\nheld 0$'
check "nothing is left on the card" wait_for 10 card_is_empty

# What a record adds up to.
run -m 5GiB --suspendable --record "$T/record" -- "$WORKER" init 0 ordered 100 0 idle keep 5MiB 20
peak=$("$ULLAGE" report -f json "$T/record" | json '"%.1f MiB" % (d["peak_bytes"] / 2**20)')
like "a record's peak is the account's" "$CODE $ERR" "^0 ullage: exit 0 · peak $peak of"
between "most of it is the pool's" "$("$ULLAGE" report -f json "$T/record" | json 'd["peak_by_class"]["pool"] >> 20')" 100 150
done_testing
