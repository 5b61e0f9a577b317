#!/bin/bash
# replay.sh: `ullage replay --pool` on the recorded traces, on the host and on the fake card.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)
cards h200

# pool TRACE OPTION...: a replay with JSON in $OUT
pool() {
    capture "$ULLAGE" replay "$1" --pool -o json "${@:2}"
}
of() {
    json "$1" <<<"$OUT"
}

for name in resnet50_b64 resnet50_multires gpt2_b16 gpt2_varlen; do
    trace=$TRACES/$name.csv.gz
    for device in host cuda:0; do
        pool "$trace" --device "$device" --compare
        is "$name on $device: completed" "$CODE $ERR$(of "[d['outcome'], d['failures'], d['device']]")" \
            "0 [\"completed\", 0, \"$device\"]"
        is "$name on $device: all lines, the peak as recorded, few held" \
            "$(of "(d['operations'] == $(zcat "$trace" | tail -n +2 | wc -l) and
                d['peak_requested_bytes'] == d['recorded']['peak_requested_bytes'] and
                1 <= d['ratio'] <= 1.02 and d['ratio'] < d['recorded']['ratio'] and
                abs(d['ratio'] - d['peak_held_bytes'] / d['peak_requested_bytes']) < 1e-6)")" true
        check "$name on $device: it mapped" of "0 / (d['maps'] > 0) + 1"
        pool "$trace" --device "$device" --repeat 4
        is "$name on $device: the fourth repetition maps nothing" \
            "$(of "[d['maps'], d['unmaps'], d['failures'], d['ratio'] <= 1.02]")" "[0, 0, 0, true]"
        tight=$(of "d['peak_requested_bytes'] * 51 // 50")
        pool "$trace" --device "$device" --memory "$tight" --growth
        is "$name on $device: nothing refused with 1.02 of the peak" \
            "$CODE $(of "[d['failures'], d['peak_held_bytes'] <= $tight, d['limit_bytes'] <= $tight]")" \
            "0 [0, true, true]"
    done
done

# Further programs, on the host: what they hold, what is refused with 1.02 of the peak, and maps of a fourth repetition. What
# misses the aims says so here, and docs/bench.md why.
for name in serve bert recurrent detect checkpointed prefetch adversaries policy; do
    trace=$TRACES/more/$name.csv.gz most=1.02 rests=true refused=false
    case $name in
        policy) most=1.04 refused=true ;;
        prefetch) most=1.025 rests=false ;; # 1.015 once, 1.0224 of 543 pages over and over
        adversaries) rests=false ;;
    esac
    pool "$trace" --device host --repeat 4 --compare
    is "$name: the peak as recorded, few held" "$CODE $(of "[d['failures'], d['ratio'] <= $most, d['ratio'] < d['recorded']['ratio'],
        d['peak_requested_bytes'] == d['recorded']['peak_requested_bytes']]")" "0 [0, true, true, true]"
    is "$name: the fourth repetition maps nothing: $rests" "$(of "d['maps'] + d['unmaps'] == 0")" "$rests"
    pool "$trace" --device host --memory "$(of "d['peak_requested_bytes'] * 51 // 50")" --growth
    is "$name: some refused with 1.02 of the peak: $refused" "$(of "d['failures'] > 0")" "$refused"
done

# The latencies are in order, and the histogram counts each operation once.
trace=$TRACES/resnet50_b64.csv.gz
pool "$trace"
is "a driver loads: cuda:0 by default" "$(of "d['device']")" cuda:0
is "latencies" "$(of "[sorted(d['latency_ns']) == ['max', 'p50', 'p99', 'p999'],
    0 <= d['latency_ns']['p50'] <= d['latency_ns']['p99'] <= d['latency_ns']['p999'] <= d['latency_ns']['max'],
    sum(b['count'] for b in d['latency_histogram']) == d['operations'], d['ns_per_operation'] > 0, d['wall_ns_per_operation'] > 0]")" \
    "[true, true, true, true, true]"
LD_LIBRARY_PATH='' pool "$trace"
[ "$(of "d['device']")" = cuda:0 ] || is "no driver: the host" "$CODE $(of "d['device']")" "0 host"
CUDA_VISIBLE_DEVICES='' pool "$trace"
is "a driver without a card: the host" "$CODE $(of "d['device']")" "0 host"

if [ -w /dev/full ]; then
    for way in --pool "--repeat 1"; do
        CODE=0
        # shellcheck disable=SC2086 # words
        "$ULLAGE" replay "$trace" $way >/dev/full 2>"$T/.err" || CODE=$?
        is "a full disk: $way" "$CODE" 1
        like "is said: $way" "$(<"$T/.err")" "cannot write the result"
    done
fi

# Growth on and off.
pool "$trace" --device host --memory 4GiB --preallocate
is "--preallocate holds the limit from the start" "$CODE $(of "[d['peak_held_bytes'], d['growth']]")" \
    "0 [$((4 * GIB)), false]"
pool "$trace" --device host --memory 4GiB --preallocate --growth
is "--growth wins" "$CODE $(of "[d['peak_held_bytes'] < 3700000000, d['growth']]")" "0 [true, true]"
pool "$trace" --device cuda:0 -m 3%
is "a share of the card" "$CODE $(of "d['failures'] == 0 and d['limit_bytes'] < $((5 * GIB))")" "0 true"

# Too little: counted, said why, and the rest is played.
pool "$trace" --device host --memory 3GiB
is "too little memory: exit 1" "$CODE $(of "[d['failures'] > 0, d['peak_held_bytes'] <= $((3 * GIB)),
    d['operations']]")" "1 [true, true, 16623]"
like "with the outcome" "$(of "d['outcome']")" "^out of memory: [0-9]+ of the requests, first at line [0-9]+$"
like "and the report on standard error" "$ERR" "line [0-9]+: .*refused.*held"
pool "$trace" --device host --memory 1
is "a limit under one page: all refused" "$CODE $(of "[d['failures'] > 1000, d['peak_held_bytes']]")" "1 [true, 0]"

# Inside a budget the pool is held to it, through the stand-in.
run -q -m 3GiB -- "$ULLAGE" replay "$trace" --pool -o json
is "under ullage run -m 3GiB: refused" "$CODE $(of "[d['failures'] > 0, d['peak_held_bytes'] < $((3 * GIB))]")" \
    "1 [true, true]"
run -q -m 5GiB -- "$ULLAGE" replay "$trace" --pool --device cuda:0 -o json
is "under ullage run -m 5GiB: completed" "$CODE $(of "d['failures']")" "0 0"
export ULLAGE_FAKE_VMM=0
pool "$trace" --device cuda:0
is "a card that cannot map pages: completed, growing in regions" \
    "$CODE $(of "[d['failures'], d['growth'], d['ratio'] < 1.5, d['maps'] < 20]")" "0 [0, true, true, true]"
pool "$trace" --device cuda:0 --memory 4GiB --repeat 3
is "the same with a limit: steady" "$CODE $(of "[d['failures'], d['maps'], d['peak_held_bytes'] <= 4 << 30]")" \
    "0 [0, 0, true]"
run -q -m 3GiB -- "$ULLAGE" replay "$trace" --pool --device cuda:0 -o json
is "the same under ullage run -m 3GiB: refused" \
    "$CODE $(of "[d['failures'] > 0, d['peak_held_bytes'] < $((3 * GIB))]")" "1 [true, true]"
like "and says that the device is full and cannot put pages side by side" "$ERR" "side by side.*The device has no more memory"
unset ULLAGE_FAKE_VMM

# Several streams, memory live at the end, an empty trace, sizes of nothing and of everything.
play() {
    printf '%s\n' time_us,action,id,size,stream "$@" | gzip >"$T/own.gz"
    pool "$T/own.gz" --device host --repeat 3
}
play 1,a,1,5000000,0 2,a,2,3000000,7 3,a,3,100,140213 4,f,1,5000000,0 5,f,2,3000000,7
is "streams, and memory live at the end" "$CODE $(of "[d['failures'], d['operations'], d['peak_requested_bytes']]")" \
    "0 [0, 5, 8000100]"
mapfile -t many < <(for i in $(seq 200); do echo "$i,a,$i,1000,$((i * 1000))"; done)
play "${many[@]}"
is "more streams than a card likes" "$CODE $(of "d['failures']")" "0 0"
play
like "an empty trace" "$CODE $ERR" "^1 .*own.gz"
play 1,a,1,9223372036854775807,0 2,f,1,9223372036854775807,0
is "a size that no card has" "$CODE $(of "d['failures']")" "1 1"

# --compare and bad input.
capture "$ULLAGE" replay "$T/own.gz" --pool --device host --compare
is "--compare without figures: exit 1" "$CODE" 1
like "and it says where it looked" "$ERR" "recorded.jsonl"
cp "$TRACES/recorded.jsonl" "$T/"
capture "$ULLAGE" replay "$T/own.gz" --pool --device host --compare
like "--compare without the trace in them" "$CODE $ERR" "^1 .*has no line with .*own"
echo '{"trace": "own", "peak_requested": "many"}' >"$T/recorded.jsonl"
capture "$ULLAGE" replay "$T/own.gz" --pool --device host --compare
like "--compare with broken figures" "$CODE $ERR" "^1 .*lacks peak_requested"
refuses() {
    capture "$ULLAGE" replay "$trace" "${@:2}"
    like "refused: ${*:2}" "$CODE $ERR" "$1"
}
refuses "^2 .*--memory goes with --pool" --memory 1GiB
refuses "^2 .*--compare goes with --pool" --compare
refuses "^2 .*without --pool" --device host
refuses "^2 .*'12parsecs'" --pool --memory 12parsecs
refuses "^2 .*--memory" --pool --memory 0
refuses "^2 .*--memory" --pool --memory 140%
refuses "^2 .*cuda:N, as cuda:0, or host" --pool --device gpu
refuses "^2 .*--repeat" --pool --repeat 0
refuses "^3 .*cuda:7" --pool --device cuda:7
capture "$ULLAGE" replay "$trace" --pool --device host --compare
like "a table for people" "$CODE $OUT" "^0 trace .*peak held .*1\.00[0-9]+ of .*recorded program .*1\.15[0-9]+"
done_testing
