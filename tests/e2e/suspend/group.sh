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

# How many collectives each rank has come to, in a line: "3 4"
reached() { # FILE [RANKS]
    python3 -c '
import struct, sys
ranks = int(sys.argv[2])
words = struct.unpack("<%dI" % (1000 * ranks), open(sys.argv[1], "rb").read()[:4000 * ranks])
print(*(sum(words[1000 * r:1000 * r + 1000]) for r in range(ranks)))' "$1" "${2:-2}"
}
# ranks FILE N MS AHEAD OPTION...: a job for each of $RANKS ranks, their runs in ${JOBS[@]}. WORD: the guest's.
RANKS=2 WORD=collectives
ranks() {
    local file=$1 many=$2 ms=$3 ahead=$4 rank
    shift 4
    JOBS=()
    for ((rank = 0; rank < RANKS; rank++)); do
        spawn "$ULLAGE" run -q -m 1GiB --suspendable --name "rank$rank" "$@" -- "$WORKER" \
            seed $((rank + 5)) init 0 alloc 1MiB 2 "$WORD" "$file" "$rank/$RANKS" "$many" "$ms" "$ahead" sum
        JOBS+=("$PID")
    done
    wait_for 20 came_to "$file" 5
}
came_to() { # FILE N: all ranks
    local came
    for came in $(reached "$1" "$RANKS"); do
        [ "$came" -ge "$2" ] || return 1
    done
}
states() { ps_json "' '.join(j['state'] for j in d['jobs'])"; }
all_of() { # STATE: that of every rank
    local all
    printf -v all "$1 %.0s" $(seq "$RANKS")
    echo "${all% }"
}
all_gone() {
    local pid
    for pid in "${JOBS[@]}"; do gone "$pid" || return 1; done
}

# together NAME RANKS WORD N TIMES: N collectives with suspensions wherever they are, the bits as without.
together() {
    local name=$1 many=$4 most=$5 wrong='' times=0 rank
    RANKS=$2 WORD=$3
    touch "$T/$name.alone.go"
    for ((rank = 0; rank < RANKS; rank++)); do
        "$WORKER" seed $((rank + 5)) init 0 alloc 1MiB 2 "$WORD" "$T/$name.alone" "$rank/$RANKS" "$many" 0 7 sum \
            >"$T/$name.alone.$rank" &
        background+=($!)
    done
    wait
    ranks "$T/$name" "$many" 4 7 --group train
    until all_gone || [ $times -ge "$most" ]; do
        sleep "0.0$((RANDOM % 5))"
        capture "$ULLAGE" suspend -q "rank$((RANDOM % RANKS))"
        if [ "$CODE" -ne 0 ]; then
            [[ $ERR =~ 'no job of yours'|'holds memory of a GPU' ]] || wrong+="suspend: $ERR; "
            continue
        fi
        [ "$(states)" = "$(all_of suspended)" ] || wrong+="they are $(states); "
        [ "$(reached "$T/$name" "$RANKS" | tr ' ' '\n' | sort -u | wc -l)" = 1 ] ||
            wrong+="they came to $(reached "$T/$name" "$RANKS") collectives; "
        capture "$ULLAGE" resume -q "rank$((RANDOM % RANKS))"
        [ "$CODE" -eq 0 ] || wrong+="resume: $ERR; "
        [[ $(states) = "$(all_of running)" ]] || all_gone || wrong+="then they are $(states); "
        times=$((times + 1))
    done
    touch "$T/$name.go"
    is "$name: each time all are suspended, at the same collective, and all come back" "$wrong" ""
    between "$name: that was tried" $times "$most" "$most"
    wait_for 30 all_gone
    for ((rank = 0; rank < RANKS; rank++)); do
        is "$name: rank $rank has the same to the last bit" "$(<"$T/${JOBS[rank]}.out")" "$(<"$T/$name.alone.$rank")"
    done
    check "$name: nothing is left on the card" wait_for 10 card_is_empty
    RANKS=2 WORD=collectives
}

# --- together, wherever they are
together two 2 collectives "${COLLECTIVES:-200}" "${TIMES:-3}"
[ -z "${TIMES:-}" ] || together five 5 collectives "${COLLECTIVES:-60}" "$TIMES"
# What lets them end a collective is a thread's call behind the gate: nobody is at rest until it is anybody's turn.
together helped 3 helped "${COLLECTIVES:-60}" "${TIMES:-2}"

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
