#!/usr/bin/env bash
#
# Jobs in jobs, a budget for every child, a job whose `ullage run` was killed, and pid namespaces.
#
# shellcheck disable=SC2016 # scripts for the shells of the guests
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
run -q -m 1GiB -- "$GUEST" ctx # learns what a context takes here

held_by() { # NAME: MiB that the job (or, with --each, the child NAME.N) holds, by ps
    ps_json "next((sum(v['held_bytes'] for v in j['devices']) >> 20 for j in d['jobs'] if j['name'] == '$1'), 'none')"
}

# --- --each ---------------------------------------------------------------------------------------------

# Every direct child gets 600 MiB of its own 1 GiB. Of two processes below one direct child, the one
# that comes later gets no 600 MiB, but 200 MiB.
cat >"$T/each" <<'END'
first() { # NAME: the words of a process that holds 600 MiB, and tells the second
    set -- label "$1" ctx alloc 600MiB touch "$T/$1.has" wait "$T/$1.end"
    printf '%s\n' "$@"
}
"$0" label one ctx alloc 600MiB alloc 600MiB touch "$T/one.has" wait "$T/end" &
"$0" label two ctx alloc 600MiB touch "$T/two.has" wait "$T/end" &
sh -c '"$@" & "$0" label family2 wait "$T/family.has" ctx alloc 600MiB alloc 200MiB
    touch "$T/family.end"; wait' "$0" "$0" $(first family) &
sh -c '"$0" spawn $* end & "$0" spawn label grand2 wait "$T/grand.has" ctx alloc 600MiB alloc 200MiB end
    touch "$T/grand.end"; wait' "$0" $(first grand) &
sh -c '"$0" double $* end & "$0" label orphan2 wait "$T/orphan.has" ctx alloc 600MiB alloc 200MiB
    touch "$T/orphan.end"; wait' "$0" $(first orphan) &
# Here the way up is lost before the second program starts, but the session tells it.
setsid sh -c '"$@" & ("$0" label session2 wait "$T/session.has" ctx alloc 600MiB alloc 200MiB \
    touch "$T/session.end" &); wait' "$0" "$0" $(first session) &
wait
END
export T
spawn timeout 30 "$ULLAGE" run -q -m 1GiB --each --name J --report "$T/report" -- sh -c "$(<"$T/each")" "$GUEST"
supervisor=$PID
for name in one.has two.has family.end grand.end orphan.end session.end; do
    wait_for 15 test -e "$T/$name"
done
said() {
    grep -E "^$1: alloc" "$T/$supervisor.out" | cut -d' ' -f3 | tr '\n' ' '
}
is 'a direct child has a budget to itself, and no more' "$(said one)" '0 2 '
is 'so has the second' "$(said two)" '0 '
is 'two processes under one child share its budget' "$(said family)$(said family2)" '0 2 0 '
is 'grandchildren too' "$(said grand)$(said grand2)" '0 2 0 '
is 'and one whose parent is gone' "$(said orphan)$(said orphan2)" '0 2 0 '
is 'a session shares the budget of its leader' "$(said session)$(said session2)" '0 2 0 '
names=$(ps_json '" ".join(sorted(j["name"] for j in d["jobs"] if j["processes"]))')
like 'ps shows every child as a job NAME.N' "$names" '^J\.[1-6] J\.[1-6]'
is 'the table too' "$("$ULLAGE" ps | grep -oE '^J(\.[0-9]+)? ' | xargs)" 'J J.1 J.2 J.3 J.4 J.5 J.6'
is 'each has the budget that was asked for' \
    "$(ps_json 'sorted({v["budget_bytes"] for j in d["jobs"] for v in j["devices"]})')" "[$GIB]"
touch "$T/end"
wait_for 10 gone "$supervisor"
is 'the report has all of them' \
    "$(json '" ".join(sorted(j["name"] for j in d["jobs"]))' "$T/report")" 'J J.1 J.2 J.3 J.4 J.5 J.6'
is 'and none held more' \
    "$(json 'max(v["peak_bytes"] for j in d["jobs"] for v in j["devices"]) <= 1 << 30' "$T/report")" true

# More children than accounts, one after the other: those that ended make room.
run -q -m 1GiB --each --name many -- sh -c 'for i in $(seq 70); do "$@" || exit; done' sh "$GUEST" init
is '70 children one after the other' "$CODE: $(sort -u <<<"$OUT")" '0: init 0'

# --- jobs in jobs ----------------------------------------------------------------------------------------

run -q -m 2GiB --name outer -- "$ULLAGE" run -q -m 1GiB --name inner -- \
    "$GUEST" ctx total 0 alloc 1200MiB alloc 500MiB
is 'the inner budget holds inside the inner job' "$OUT" \
    $'init 0\ndevice 0 0\ntotal 0 1073741824 0\nalloc 2\nalloc 0'
run -q -m 1GiB --name outer -- "$ULLAGE" run -q -m 2GiB --name inner -- \
    "$GUEST" ctx total 0 alloc 1200MiB alloc 500MiB
is 'and cannot exceed the outer one' "$OUT" \
    $'init 0\ndevice 0 0\ntotal 0 1073741824 0\nalloc 2\nalloc 0'
run -q -m 2GiB -- "$ULLAGE" run -q -- "$GUEST" ctx total 0 alloc 2100MiB
is 'an inner job without a budget has the outer one' "$OUT" \
    $'init 0\ndevice 0 0\ntotal 0 2147483648 0\nalloc 2'

cat >"$T/two-inner" <<'END'
"$ULLAGE" run -q -m 1GiB --name inner1 -- "$0" label one ctx alloc 700MiB touch "$T/first" wait "$T/over" &
"$ULLAGE" run -q -m 1GiB --name inner2 -- "$0" label two wait "$T/first" ctx alloc 700MiB alloc 300MiB \
    touch "$T/second" wait "$T/over" &
wait
END
export ULLAGE
spawn "$ULLAGE" run -q -m 1536MiB --name outer -- sh -c "$(<"$T/two-inner")" "$GUEST"
wait_for 10 test -e "$T/second"
is 'two inner jobs share the outer budget' "$(grep alloc "$T/$PID.out")" \
    $'one: alloc 0\ntwo: alloc 2\ntwo: alloc 0'
one=$(held_by inner1) two=$(held_by inner2) outer=$(held_by outer)
between 'the first inner job counts' "$one" 790 805
between 'the second too' "$two" 390 405
between 'and the outer one counts both' "$outer" "$((one + two))" "$((one + two + 1))"
touch "$T/over"
wait_for 10 gone "$PID"

nested=("$GUEST" ctx alloc 1MiB alloc 2GiB)
for _ in 1 2 3 4 5 6 7; do nested=("$ULLAGE" run -q -m 1GiB -- "${nested[@]}"); done
run -q -m 512MiB -- "${nested[@]}"
is 'eight deep' "$CODE: $(grep alloc <<<"$OUT")" $'0: alloc 0\nalloc 2'
run -q -m 512MiB -- "$ULLAGE" run -q -m 1GiB -- "${nested[@]}"
like 'deeper is refused aloud, not let free' "$CODE: $OUT$ERR" '(init 800|^125: ).*nested more than'

# --- a killed `ullage run` -----------------------------------------------------------------------------------

spawn "$ULLAGE" run -q -m 1GiB --name crashed -- "$GUEST" ctx alloc 300MiB touch "$T/crash" wait "$T/killed" \
    alloc 800MiB alloc 100MiB spawn ctx alloc 800MiB alloc 50MiB end touch "$T/after" wait "$T/finish"
supervisor=$PID
wait_for 10 test -e "$T/crash"
kill -KILL "$supervisor"
wait_for 10 gone "$supervisor"
touch "$T/killed"
wait_for 10 test -e "$T/after"
is 'the job goes on under its budget' "$(grep alloc "$T/$supervisor.out" | tr '\n' ' ')" \
    'alloc 0 alloc 2 alloc 0 alloc 2 alloc 0 '
between 'ps still shows it, and what it holds' "$(held_by crashed)" 490 605
like 'the table too' "$("$ULLAGE" ps)" $'(^|\n)crashed '
is 'its ledger is there' "$(find "$T/shm" -type f | wc -l)" 1
touch "$T/finish"
# shellcheck disable=SC2317 # for wait_for
no_jobs() {
    [ "$(ps_json 'len(d["jobs"])')" = 0 ]
}
check 'after its end ps shows nothing' wait_for 5 no_jobs
is 'and has removed the ledger' "$(find "$T/shm" -type f | wc -l)" 0

# Its command may have begun and not have come to the driver yet: nobody takes that for a job that is over.
spawn "$ULLAGE" run -q -m 1GiB --name early -- "$GUEST" touch "$T/begun" wait "$T/joins" ctx alloc 300MiB touch "$T/joined"
supervisor=$PID
wait_for 10 test -e "$T/begun"
kill -KILL "$supervisor"
wait_for 10 gone "$supervisor"
run -q -m 1GiB -- true
is 'another run leaves the ledger that the command has not joined yet' "$(find "$T/shm" -type f | wc -l)" 1
is 'and so does ps, which shows it' "$(held_by early)" 0
touch "$T/joins"
check 'so that it can join' wait_for 10 test -e "$T/joined"
is 'and has its memory' "$(grep alloc "$T/$supervisor.out")" 'alloc 0'
check 'after its end nothing is left' wait_for 5 no_jobs
is 'of its ledger either' "$(find "$T/shm" -type f | wc -l)" 0

# Without ps it is the next run that cleans up.
spawn "$ULLAGE" run -q -m 1GiB --name crashed2 -- "$GUEST" ctx alloc 300MiB hold
supervisor=$PID
wait_for 10 grep -q ready "$T/$supervisor.out"
guest=$(ps_json 'd["jobs"][0]["processes"][0]["pid"]')
kill -KILL "$supervisor" "$guest"
wait_for 10 gone "$guest"
# shellcheck disable=SC2317 # by check
cleans_up() {
    run -q -m 1GiB -- true
    [ "$(find "$T/shm" -type f | wc -l)" = 0 ]
}
check 'a later run removes the ledger of a job that died whole' wait_for 5 cleans_up

# --- pid namespaces ---------------------------------------------------------------------------------------------

if [ "$(id -u)" != 0 ] || ! unshare --pid --fork --mount-proc true 2>/dev/null; then
    skip 'pid namespaces' 'unshare --pid is not permitted'
else
    for mode in '' otherpids nopids notsupported; do
        cards 6GiB
        name="inside a pid namespace, NVML ${mode:-as it is}"
        spawn env "ULLAGE_FAKE_NVML=$mode" "$ULLAGE" run -q -m 1GiB --name outer -- sh -c '
            "$0" label other ctx alloc 600MiB touch "$T/ns" wait "$T/ns.end" &
            unshare --pid --fork --mount-proc "$0" spawn label inner pid wait "$T/ns" ctx alloc 400MiB \
                alloc 100MiB end; touch "$T/ns.end"; wait' "$GUEST"
        wait_for 15 gone "$PID"
        is "$name, processes share the budget" "$(grep alloc "$T/$PID.out")" \
            $'other: alloc 0\ninner: alloc 2\ninner: alloc 0'
        check "$name, the pid is another" grep -qE '^inner: pid [1-9]$' "$T/$PID.out"
        rm -f "$T/ns" "$T/ns.end"
        # Dead in there, what was held comes back.
        capture env "ULLAGE_FAKE_NVML=$mode" "$ULLAGE" run -q -m 1GiB -- sh -c '
            unshare --pid --fork --mount-proc "$0" ctx alloc 800MiB kill; sleep 1.5; "$0" ctx alloc 800MiB' "$GUEST"
        is "$name, the dead give back" "$(grep alloc <<<"$OUT")" $'alloc 0\nalloc 0'
    done
fi

done_testing
