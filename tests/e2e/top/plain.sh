#!/usr/bin/env bash
#
# `ullage top` without a terminal: a table or JSON of the same things, and options that are wrong.
#
# shellcheck disable=SC2016 # scripts for the shells of the guests
# shellcheck source=tests/e2e/top/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB,16GiB
run -q -m 1GiB -- "$GUEST" ctx # learns what a context takes here

capture "$ULLAGE" top
is 'with no jobs it still succeeds' "$CODE" 0
like 'and shows the cards' "$OUT" $'\n0 +Ullage Fake.* 6\.[0-9]G +0 '
like 'and says how to start a job' "$OUT" 'no jobs: start one with ullage run'

spawn "$ULLAGE" run -q -m 4GiB -g 0 --name train -- "$GUEST" ctx alloc 900MiB spawn ctx alloc 400MiB hold end hold
train=$PID
wait_for 10 grep -q ready "$T/$train.out"
spawn "$ULLAGE" run -q -m 1GiB --name tiny -- "$GUEST" init device 1 alloc 50MiB hold
tiny=$PID
wait_for 10 grep -q ready "$T/$tiny.out"
spawn "$GUEST" ctx alloc 200MiB hold
stranger=$PID
wait_for 10 grep -q ready "$T/$stranger.out"

capture "$ULLAGE" top
is 'a table when nobody looks on' "$CODE" 0
like 'a job with its budget' "$OUT" $'\ntrain +[0-9]+ root .* 4\.0G +1\.5G '
like 'a budget is of the cards that it uses' "$OUT" $'\ntiny +[0-9]+ root +1 +1\.0G '
like 'its processes as a tree' "$OUT" $'\n└─ guest .*\n   └─ guest '
like 'a process of no job' "$OUT" $'\(in no job\)\n└─ guest'
between 'no line is wider than 80' "$(wc -L <<<"$OUT")" 70 80
is 'nothing but text' "$(tr -d '\n' <<<"$OUT" | grep -c '[[:cntrl:]]')" 0
capture env COLUMNS=200 "$ULLAGE" top
like 'COLUMNS widens it' "$OUT" 'guest ctx alloc 900MiB spawn ctx alloc 400MiB hold'
capture env LC_ALL=C "$ULLAGE" top
is 'ASCII where the locale is' "$(LC_ALL=C grep -c '[^ -~]' <<<"$OUT")" 0
capture "$ULLAGE" top --ascii
like 'or where asked for' "$OUT" $'\n`- guest'
capture "$ULLAGE" top --flat --sort name --filter TINY
like 'filter, and no tree' "$OUT" $'\ntiny .*\n  guest'
unlike 'filter leaves out the rest' "$OUT" 'train'
capture "$ULLAGE" top -n 3 -d 0.1
is 'several rounds' "$(grep -c '^GPU' <<<"$OUT")" 3
capture env TERM=dumb script -qec "'$ULLAGE' top" /dev/null
like 'TERM=dumb is no terminal' "$OUT" 'JOB / PROCESS'
unlike 'and gets no escapes' "$OUT" $'\033'
capture env -u TERM script -qec "'$ULLAGE' top" /dev/null
like 'nor is none at all' "$OUT" 'JOB / PROCESS'

top_json() {
    "$ULLAGE" top -o json "${@:2}" | json "$1"
}
is 'JSON: cards' "$(top_json '[c["physical"] for c in d["devices"]]')" '[0, 1]'
is 'JSON: used + reserved + free = total' \
    "$(top_json 'all(c["used_bytes"] + c["reserved_bytes"] + c["free_bytes"] == c["total_bytes"] for c in d["devices"])')" true
is 'JSON: held by jobs on each card, as ps says' \
    "$(top_json '[c["job_bytes"] for c in d["devices"]]')" \
    "$(ps_json '[sum(v["held_bytes"] for j in d["jobs"] for v in j["devices"] if v["physical"] == i) for i in (0, 1)]')"
is 'JSON: others are what is left' \
    "$(top_json 'all(c["other_bytes"] == c["used_bytes"] - c["job_bytes"] for c in d["devices"])')" true
between 'JSON: the stranger is among the others' "$(top_json 'd["devices"][0]["other_bytes"] >> 20')" 295 330
is 'JSON: jobs and how deep' \
    "$(top_json '[[j["name"], len(j["processes"])] for j in d["jobs"]]')" '[["train", 2], ["tiny", 1]]'
is 'JSON: who started whom' \
    "$(top_json '(lambda p: p[1]["parent"] == p[0]["pid"] and p[0]["parent"] is None)(d["jobs"][0]["processes"])')" true
is 'JSON: strangers' "$(top_json '[p["pid"] for p in d["in_no_job"]]')" "[$stranger]"
capture "$ULLAGE" top -o ndjson -n 12 -d 0.1
is 'NDJSON: a document a line' "$(wc -l <<<"$OUT")" 12
is 'NDJSON: the last one can judge' \
    "$(tail -n 1 <<<"$OUT" | json '[j["verdict"] for j in d["jobs"]]')" '["steady", "steady"]'
is 'NDJSON: the first one cannot' "$(head -n 1 <<<"$OUT" | json 'd["jobs"][0]["verdict"]')" null

# It made no context: what the card holds is what jobs and the stranger hold.
is 'nobody else is on the cards' \
    "$(card 'len({p["pid"] for c in d["cards"] for p in c["processes"]}) if "cards" in d else 4')" 4

for bad in '-d 0' '-d x' '-d 1e9' '-n -1' '-n x' '-o yaml' '--sort size' '-o json -n 2' 'word' '--nonsense'; do
    # shellcheck disable=SC2086 # words
    capture "$ULLAGE" top $bad
    is "usage: $bad" "$CODE" 2
done
capture "$ULLAGE" top --filter "$(printf 'x%.0s' {1..100})"
is 'usage: a filter that is too long' "$CODE" 2
capture "$ULLAGE" top --help
like 'help' "$CODE: $OUT" '^0: Usage: ullage top'
capture bash -c "'$ULLAGE' top >/dev/full"
is 'a full disk is a failure' "$CODE" 1
capture bash -c "'$ULLAGE' top -o ndjson -n 0 -d 0.1 | head -n 2 | wc -l"
is 'a pipe that closes ends it' "$CODE: $OUT" '0: 2'

# Without a driver: jobs are seen all the same; without jobs too there is nothing.
capture env -u LD_LIBRARY_PATH "$ULLAGE" top
like 'without NVML the cards that jobs know' "$CODE: $OUT" '^0: no card told by the driver: .*train'
capture env -u LD_LIBRARY_PATH ULLAGE_SHM_DIR="$T/nowhere" "$ULLAGE" top
is 'no card and no job: exit code 3' "$CODE" 3
capture env ULLAGE_FAKE_NVML=nomemory "$ULLAGE" top -o json
is 'memory that NVML does not tell is null' "$(json 'd["devices"][1]["used_bytes"]' <<<"$OUT")" null
capture env ULLAGE_FAKE_NVML=notsupported,noutil,nopids "$ULLAGE" top
is 'an NVML that supports nothing' "$CODE" 0
capture env ULLAGE_FAKE_NVML=otherpids "$ULLAGE" top
like 'processes of another pid namespace are said to be' "$OUT" 'other pid nam'

# Names that are none.
spawn "$ULLAGE" run -q -m 1GiB --name $'e\033[31mvil' -- bash -c \
    'exec -a "$(printf "\033[2J\r\n\377\303 x")" "$0" ctx hold' "$GUEST"
evil=$PID
wait_for 10 grep -q ready "$T/$evil.out"
capture "$ULLAGE" top
is 'no control character comes through' "$(tr -d '\n' <<<"$OUT" | grep -c '[[:cntrl:]]')" 0
is 'JSON is valid with such a name' "$(top_json 'len(d["jobs"])')" 3
done_testing
