#!/usr/bin/env bash
#
# A job whose ledger's file is removed while it runs, as systemd-logind does when its user logs out (RemoveIPC), or somebody
# who tidies up in /dev/shm: its limit holds, and its name comes back.
#
# shellcheck disable=SC2016 # scripts for the shells of the guests
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=4MiB T
run -q -m 1GiB -- "$GUEST" ctx # learns what a context takes here
remove() { rm -rf "$T"/shm/*; }
# shellcheck disable=SC2317 # by wait_for
listed() { [ "$(ps_json "' '.join(j['name'] for j in d['jobs'])")" = job ]; }
held() { ps_json "sum(v['held_bytes'] for j in d['jobs'] for v in j['devices']) >> 20"; }

# job SCRIPT: in it "$0" is the guest. One process has 600 MiB of the job's 1 GiB and asks for as much again at the end.
job() {
    rm -f "$T"/at.*
    spawn "$ULLAGE" run -q -m 1GiB --name job -- sh -c \
        '"$0" label first ctx alloc 600MiB touch "$T/at.first" wait "$T/at.go" alloc 600MiB touch "$T/at.asked" wait "$T/at.end" &
        '"$1"'
        wait' "$GUEST"
    supervisor=$PID
    wait_for 10 test -e "$T/at.first"
}
said() { grep -E "^$1: (init|ctx|alloc)" "$T/$supervisor.out" | grep -oE '[0-9]+$' | tr '\n' ' '; }

# --- removed, and again
job 'until [ -e "$T/at.second" ]; do sleep 0.02; done
    "$0" label second ctx alloc 600MiB alloc 300MiB touch "$T/at.there" wait "$T/at.end" &
    until [ -e "$T/at.third" ]; do sleep 0.02; done
    rm -rf "$T"/shm/*
    "$0" label third ctx alloc 400MiB alloc 80MiB touch "$T/at.last"'
remove
check "it is listed again" wait_for 5 listed
is "with what it holds" "$(held)" 604
touch "$T/at.second"
wait_for 10 test -e "$T/at.there"
is "who comes later is held to the same budget" "$(said second)" "0 2 0 "
is "and counted in the same books" "$(held)" 908
touch "$T/at.third"
wait_for 10 test -e "$T/at.last"
is "so is who comes in the moment in which it has no name" "$(said third)" "0 2 0 "
capture "$ULLAGE" budget job 2GiB
is "its budget can be changed" "$CODE" 0
touch "$T/at.go"
wait_for 10 test -e "$T/at.asked"
is "and holds for who was there before" "$(said first)" "0 0 0 "
capture "$ULLAGE" suspend job
is "it is suspended" "$CODE $(ps_json "d['jobs'][0]['state']")" "0 suspended"
remove
wait_for 5 listed
capture "$ULLAGE" resume job
is "and resumed, removed meanwhile once more" "$CODE $(ps_json "d['jobs'][0]['state']")" "0 running"
touch "$T/at.end"
wait_for 10 gone "$supervisor"
is "it ends well" "$(<"$T/$supervisor.err")" ""
is "and leaves nothing behind" "$(find "$T/shm" ! -type d)" ""

# --- nobody to bring it back
job 'until [ -e "$T/at.second" ]; do sleep 0.02; done
    "$0" label second init; touch "$T/at.there"'
remove
wait_for 5 listed
kill -KILL "$supervisor"
wait_for 10 gone "$supervisor"
touch "$T/at.second" "$T/at.go"
wait_for 10 test -e "$T/at.there"
wait_for 10 test -e "$T/at.asked"
is "ullage run was killed, too: who was there is held" "$(said first)" "0 0 2 "
is "who comes later gets no memory at all" "$(said second)" "800 "
like "and is told why" "$(<"$T/$supervisor.err")" 'cannot join its ledger: cannot open the job.s ledger .*No such file'
"$ULLAGE" ps >/dev/null 2>&1
is "what led to it is taken away" "$(find "$T/shm" ! -type d)" ""
touch "$T/at.end"
wait_for 10 eval '[ "$(used_by_all)" = 0 ]'

# --- somebody else is faster
others=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" != 0 ] || ! "${others[@]}" true; then
    skip "another user has the place" "needs root"
    done_testing
fi
job 'until [ -e "$T/at.second" ]; do sleep 0.02; done
    "$0" label second init; touch "$T/at.there"
    until [ -e "$T/at.third" ]; do sleep 0.02; done
    "$0" label third ctx alloc 600MiB alloc 300MiB; touch "$T/at.last"'
chmod a+rx "$T"
kill -STOP "$supervisor"
ledger=$(find "$T/shm" -type f)
cp "$ledger" "$T/theirs"
chmod a+r "$T/theirs"
remove
"${others[@]}" mkdir "${ledger%/*}"
"${others[@]}" cp "$T/theirs" "$ledger"
kill -CONT "$supervisor"
wait_for 5 test -s "$T/$supervisor.err"
like "another user has the place: it says so" "$(<"$T/$supervisor.err")" \
    "^ullage: the job's ledger was removed, and others do not find it now: $T/shm/ullage-0 is not a folder of this user alone"
is "once" "$(wc -l <"$T/$supervisor.err")" 1
is "theirs is left alone" "$(stat -c %u "$ledger")" 65534
remove
touch "$T/at.third"
check "when they are gone it is back" wait_for 5 listed
touch "$T/at.second"
wait_for 10 test -e "$T/at.last"
is "and holds as before" "$(said third)" "0 2 0 "
touch "$T/at.end"
done_testing
