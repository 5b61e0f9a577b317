#!/usr/bin/env bash
#
# Jobs that together do not fit: nobody fails, they take turns.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB # a tenth of what the words below say: the fake card has real bytes
export ULLAGE_FAKE_CONTEXT=10MiB
configure "slice = 1s"
start_daemon

# --- two of 5 GiB on 6
jobs=()
for job in one two; do
    spawn "$ULLAGE" run -q -m 500MiB --name $job -- "$GUESTS/share" 5 90MiB 4
    jobs+=("$PID")
done
wait_for 30 gone "${jobs[0]}"
wait_for 30 gone "${jobs[1]}"
is "both end well" "$(tail -n 1 "$T/${jobs[0]}.out") / $(tail -n 1 "$T/${jobs[1]}.out")" "right / right"
is "without a word" "$(cat "$T/${jobs[0]}.err" "$T/${jobs[1]}.err")" ""

# --- a trainer that grows beside an inference job that was promised its memory
spawn "$ULLAGE" run -q -m 500MiB --request 300MiB --priority 5 --name serve -- \
    "$GUEST" init device 0 alloc 100MiB touch "$T/serving" wait "$T/more" alloc 180MiB touch "$T/served" wait "$T/enough"
serve=$PID
wait_for 10 test -e "$T/serving"
spawn "$ULLAGE" run -q -m 600MiB --name train -- "$GUESTS/share" 6 70MiB 3
train=$PID
sleep 1.5
touch "$T/more"
check "what was promised is there at once" wait_for 10 test -e "$T/served"
is "and nothing failed" "$(grep -c '^alloc 0$' "$T/$serve.out")" 2
touch "$T/enough"
wait_for 30 gone "$train"
is "the trainer ends well too" "$(tail -n 1 "$T/$train.out")$(cat "$T/$train.err")" right

# --- three priorities: the higher come through the lower
jobs=()
for p in 1 2 3; do
    spawn "$ULLAGE" run -q -m 500MiB --priority $p --name p$p -- "$GUESTS/share" 4 100MiB 3 "$T/ended.p$p"
    jobs+=("$PID")
    sleep 0.4
done
for job in "${jobs[@]}"; do wait_for 40 gone "$job"; done
is "all end well" "$(for j in "${jobs[@]}"; do tail -n 1 "$T/$j.out"; done | tr '\n' ' ')" "right right right "
is "the lowest is the last" "$(find "$T" -name 'ended.p*' -printf '%T@ %f\n' | sort -n | tail -n 1 | cut -d' ' -f2)" ended.p1

# --- a want that cannot be met ends
configure "suspend = asked" "allocation_wait = 1s"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
start_daemon
spawn "$ULLAGE" run -q -m 500MiB --name fixed -- "$GUEST" init device 0 alloc 400MiB touch "$T/fixed" hold
fixed=$PID
wait_for 10 test -e "$T/fixed"
began=$(date +%s%N)
run -q -m 500MiB --name fails -- "$GUEST" init device 0 alloc 300MiB
is "out of memory in the end" "$(tail -n 1 <<<"$OUT")" "alloc 2"
between "after a second, not after sixty" $((($(date +%s%N) - began) / 1000000)) 900 8000
run -q -m 100MiB --name above -- "$GUEST" init device 0 alloc 200MiB
like "above the budget it fails at once" "$OUT" 'alloc 2'

# Without the daemon it fails at once again.
kill -KILL "$DAEMON"
wait_for 10 gone "$DAEMON"
sleep 3.2
began=$(date +%s%N)
run -q -m 500MiB --name alone -- "$GUEST" init device 0 alloc 300MiB
is "without the daemon: out of memory" "$(tail -n 1 <<<"$OUT")" "alloc 2"
between "at once" $((($(date +%s%N) - began) / 1000000)) 0 3000
kill -KILL "$fixed"
done_testing
