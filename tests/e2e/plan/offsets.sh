#!/bin/bash
# offsets.sh: `ullage plan --offsets`: buffers with lifetimes in, offsets out.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
INSTANCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/minimalloc" && pwd)

plan() {
    capture "$ULLAGE" plan "$@"
}
of() {
    json "$1" <<<"$OUT"
}

F=$INSTANCES/F.1048576.csv
plan --offsets "$F" --capacity 1048576 -o json
is "an instance of MiniMalloc" "$CODE" 0
is "what scripts rely on" "$(of "[d['solved'], d['height'], d['lower_bound'], d['seconds'] >= 0, d['buffers']]")" \
    '[true, 1048576, 1048576, true, 296]'
nodes=$(of "d['nodes']")
plan --offsets="$F" --capacity=1MiB
is "as a table" "$CODE" 0
like "that says so" "$OUT" "height +1048576 \(1.0 MiB\).*outcome +fits"
like "the same search" "$OUT" "nodes +$nodes"

plan --offsets "$F" --capacity 1048575 -o json
is "a byte less does not fit" "$CODE" 1
is "and is known not to" "$(of "[d['solved'], d['infeasible']]")" '[false, true]'
like "said on standard error" "$ERR" "no plan fits: the lowest plan found has [0-9]+ bytes, and none has less than 1048576"
plan --offsets "$F" --capacity 1048576 --nodes 0 -o csv
is "heuristics alone do not do it" "$CODE:$OUT" "1:"
like "which is told from what cannot be" "$ERR" "no plan that fits was found"

plan --offsets "$F" --capacity 1048576 -o csv
is "the offsets" "$CODE" 0
is "a line a buffer, with the header" "$(wc -l <<<"$OUT"):$(head -n 1 <<<"$OUT")" 297:id,lower,upper,size,offset
echo "$OUT" >"$T/placed.csv"
check "no two that are live at one time overlap" python3 - "$T/placed.csv" <<'PYTHON'
import csv, sys
rows = [[int(row[key]) for key in ('lower', 'upper', 'offset', 'size')] for row in csv.DictReader(open(sys.argv[1]))]
for i, (lower, upper, offset, size) in enumerate(rows):
    assert 0 <= offset and offset + size <= 1048576
    for other in rows[:i]:
        assert lower >= other[1] or other[0] >= upper or offset >= other[2] + other[3] or other[2] >= offset + size
PYTHON
plan --offsets "$T/placed.csv" --capacity 1048576 --nodes 0 -o csv
is "read again, all stays where it is" "$OUT" "$(cat "$T/placed.csv")"

printf 'size,id,upper,lower,alignment,offset\n100,a,4,0,64,\n10,b,6,2,64,\n30,c,4,0,1,50\n' >"$T/small.csv"
plan --offsets "$T/small.csv" -o csv
is "as low as possible, around what is pinned" "$CODE" 0
like "with alignments" "$OUT" "^id,lower,upper,size,alignment,offset.c,0,4,30,1,50$|a,0,4,100,64,128"
plan --offsets "$T/small.csv" -o json
is "it is known that no plan is lower" "$(of "[d['solved'], d['height'], d['capacity']]")" '[true, 228, null]'

# --- what is refused ---
printf 'id,lower,upper,size\n0,0,4,8\n1,0,4,99999999999999999999\n' >"$T/bad.csv"
plan --offsets "$T/bad.csv"
is "a bad file" "$CODE" 1
like "is named with its line" "$ERR" "bad.csv: line 3: size is '99999999999999999999'"
plan --offsets "$T/none.csv"
is "no such file" "$CODE" 1
plan --offsets /dev/null
is "an empty file" "$CODE" 1
plan --offsets "$F" --capacity 12parsecs
is "a bad size" "$CODE" 2
plan --offsets "$F" --nodes -1
is "a bad number" "$CODE" 2
plan --offsets "$F" -o xml
is "a bad format" "$CODE" 2
plan --offsets "$F" resnet50
is "a word too many" "$CODE" 2
plan --offsets
is "no file" "$CODE" 2
plan
is "nothing to plan" "$CODE" 2
# shellcheck disable=SC2016 # for the shell that is started
capture sh -c '"$0" plan --offsets "$1" -o csv >/dev/full' "$ULLAGE" "$T/small.csv"
is "a full disk" "$CODE" 1
plan --offsets "$F" --help
is "help" "$CODE" 0
like "says what the columns are" "$OUT" "id, lower, upper, size"
done_testing
