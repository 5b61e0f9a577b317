#!/bin/bash
# report.sh: the refusal line, the JSON report, the summary, and `ullage ps` while a job runs.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)

export ULLAGE_FAKE_CONTEXT=100MiB
scene=$GUESTS/account_scene
context=$((100 * MIB))
held=$((context + (20 + 100 + 64) * MIB))
R=$T/report.json
run -q -- "$scene" host # learns the context's size

says() {
    is "$1" "$(json "$2" "$R")" "$3"
}

# --- a refused job ---
run -m 512MiB --name mine --report "$R" -- "$scene" refused
is "the job's exit code" "$CODE" 0
line='^ullage: account_scene\[[0-9]+\] asked for 1\.0 GiB \(data, cuMemAlloc\) on device 0: 284\.0 MiB of 512\.0 MiB'
line+=' are held \(context 100\.0 MiB, data 120\.0 MiB, pool 64\.0 MiB\), 284\.0 MiB of them by this process;'
line+=" report: $R"
like "the refusal line: who, how much, of what, held by what, where the report is" "$ERR" "$line"
is "one line for three refusals in a row" "$(grep -c 'asked for' <<<"$ERR")" 1
like "the summary" "$ERR" "exit 0 · peak 284\.0 MiB of 512\.0 MiB \(55%\)( · average [0-9.]+ MiB)? · \
next time -m 1\.8GiB or more · 3 requests refused · report: $R"
says "the format's version" "d['version']" 1
says "name, and one device" "[(j['name'], len(j['devices'])) for j in d['jobs']]" '[["mine", 1]]'
says "an id" "len(d['jobs'][0]['id']) > 4" true
device="d['jobs'][0]['devices'][0]"
says "the device's names" "[${device}[k] for k in ('logical', 'physical', 'uuid')]" \
    '[0, 0, "GPU-00000000-fa4e-4000-8000-000000000000"]'
says "budget, held and peak" "[${device}[k] for k in ('budget_bytes', 'held_bytes', 'peak_bytes')]" \
    "[$((512 * MIB)), 0, $held]"
says "the average is none or below the peak" \
    "${device}['average_bytes'] is None or 0 < ${device}['average_bytes'] <= $held" true
says "a suggestion that would have sufficed, in tenths" \
    "$held + 1024*2**20 < ${device}['suggested_bytes'] < 2 * ($held + 1024*2**20)" true
says "the classes" "sorted(${device}['by_class'])" '["array", "context", "data", "graph", "module", "pool"]'
says "peaks by class" "[${device}['peak_by_class'][k] for k in ('context', 'data', 'pool')]" \
    "[$context, $((120 * MIB)), $((64 * MIB))]"
says "the process" "[(p['command'], p['held_bytes'], p['peak_bytes']) for p in d['jobs'][0]['processes']]" \
    "[[\"account_scene\", 0, $held]]"
refusal="d['jobs'][0]['refusals']"
says "three refusals" "len($refusal)" 3
says "what was wanted, held, and of which class" \
    "[${refusal}[0][k] for k in ('wanted_bytes', 'held_bytes', 'class', 'call')]" \
    "[$GIB, $held, \"data\", \"cuMemAlloc\"]"
says "by whom" "${refusal}[0]['pid'] == d['jobs'][0]['processes'][0]['pid']" true
says "the largest live allocations first" "[h['bytes'] for h in ${refusal}[0]['holders']]" \
    "[$((100 * MIB)), $context, $((50 * MIB)), $((20 * MIB))]"
says "a limit that would have sufficed" \
    "$held + 2**30 <= ${refusal}[0]['sufficient_bytes'] <= $held + 2**30 + 2**30 // 10" true
says "advice in its order" "[any(w in a for w in ws) for a, ws in zip(d['jobs'][0]['advice'], \
[['in force: memory=512MiB'], ['smaller batch'], ['16-bit'], ['data pipeline']])]" '[true, true, true, true]'
says "none was survived" "d['jobs'][0]['refusals_survived']" 0

run -m 512MiB --report "$R" -- "$scene" refused survive
says "survived probes are counted apart" \
    "[d['jobs'][0][k] for k in ('refusals_total', 'refusals_survived')]" '[3, 3]'
like "in the summary too" "$ERR" "next time -m 0\.8GiB · 3 requests refused \(3 survived\)"

run -m 512MiB -- "$scene" refused slowly
is "later refusals: a line a second at most" "$(grep -c 'asked for' <<<"$ERR")" 2
like "with a count" "$ERR" "by this process \(and [34] more since the last line\)"
file=$(find "$T/state" -name 'ullage-report-*.json')
like "without --report it is in the state folder" "$file" "$T/state/ullage/ullage-report-[0-9]+.json"
check "and is JSON" json "d['jobs'][0]['refusals']" "$file"

run -q -m 512MiB --report "$R" -- "$scene" refused
is "-q hides lines and summary" "$ERR" ""
run -m 512MiB --report "$R" -- true
says "a job without refusals has a report when asked" "len(d['jobs'][0]['refusals'])" 0
rm -f "$T/state/ullage/"*.json
run -m 512MiB -- "$scene" host
is "and none otherwise" "$(find "$T/state" -name '*.json')" ""

# --- whole or not at all ---
run -m 512MiB --report "$T/nowhere/report" -- touch "$T/started"
is "a report that cannot be written: 125" "$CODE" 125
like "with the reason" "$ERR" "nowhere.*No such file"
check "and nothing is started" test ! -e "$T/started"
mkdir "$T/small"
if mount -t tmpfs -o size=4k tmpfs "$T/small" 2>/dev/null; then
    trap 'umount "$T/small"; clean_up' EXIT
    echo old >"$T/small/report"
    run -m 512MiB --report "$T/small/report" -- "$scene" refused
    like "a full disk is told" "$ERR" "the report was not written: .*No space"
    is "and what was there stays whole" "$(ls "$T/small"):$(cat "$T/small/report")" "report:old"
else
    skip "a full disk" "no permission to mount"
fi

# --- preallocation ---
run -m 50% --report "$R" -- "$ULLAGE" replay "$TRACES/gpt2_b16.csv.gz" --preallocate
says "one early piece of over half the card: no suggestion" \
    "[${device}[k] for k in ('suggested_bytes', 'preallocated')]" '[null, true]'
like "but advice" "$ERR" "preallocated; repeat with --growth"

# --- who set what ---
mkdir "$T/config/ullage"
echo 'memory = 1GiB' >"$T/config/ullage/ullage.conf"
run --report "$R" -- true
says "a budget from the file" "${device}['budget_bytes']" "$GIB"
like "said so" "$(json "d['jobs'][0]['configuration'][0]" "$R")" "^memory=1GiB \($T/config/ullage/ullage.conf"
ULLAGE_MEMORY=2GiB run --report "$R" -- true
says "the environment is after the file" "${device}['budget_bytes']" "$((2 * GIB))"
like "said so" "$(json "d['jobs'][0]['configuration'][0]" "$R")" "^memory=2GiB \(.*ULLAGE_MEMORY"
ULLAGE_MEMORY=2GiB run -m 3GiB --report "$R" -- true
says "the call is last" "${device}['budget_bytes']" "$((3 * GIB))"
like "said so" "$(json "d['jobs'][0]['configuration'][0]" "$R")" "^memory=3GiB \(-m on the command line\)"
rm -r "$T/config/ullage"

# --- ps ---
spawn "$ULLAGE" run -m 60% --name first -- bash -c "$scene hold 200 & $scene hold 300 & wait"
first=$PID
# shellcheck disable=SC2317 # called through wait_for
holding() {
    [ "$(grep -c holding "$T/$first.out")" = 2 ]
}
check "two processes hold memory" wait_for 10 holding
job="[j for j in d['jobs'] if j['name'] == 'first'][0]"
is "ps: held is what both hold" "$(ps_json "${job}['devices'][0]['held_bytes']")" $((2 * context + 500 * MIB))
is "ps: which is what the card says" "$(card "sum(p['used'] + p['hidden'] for p in d['cards'][0]['processes'])")" \
    $((2 * context + 500 * MIB))
is "ps: each process" "$(ps_json "sorted(p['held_bytes'] for p in ${job}['processes'])")" \
    "[$((context + 200 * MIB)), $((context + 300 * MIB))]"
capture "$ULLAGE" ps
like "ps: a table" "$OUT" "first.*700\.0 MiB"
capture "$ULLAGE" ps --tree
like "ps --tree: the processes under their job" "$OUT" "first.*account_scene.*account_scene"
capture "$ULLAGE" ps -o csv
is "ps -o csv: as many columns in each line" "$(awk -F, '{print NF}' <<<"$OUT" | sort -u | wc -l)" 1

run -m 60% --name second -- true
like "a note when live budgets are more than the card" "$ERR" "note: .*2 jobs have budgets of 7\.2 GiB .* has 6\.0 GiB"
run -m 30% -- true
unlike "none when they are not" "$ERR" "note:"
kill -KILL "$first"
done_testing
