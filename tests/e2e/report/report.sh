#!/bin/bash
# report.sh: `ullage report` in text and JSON, over records of the fake card and of the labelled programs.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)
WRITE=$BUILD_DIR/tests/verdict/write_record

report() {
    capture "$ULLAGE" report "$@"
}
of() {
    json "$1" <<<"$OUT"
}
widest() {
    awk '{ if (length($0) > most) most = length($0) } END { print most + 0 }' <<<"$OUT"
}

# --- a job on the fake card ---------------------------------------------------------------------------

run -m 5GiB --report "$T/job.json" --record "$T/job.ull" -- \
    "$ULLAGE" replay --repeat 12 "$TRACES/resnet50_b64.csv.gz"
is "the job runs" "$CODE" 0
summary=$ERR
report -f json "$T/job.ull"
is "JSON: exit code, nothing on standard error" "$CODE$ERR" 0
is "all names that scripts rely on are there" "$(of "[k for k in ('peak_bytes', 'average_bytes',
    'peak_to_average', 'fragmentation', 'latency_seconds', 'suggested_bytes', 'smallest_bytes', 'verdict',
    'host_verdict', 'confidence', 'evidence', 'holders', 'events', 'dropped') if k not in d]")" "[]"
is "the peak is the ledger's, to the byte" "$(of "d['peak_bytes']")" \
    "$(json "d['jobs'][0]['devices'][0]['peak_bytes']" "$T/job.json")"
is "the limit to set is that of the job's own summary" "$(of "d['suggested_bytes']")" \
    "$(json "d['jobs'][0]['devices'][0]['suggested_bytes']" "$T/job.json")"
like "which says it in words" "$summary" "next time -m $(of "'%.1f' % (d['suggested_bytes'] / 2**30)")GiB"
is "by class as the ledger at its peak" "$(of "d['peak_by_class']['context']")" \
    "$(json "d['jobs'][0]['devices'][0]['peak_by_class']['context']" "$T/job.json")"
is "a record of the driver alone knows no fragmentation" "$(of "d['fragmentation']")" null
is "a loop is steady" "$(of "d['verdict']")" steady
is "it was alone on the card" "$(of "d['alone']")" true
is "latencies are in order" \
    "$(of "0 < d['latency_seconds']['p50'] <= d['latency_seconds']['p99'] <= d['latency_seconds']['max']")" true
is "holders are in order, and no more than what was live" "$(of "([h['bytes'] for h in d['holders']] ==
    sorted((h['bytes'] for h in d['holders']), reverse=True) and
    sum(h['bytes'] for h in d['holders']) + d['holders_rest_bytes'] == d['live_peak_bytes'])")" true
is "devices and processes" "$(of "[len(d['devices']), len(d['processes']) >= 1,
    d['devices'][0]['budget_bytes'] == 5 * 2**30]")" "[1, true, true]"
training=$(of "d['suggested_bytes']")
report -f json --role inference "$T/job.ull"
is "inference gets more room" "$(of "d['suggested_bytes'] > $training and d['role'] == 'inference'")" true

# --- text ---------------------------------------------------------------------------------------------

report "$T/job.ull"
is "text: exit code, nothing on standard error" "$CODE$ERR" 0
for words in "peak            [0-9.]+ GiB" "steady \([0-9]+ % sure\)" "limit to set    -m [0-9.]+GiB" \
    "needs no" "allocations by size" "how long they lived"; do
    like "text has '$words'" "$OUT" "$words"
done
between "it fits into 80 columns" "$(widest)" 60 80
unlike "without a terminal there is no colour" "$OUT" $'\033'
unlike "in an ASCII locale there is only ASCII" "$OUT" '[^ -~[:space:]]'
ascii=$OUT
LC_ALL=C.UTF-8 report "$T/job.ull"
isnt "with UTF-8 the curves are finer" "$OUT" "$ascii"
for colour in yes no; do
    variables=(TERM=xterm)
    [ $colour = yes ] || variables+=(NO_COLOR=1)
    typed=$(env "${variables[@]}" python3 -c '
import os, pty, sys
pty.spawn(sys.argv[1:])' "$ULLAGE" report "$T/job.ull" </dev/null 2>&1)
    if [ $colour = yes ]; then
        like "on a terminal there is colour" "$typed" $'\033\\[1m'
    else
        unlike "NO_COLOR takes it away" "$typed" $'\033'
    fi
done

# What "would have run" is typed as a limit: it must.
needed=$(grep -oE 'would have run with [0-9.]+ [A-Za-z]+' <<<"$ascii" | awk '{ print $(NF - 1) $NF }')
run -q -m "$needed" -- "$ULLAGE" replay --repeat 2 "$TRACES/resnet50_b64.csv.gz"
is "and with the limit that would have run, $needed, it runs" "$CODE" 0

"$ULLAGE" replay --pool --device host --record "$T/pool.ull" "$TRACES/resnet50_b64.csv.gz" >/dev/null
report -f json "$T/pool.ull"
is "what a pool's record holds is not told twice: in blocks and besides" "$(of "(len(d['holders']) > 0 and
    sum(h['bytes'] for h in d['holders']) + d['holders_rest_bytes'] + d['holders_charged_bytes'] <= d['peak_bytes'])")" true

# --- files --------------------------------------------------------------------------------------------

report -o "$T/out.json" -f json "$T/job.ull"
is "-o writes a file and nothing else" "$CODE$OUT$ERR" 0
is "which is the whole report" "$(json "d['verdict']" "$T/out.json")" steady
echo keep >"$T/keep"
report -o "$T/keep" "$T/nothing"
is "a bad record leaves what was at -o" "$CODE$(cat "$T/keep")" 1keep
report -o "$T/no/such/out" "$T/job.ull"
is "a folder that is not there" "$CODE" 1
like "is named" "$ERR" "$T/no/such"
if [ -w /dev/full ]; then
    CODE=0
    "$ULLAGE" report "$T/job.ull" >/dev/full 2>"$T/.err" || CODE=$?
    is "a full disk" "$CODE" 1
    like "is said" "$(<"$T/.err")" "cannot write the report"
fi
CODE=0
"$ULLAGE" report "$T/job.ull" 2>"$T/.err" | head -n 1 >/dev/null
is "a reader that goes away is no error message" "$(<"$T/.err")" ""

size=$(stat -c %s "$T/job.ull")
head -c $((size / 2 + 77)) "$T/job.ull" >"$T/cut.ull"
report -f json "$T/cut.ull"
is "a record that was cut is told as far as it goes" "$CODE$(of "[d['truncated'],
    0 < d['truncated_offset'] <= $size / 2 + 77, d['events'] > 1000, d['over']]")" "0[true, true, true, false]"
report "$T/cut.ull"
like "and says so" "$OUT" "cut short at byte [0-9]+"
cp "$T/job.ull" "$T/bad.ull"
printf 'garbage garbage garbage' | dd of="$T/bad.ull" bs=1 seek=50000 conv=notrunc status=none
report "$T/bad.ull"
is "a damaged record" "$CODE$OUT" 1
like "names the file and the offset" "$ERR" "bad.ull.*damaged at offset [0-9]+"
for file in /dev/null "$T" "$T/nothing" "$ULLAGE" "$T/empty"; do
    : >"$T/empty"
    report "$file"
    is "no record: ${file##*/}" "$CODE$OUT" 1
    like "is named: ${file##*/}" "$ERR" "${file##*/}"
done

# --- usage --------------------------------------------------------------------------------------------

usage() {
    local what=$1 pattern=$2
    shift 2
    report "$@"
    is "usage: $what" "$CODE" 2
    like "usage: $what is explained" "$ERR" "$pattern"
}
usage "no file" "no file"
usage "two files" "too much" a b
usage "unknown format" "expected text, json" -f pdf a
usage "unknown role" "training or inference" --role both a
usage "unknown option" "unknown option" --frobnicate a
report --help
is "help" "$CODE$ERR" 0
like "names the formats" "$OUT" "text, json"

# --- programs whose truth is known ----------------------------------------------------------------------

scene() {
    "$WRITE" scene "$1" "$2" "$T/scene.ull" && report -f json "$T/scene.ull"
}
scene "slow leak of 1 KiB a step" 1
is "a slow leak is found, with its size" "$(of "[d['verdict'], d['confidence'] > 0.8,
    1000 < d['growth_bytes_per_period'] < 1100, d['periods'] > 10]")" '["leak", true, true, true]'
like "and who keeps it" "$(of "' '.join(d['evidence'])")" "of 1.0 KiB, tag 'history'"
report "$T/scene.ull"
like "in words" "$OUT" "leak \([0-9]+ % sure\)"
scene "leak in one of several processes" 2
like "a leak in one of several processes is that one's" "$(of "' '.join(d['evidence'])")" "process 1001"
scene "too short: few steps" 3
is "too short" "$(of "d['verdict']")" unknown
like "says so" "$(of "d['evidence'][0]")" "too short"
scene "driver's calls of a caching allocator" 1
like "a hidden allocator: how to get a better record" "$(of "' '.join(d['evidence'])")" "snapshot of PyTorch"
scene "host memory leak" 1
is "host memory leak" "$(of "d['host_verdict']")" leak
scene "warm-up, then a plateau" 1
is "a cache" "$(of "d['verdict']")" cache
is "fragmentation is known where chunks are recorded" "$(of "0 <= d['fragmentation'] <= 1")" true

# --- what grew -----------------------------------------------------------------------------------------

"$WRITE" scene "steady loop" 1 "$T/before.ull"
"$WRITE" scene "leak of any size in every step" 1 "$T/after.ull"
report --diff "$T/before.ull" "$T/after.ull" -f json
is "a diff puts what grew most first" "$CODE$(of "[d['diff']['tag'][0]['name'],
    d['diff']['tag'][0]['before_bytes'], d['diff']['tag'][0]['after_count'] > 10]")" '0["graph", 0, true]'
report --diff "$T/before.ull" "$T/after.ull"
like "and in words" "$OUT" '\+[0-9.]+ [MG]iB +0 B +[0-9.]+ [MG]iB .*graph'
between "in 80 columns" "$(widest)" 60 80
report --diff "$T/nothing" "$T/after.ull"
is "the other file is not there" "$CODE$OUT" 1

done_testing
