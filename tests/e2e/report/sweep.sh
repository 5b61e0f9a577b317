#!/bin/bash
# sweep.sh: `ullage sweep`: a command under several limits.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)/resnet50_b64.csv.gz
cards 6GiB
export TMPDIR=$T/tmp
mkdir "$TMPDIR"

sweep() {
    capture "$ULLAGE" sweep "$@"
}
of() {
    json "$1" <<<"$OUT"
}

sweep -m 1GiB,50%,5GiB -o json -- "$ULLAGE" replay "$TRACE"
is "it ran with one limit at least" "$CODE" 0
is "one run a limit, in order" "$(of "[r['limit'] for r in d['runs']]")" '["1GiB", "50%", "5GiB"]'
is "how each ended" "$(of "[r['outcome'] for r in d['runs']]")" \
    '["out_of_memory", "out_of_memory", "ok"]'
is "what each could hold and held" "$(of "([r['budget_bytes'] for r in d['runs']] == [2**30, 3 * 2**30, 5 * 2**30] and
    all(0 < r['peak_bytes'] <= r['budget_bytes'] and r['seconds'] > 0 for r in d['runs']))")" true
is "refusals" "$(of "[r['refusals'] for r in d['runs']]")" "[1, 1, 0]"
is "the smallest that ran" "$(of "d['smallest']")" 5GiB
is "each is judged" "$(of "all(r['verdict'] and r['evidence'] for r in d['runs'])")" true
like "a line after each run" "$ERR" "sweep 1GiB: out_of_memory after .*sweep 5GiB: ok after"
like "the command's output is there too" "$ERR" "operations a second"

sweep -q -m 5GiB,6GiB -- sh -c 'echo said; exit 7'
is "none ran: exit code 1" "$CODE" 1
like "the table" "$OUT" "LIMIT +HELD.*5GiB.*failed \(exit 7\).*6GiB.*none of them ran"
unlike "quiet" "$ERR" "sweep"
is "standard output has the table alone" "$(grep -c said <<<"$OUT")$(grep -c said <<<"$ERR")" 02

# The verdict is that of `ullage report`: 32 rounds, in each of which a block is kept.
kept=
for _ in $(seq 32); do kept+=" alloc 1MiB alloc 16MiB sleep 20 free"; done
# shellcheck disable=SC2086
sweep -q -m 1GiB,5GiB -o json -- "$GUEST" init ctx $kept sleep 20
is "a program that keeps a block in each round" "$(of "[r['verdict'] for r in d['runs']]")" '["leak", "leak"]'
like "with what is kept" "$(of "d['runs'][0]['evidence']")" "1.0 MiB"
# shellcheck disable=SC2086
sweep -q -m 5GiB -- "$GUEST" init ctx $kept
like "a column of the table" "$OUT" "VERDICT.* leak +ok"
like "the evidence below it" "$OUT" "leak with 5GiB: "
# shellcheck disable=SC2086
sweep -q -m 5GiB -o html -- "$GUEST" init ctx $kept
like "in the page too" "$OUT" "<td>leak</td>.*<p>leak with <b>5GiB</b>: "
sweep -q -m 5GiB -- /no/such/command
is "a command that cannot be started" "$CODE" 1
like "is told from one that failed" "$OUT" "not started \(exit 127\)"

sweep -q -m 4GiB,5GiB -o html -- "$ULLAGE" replay "$TRACE" '--hold=0'
is "a page" "$CODE" 0
check "is well formed" python3 -c '
import sys, xml.etree.ElementTree as tree
text = sys.argv[1]
body = text[text.index("<body>"):text.index("</html>")]
root = tree.fromstring(body)
assert len(root.findall(".//rect")) == 2 and len(root.findall(".//tr")) == 3' "$OUT"
like "with what a smaller limit costs" "$OUT" "Smallest that ran: <b>4GiB</b>, in [0-9.]+ times the time of the fastest \([45]GiB\)"
unlike "that loads nothing" "$OUT" "(src|href)="
sweep -q -m 5GiB -o html -- echo '<script>&"'
unlike "and takes no word of the command for its own" "$OUT" "<script"

# A signal ends the run that is under way and the sweep.
for signal in INT TERM; do
    spawn "$ULLAGE" sweep -m 4GiB,5GiB -o json -- "$GUEST" init alloc 1MiB sleep 60000
    check "SIG$signal: it runs" wait_for 10 sh -c "'$ULLAGE' ps -o json | grep -q '\"guest\"'"
    kill -"$signal" "$PID"
    check "SIG$signal ends it" wait_for 10 gone "$PID"
    OUT=$(<"$T/$PID.out")
    is "SIG$signal: what is known is shown" "$(of "[[r['limit'], r['outcome']] for r in d['runs']]")" \
        '[["4GiB", "interrupted"]]'
done
is "no file is left behind" "$(ls "$TMPDIR")" ""

usage() {
    local what=$1 pattern=$2
    shift 2
    sweep "$@"
    is "usage: $what" "$CODE" 2
    like "usage: $what is explained" "$ERR" "$pattern"
}
usage "no limits" "no limits" -- true
usage "a bad limit" "4XB" -m 1GiB,4XB -- true
usage "an empty list" "no limit" -m , -- true
usage "no command" "no command" -m 1GiB
usage "a bad form" "table, json or html" -m 1GiB -o csv -- true
sweep --help
is "help" "$CODE$ERR" 0

done_testing
