#!/bin/bash
# file.sh: the file of a record through kills, full disks, jobs in jobs, and what programs do to descriptors.
# shellcheck disable=SC2016 # scripts for the shells of the guests
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
reader=$(dirname "${BASH_SOURCE[0]}")/record.py
export T ULLAGE_FAKE_CONTEXT=4MiB

# of EXPRESSION [FILE]: over what the record holds; E is its events of memory, K(kind) those of a kind
of() {
    python3 "$reader" "${2:-$T/record}" | json "(lambda E, K: $1)([e for e in d['events'] if e['kind'] in ('alloc', 'free', 'charge')], lambda k: [e for e in d['events'] if e['kind'] == k])"
}

# --- what is in it ------------------------------------------------------------------------------------------

"$GUEST" ctx alloc 64MiB alloc 1MiB free alloc 99GiB >"$T/bare"
run -m 1GiB --name job --record "$T/record" -- "$GUEST" ctx alloc 64MiB alloc 1MiB free alloc 99GiB
is 'the guest ends well' "$CODE" 0
is 'its output is its own' "$OUT" "$(<"$T/bare")"
is 'job, version and exit code' "$(of '[d["job"]["name"], d["job"]["exit_code"]]')" '["job", 0]'
is 'its end with the exit code' "$(of '[e["result"] for e in K("end") if not e["own"]]')" '[0]'
is 'sizes, results and classes' \
    "$(of '[[e["kind"], e["class"], e["size"] >> 20, e["charged"] >> 20, e["result"]] for e in E]')" \
    '[["alloc", "context", 4, 4, 0], ["alloc", "data", 64, 64, 0], ["alloc", "data", 1, 2, 0], ["free", "data", 1, 2, 0], ["alloc", "data", 101376, 0, 2]]'
is 'a refused one says what it waited for, the others nothing' \
    "$(of '[e["wait"] > 0 for e in E]')" '[false, false, false, false, true]'
is 'the free is of the allocation before it' "$(of 'E[3]["address"] == E[2]["address"]')" true
is 'calls took some time, and threads have numbers' \
    "$(of 'all(e["latency"] > 0 and e["thread"] > 0 for e in E)')" true
is 'one device, with its budget' "$(of '[v["budget"] for v in d["devices"]]')" "[$GIB]"
is 'the card was looked at' "$(of 'K("card") != []')" true
is 'no stacks' "$(of 'all(e["stack"] == [] for e in E)')" true

run -q --record "$T/record" -- sh -c '"$0" sleep 1500 & sleep 1.5; wait' "$GUEST"
is 'host memory of all processes, also those without CUDA' \
    "$(of 'sorted({p["name"] for p in d["processes"] if any(e["process"] == p["pid"] and e["size"] > 0 for e in K("host"))})')" \
    '["guest", "sh", "sleep"]'
is 'each with its end' "$(of 'len({e["process"] for e in K("end")})')" 3

run -q --record "$T/record" --stacks -- "$GUEST" ctx alloc 64MiB alloc 64MiB free
is 'stacks with --stacks' "$(of 'all(any("guest" in f[0] and f[1].endswith("/guest") for f in e["stack"]) for e in E)')" true
if [ -n "$SANITIZED" ]; then
    skip 'ours are not in them' 'the sanitizer stands between them and the call'
else
    is 'ours are not in them' "$(of 'any("ullage-preload" in f[1] for e in E for f in e["stack"])')" false
fi
is 'the same place is the same stack' "$(of '[e["stack"] for e in E][1] == [e["stack"] for e in E][2]')" true

# --- what may be there before ----------------------------------------------------------------------------------

run -q --record "$T/record" -- "$GUEST" ctx
is 'an older record is replaced' "$CODE $(of 'len(E)')" '0 1'
: >"$T/empty"
run -q --record "$T/empty" -- "$GUEST" ctx
is 'an empty file too' "$CODE $(of 'len(E)' "$T/empty")" '0 1'
spawn "$ULLAGE" run -q --record "$T/held" -- "$GUEST" ctx hold
check 'a run records' wait_for 10 sh -c "'$ULLAGE' report -f json '$T/held' | grep -q '\"guest\"'"
run --record "$T/held" -- touch "$T/started"
like 'the record of a run that is not over is not taken away' "$CODE $ERR" '^125 .*held.*not over'
is 'and nothing was started either' "$([ -e "$T/started" ] && echo started)" ''
kill -KILL "$PID"
check 'the run is killed' wait_for 10 gone "$PID"
run -q --record "$T/held" -- "$GUEST" ctx
is 'of one that was killed it is' "$CODE $(of 'len(E)' "$T/held")" '0 1'
echo precious >"$T/other"
run --record "$T/other" -- touch "$T/started"
like 'another file is left alone' "$CODE $ERR" '^125 .*other.* is there already and is no record'
is 'and nothing was started' "$(<"$T/other")$([ -e "$T/started" ] && echo ' started')" 'precious'
run --record /dev/full -- true
like 'a device is no place for it' "$CODE $ERR" '^125 .*/dev/full.*ordinary file'
run --record /dev/stdout -- true
like 'nor is what it writes to' "$CODE $ERR" '^125 .*/dev/stdout.*ordinary file'
run --record "$T" -- true
like 'nor is a folder' "$CODE $ERR" '^125 .*a folder'
run --record "$T/none/record" -- true
like 'nor one that is not there' "$CODE $ERR" '^125 .*none/record.*No such file'
run --record '' -- true
like 'nor an empty name' "$CODE $ERR" '^2 .*--record'
run --stacks -- true
like '--stacks without --record' "$CODE $ERR" '^2 .*--record'
cp "$T/empty" "$T/target" && ln -s "$T/target" "$T/link"
run -q --record "$T/link" -- "$GUEST" ctx
is 'a link is followed' "$CODE $(readlink "$T/link") $(of 'len(E)' "$T/target")" "0 $T/target 1"
mkdir "$T/folder"
(cd "$T/folder" && "$ULLAGE" run -q --record here -- sh -c 'cd /; exec "$0" ctx' "$GUEST" >/dev/null)
is 'a relative path is of where ullage was started' "$(of 'len(E)' "$T/folder/here")" 1

# --- kills -------------------------------------------------------------------------------------------------------

run -q --record "$T/record" -- "$GUEST" ctx alloc 64MiB sleep 300 kill
is 'a guest that is killed' "$CODE" 137
is 'what it did is there, and its end' \
    "$(of '[len(E), [e["result"] for e in K("end")], d["torn"], d["unread"]]')" '[2, [137], 0, 0]'
run -q --record "$T/record" -- sh -c '"$0" ctx alloc 64MiB sleep 300 kill; exit 0' "$GUEST"
is 'killed below a shell: nobody knows its code' \
    "$(of 'sorted(e["result"] for e in K("end"))')" '[-1, 0]'

spawn "$ULLAGE" run -q --record "$T/record" -- "$GUEST" ctx touch "$T/ready" wait "$T/go" alloc 64MiB touch "$T/done"
supervisor=$PID
wait_for 10 test -e "$T/ready"
kill -KILL "$supervisor"
touch "$T/go"
wait_for 10 test -e "$T/done"
wait_for 5 test "$(of '"end" in d["counts"]')" = true
is 'a run whose supervisor is killed goes on being recorded' \
    "$(of '[len(E), "exit_code" in d["job"], len(K("end"))]')" '[2, false, 1]'

words=
for _ in $(seq 600); do words+=' alloc 1MiB free sleep 5'; done
# shellcheck disable=SC2086 # words of the guest
spawn "$ULLAGE" run -q --record "$T/record" -- "$GUEST" ctx $words
wait_for 10 test -s "$T/record"
grown=0
for _ in 1 2 3 4 5 6; do
    before=$(stat -c %s "$T/record")
    sleep 0.1
    [ "$(stat -c %s "$T/record")" -gt "$before" ] && grown=$((grown + 1))
    "$ULLAGE" report "$T/record" >"$T/text" 2>&1 || not_ok 'it is readable while it grows' "$(<"$T/text")"
done
between 'a record grows while the program runs' "$grown" 2 6
guest=$(pgrep -P "$PID")
kill -KILL "$guest"
wait_for 5 gone "$PID"
is 'and is whole after a kill in the middle of it' "$(of '[d["unread"] + d["torn"], [e["result"] for e in K("end")]]')" '[0, [137]]'

# --- no room -----------------------------------------------------------------------------------------------------

rm -f "$T/go" "$T/ready"
spawn "$ULLAGE" run -q --record "$T/record" -- "$GUEST" ctx alloc 1MiB touch "$T/ready" wait "$T/go" \
    free sleep 150 alloc 1MiB sleep 150 free sleep 150
wait_for 10 test -e "$T/ready"
head -c 8M /dev/zero >>"$T/record" # as large as it may be
prlimit --pid "$(pgrep -P "$PID")" --fsize=$((8 * MIB))
touch "$T/go"
wait_for 10 gone "$PID"
is 'a limit on file sizes does not end the program' "$(grep -c 'alloc 0' "$T/$PID.out")" 2
is 'it is said once' "$(grep -c 'cannot write to.*File too large' "$T/$PID.err")" 1
if [ "$(id -u)" = 0 ] && mkdir "$T/small" && mount -t tmpfs -o size=200k none "$T/small" 2>/dev/null; then
    run -m 1GiB --record "$T/small/record" -- "$GUESTS/account_edge" linear 1 20000 1
    is 'nor does a full disk' "$CODE" 0
    like 'which is said' "$ERR" 'cannot write to.*No space left'
    is 'what fitted is read' "$(of 'len(E) > 100' "$T/small/record")" true
    umount "$T/small"
else
    skip 'a full disk' 'needs a file system of its own'
fi

# --- what programs do ----------------------------------------------------------------------------------------------

run -q --record "$T/record" -- "$GUEST" closeall ctx closeall alloc 64MiB sleep 200 free sleep 100 closeall alloc 64MiB
is 'a program that closes all descriptors' "$CODE $(of 'len(E)')" '0 4'
run --record "$T/record" -- "$GUEST" ctx sleep 150 fork run rm "$T/record" end closeall alloc 64MiB sleep 200
like 'and whose record is removed meanwhile' "$CODE $ERR" '^0 .*not recorded any more.*record'
run -q --record "$T/record" -- "$GUEST" fork ctx alloc 32MiB sleep 100 end ctx alloc 64MiB free
is 'a forked child records itself' "$(of 'sorted([len([e for e in E if e["process"] == p["pid"]]) for p in d["processes"]])')" '[2, 3]'
is 'with threads of its own' "$(of 'all(e["thread"] == e["process"] for e in E)')" true
run -q --record "$T/record" -- "$GUEST" ctx alloc 64MiB sleep 150 exec ctx alloc 32MiB
is 'a program that it executes is another writer' "$(of '[d["writers"], len(E)]')" '[3, 4]'
run -q --record "$T/record" -- "$GUEST" ctx alloc 64MiB sleep 150 quit
is 'an end without exit handlers' "$CODE $(of '[len(E), [e["result"] for e in K("end")]]')" '0 [2, [0]]'
run -q --record "$T/record" -- "$GUEST" ctx alloc 64MiB fork quit end free
is 'a forked child that never uses CUDA writes nothing' "$(of '[len(E), d["writers"]]')" '[3, 2]'
run -q --record "$T/record" -- bash -c '"$0" ctx alloc 64MiB & "$0" ctx alloc 64MiB & wait' "$GUEST"
is 'two processes' "$(of 'len({e["process"] for e in E})') $(of 'sum(e["charged"] for e in E) >> 20')" '2 136'
run -q --record "$T/record" -- sh -c 'ls -l /proc/self/fd; ls -l /proc/$$/fd' # no CUDA
unlike 'no descriptor of the record is passed on' "$OUT" "$T/record"

run -q -m 1GiB --record "$T/outer" -- sh -c '"$0" ctx alloc 8MiB
    "$1" run -q -m 512MiB --record "$T/inner" -- "$0" ctx alloc 64MiB
    "$1" run -q -m 512MiB -- "$0" ctx alloc 16MiB' "$GUEST" "$ULLAGE"
is 'a run in a run records into its own file' "$CODE $(of '[e["size"] >> 20 for e in E]' "$T/inner")" '0 [4, 64]'
is 'and into the one around it, if it has none' "$(of '[e["size"] >> 20 for e in E]' "$T/outer")" '[4, 8, 4, 16]'

before=$(cksum <"$T/record")
ULLAGE_RECORD=$T/record ULLAGE_RECORD_ID=1:2 run -q -- "$GUEST" ctx
like 'the record of another run is not written to' "$CODE $ERR" '^0 .*is not recorded.*not the record of this job'
is 'and stays as it is' "$(cksum <"$T/record")" "$before"
done_testing
