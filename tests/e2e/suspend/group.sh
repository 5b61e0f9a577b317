#!/usr/bin/env bash
#
# ullage run --suspendable --group: ranks whose kernels wait for each other are suspended together, between two of their
# collectives, or not at all. TIMES: how often; COLLECTIVES: collectives meanwhile.
#
# shellcheck disable=SC2317 # by wait_for
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/suspend/gated_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gated_lib.sh"
cards 6GiB

# How many collectives each rank has come to: "3 4"
reached() {
    python3 -c '
import struct, sys
words = struct.unpack("<2000I", open(sys.argv[1], "rb").read()[144:8144])
print(sum(words[:1000]), sum(words[1000:]))' "$1"
}
# ranks FILE N MS AHEAD OPTION...: two jobs, their runs in ${JOBS[@]}
ranks() {
    local file=$1 count=$2 ms=$3 ahead=$4 rank
    shift 4
    JOBS=()
    for rank in 0 1; do
        spawn "$ULLAGE" run -q -m 2GiB --suspendable --name "rank$rank" "$@" -- "$WORKER" \
            seed $((rank + 5)) init 0 alloc 1MiB 2 collectives "$file" $rank "$count" "$ms" "$ahead" sum
        JOBS+=("$PID")
    done
    wait_for 20 came_to "$file" 5
}
came_to() { # FILE N
    local counts
    read -r -a counts < <(reached "$1")
    [ "${counts[0]}" -ge "$2" ] && [ "${counts[1]}" -ge "$2" ]
}
states() { ps_json "' '.join(j['state'] for j in d['jobs'])"; }
both_gone() { gone "${JOBS[0]}" && gone "${JOBS[1]}"; }

# --- what they compute alone
for rank in 0 1; do
    "$WORKER" seed $((rank + 5)) init 0 alloc 1MiB 2 collectives "$T/alone" $rank "${COLLECTIVES:-200}" 0 7 sum >"$T/alone.$rank" &
    background+=($!)
done
wait

# --- together, wherever they are
ranks "$T/group" "${COLLECTIVES:-200}" 4 7 --group train
wrong='' times=0
until both_gone || [ $times -ge "${TIMES:-3}" ]; do
    sleep "0.0$((RANDOM % 10))"
    capture "$ULLAGE" suspend -q "rank$((RANDOM % 2))"
    if [ "$CODE" -ne 0 ]; then
        [[ $ERR =~ 'no job of yours'|'holds memory of a GPU' ]] || wrong+="suspend: $ERR; "
        continue
    fi
    [ "$(states)" = "suspended suspended" ] || wrong+="they are $(states); "
    read -r -a counts < <(reached "$T/group")
    [ "${counts[0]}" = "${counts[1]}" ] || wrong+="one came to ${counts[0]} collectives, the other to ${counts[1]}; "
    capture "$ULLAGE" resume -q "rank$((RANDOM % 2))"
    [ "$CODE" -eq 0 ] || wrong+="resume: $ERR; "
    [[ $(states) = "running running" ]] || both_gone || wrong+="then they are $(states); "
    times=$((times + 1))
done
is "each time both are suspended, at the same collective, and both come back" "$wrong" ""
between "that was tried" $times 1 1000
wait_for 30 both_gone
for rank in 0 1; do
    is "rank $rank: the same to the last bit" "$(<"$T/${JOBS[rank]}.out")" "$(<"$T/alone.$rank")"
done
check "nothing is left on the card" wait_for 10 card_is_empty

# --- one that cannot
ranks "$T/held" 1000 4 3 --group train
spawn "$ULLAGE" run -q -m 1GiB --suspendable --group train --name third -- "$WORKER" init 0 alloc 1MiB 1 flag "$T/flag" touch "$T/over" hold
wait_for 20 grep -q waiting "$T/$PID.out"
capture "$ULLAGE" suspend -q --timeout 1 rank0
is "one of the group does not come to rest: refused" "$CODE" 1
like "it is named" "$ERR" 'process [0-9]+ \(worker\): the work on stream 0x[0-9a-f]+ does not end'
read -r -a before < <(reached "$T/held")
check "and all run on" wait_for 10 came_to "$T/held" $((before[0] + 10))
is "none is suspended" "$(states)" "running running running"
touch "$T/flag"
wait_for 10 test -e "$T/over"
capture "$ULLAGE" suspend -q rank1
is "once it can, all are" "$CODE $(states)" "0 suspended suspended suspended"
capture "$ULLAGE" resume -q third
is "and come back" "$CODE $(states)" "0 running running running"
kill -KILL "${JOBS[@]}" "$PID" 2>/dev/null
wait_for 10 card_is_empty || "$ULLAGE" ps >/dev/null

# --- who commands dies while they stand by: seconds, so only where more is asked for
if [ -n "${TIMES:-}" ]; then
    rm -f "$T/held"
    ranks "$T/alive" 1000 2 3 --group again
    "$ULLAGE" suspend -q rank0 &
    client=$!
    sleep 0.02
    kill -KILL $client
    wait $client 2>/dev/null
    "$ULLAGE" resume -q rank0 2>/dev/null
    read -r -a before < <(reached "$T/alive")
    check "who commands is killed: they run on" wait_for 20 came_to "$T/alive" $((before[0] + 10))
    kill -KILL "${JOBS[@]}" 2>/dev/null
    wait_for 10 card_is_empty
fi

# --- for longer than their collectives wait
ranks "$T/long" 1000 4 3 --group short --collective-timeout 60
capture "$ULLAGE" suspend -q --expect 61 rank0
is "for longer than its collectives wait: refused" "$CODE" 1
like "with both times" "$ERR" 'group short would be away for about 61 s, and its collectives wait for 60 s'
is "and nothing was moved" "$(states)" "running running"
capture "$ULLAGE" suspend -q --expect 59 rank0
is "for less: not" "$CODE $(states)" "0 suspended suspended"
"$ULLAGE" resume -q rank1
kill -KILL "${JOBS[@]}" 2>/dev/null

# --- bad input
run --collective-timeout 5 -- true
is "a time-out without a group" "$CODE" 2
run --group a --collective-timeout x -- true
is "one that is no number" "$CODE" 2
capture "$ULLAGE" resume --expect 5 rank0
is "to expect something of a resume" "$CODE" 2
done_testing
