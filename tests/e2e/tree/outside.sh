#!/usr/bin/env bash
#
# Nobody gets free by accident: a process that cannot join its job gets no CUDA at all, and one that
# we are not in is shown.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB

# --- a ledger that cannot be opened ------------------------------------------------------------------------

refusal="^ullage: this process \([0-9]+\) belongs to a job but cannot join its ledger: "
# barred NAME REASON COMMAND...: cuInit fails with 800 and says why, and no call after it takes anything
barred() {
    local name=$1 reason=$2
    shift 2
    capture "$@" "$GUEST" init device 0 total 0 alloc 1MiB info init
    is "$name: no CUDA" "$CODE: $OUT" \
        $'0: init 800\ndevice 0 3\ntotal 0 0 3\nalloc 3\ninfo 0 0 3\ninit 800'
    like "$name: it says why" "$ERR" "$refusal$reason"
    is "$name: once" "$(wc -l <<<"$ERR")" 1
}
with_job() {
    barred "$1" "$2" env "ULLAGE_JOB=$3" "LD_PRELOAD=$PRELOAD"
}

head -c 100000 /dev/urandom >"$T/garbage"
: >"$T/empty"
mkfifo "$T/fifo"
with_job 'a file that is no ledger' '.*is not a ledger' "$T/garbage"
with_job 'an empty file' '.*is not a ledger' "$T/empty"
with_job 'a folder' 'cannot open' "$T"
with_job 'a pipe' '.*' "$T/fifo"
with_job 'a file that is not there' 'cannot open .*No such file' "$T/nowhere"
with_job 'a device' '.*is not a ledger' /dev/null
with_job 'a path that is too long' '.*too long' "$T/$(printf 'x%.0s' {1..300})"

# A whole ledger that lost its end, and one of another version.
spawn "$ULLAGE" run -q -m 1GiB --name held -- "$GUEST" ctx hold
supervisor=$PID
wait_for 10 grep -q ready "$T/$supervisor.out"
ledger=$(find "$T/shm" -type f)
head -c 4096 "$ledger" >"$T/short"
sed '1s/^./?/' "$ledger" >"$T/other-version"
with_job 'a ledger without its end' '.*is not a ledger' "$T/short"
with_job 'a ledger of another version' '.*is not a ledger' "$T/other-version"
# The same without us in the process, to see that the card is there.
capture env "ULLAGE_JOB=$ledger" "LD_PRELOAD=$PRELOAD" "$GUEST" ctx alloc 1MiB alloc 2GiB
is 'a stranger with the right ledger is held by it' "$OUT" $'init 0\ndevice 0 0\nalloc 0\nalloc 2'
kill "$supervisor"
wait_for 10 gone "$supervisor"
with_job 'a ledger of a job that is over' 'cannot open .*No such file' "$ledger"

# A job that is no job: the variable is there but empty.
capture env ULLAGE_JOB= "LD_PRELOAD=$PRELOAD" "$GUEST" ctx alloc 2GiB
is 'an empty ULLAGE_JOB is no job' "$OUT" $'init 0\ndevice 0 0\nalloc 0'

nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
user=(setpriv --reuid=65533 --regid=65533 --clear-groups)

if [ "$(id -u)" != 0 ] || ! "${nobody[@]}" test -r "$PRELOAD"; then
    skip 'other users and namespaces' 'needs root, and a build tree that others can read'
else
    mkdir "$T/user"
    chown 65533 "$T/user"
    spawn env XDG_STATE_HOME="$T/user" "${user[@]}" "$ULLAGE" run -q -m 1GiB --name theirs -- "$GUEST" ctx alloc 300MiB hold
    supervisor=$PID
    wait_for 10 grep -q ready "$T/$supervisor.out"
    ledger=$(find "$T/shm/ullage-65533" -type f)
    is "a user's ledger is for that user alone" "$(stat -c '%a %u' "$ledger")" '600 65533'
    barred "another user's ledger" 'cannot open .*Permission denied' \
        "${nobody[@]}" env "ULLAGE_JOB=$ledger" "LD_PRELOAD=$PRELOAD"
    is "another user's ullage does not see the job" "$("${nobody[@]}" "$ULLAGE" ps -o json 2>/dev/null | json 'd["jobs"]')" '[]'
    check 'nor can that user list the names' "${nobody[@]}" sh -c "! ls '$T/shm/ullage-65533'"
    check 'or write to the ledger' "${nobody[@]}" sh -c "! echo x 2>/dev/null >>'$ledger'"
    is 'its owner sees it' "$("${user[@]}" "$ULLAGE" ps -o json | json 'd["jobs"][0]["name"]')" theirs
    is 'and root' "$(ps_json 'd["jobs"][0]["name"]')" theirs
    is 'with what it holds' "$(ps_json 'd["jobs"][0]["devices"][0]["held_bytes"] >> 20 >= 390')" true
    kill "$supervisor"
    wait_for 10 gone "$supervisor"

    # A folder that somebody else made in our place, and a link.
    mkdir "$T/shm/ullage-65534"
    capture "${nobody[@]}" env XDG_STATE_HOME=/nowhere "$ULLAGE" run -m 1GiB -- echo started
    like "a ledger folder that is somebody else's is not used" "$CODE: $OUT$ERR" \
        '^125: ullage: .*is not a folder of this user alone'
    rmdir "$T/shm/ullage-65534"
    ln -s "$T/user" "$T/shm/ullage-65534"
    capture "${nobody[@]}" env XDG_STATE_HOME=/nowhere "$ULLAGE" run -m 1GiB -- echo started
    like 'nor a link in its place' "$CODE: $OUT$ERR" '^125: ullage: '
    rm "$T/shm/ullage-65534"

    # The ledger is not there in another mount namespace.
    if unshare -m true 2>/dev/null; then
        barred 'another mount namespace' 'cannot open .*No such file' \
            "$ULLAGE" run -q -m 1GiB -- unshare -m sh -c "mount -t tmpfs none '$T/shm'"' && exec "$@"' sh
    else
        skip 'another mount namespace' 'unshare -m is not permitted'
    fi
fi

# --- processes that we are not in -------------------------------------------------------------------------------

# outside NAME COMMAND...: what the command starts holds 2 GiB; ps must say that it is in the job's tree
# but not held
outside() {
    local name=$1 shown
    shift
    cards 6GiB
    spawn "$ULLAGE" run -q -m 1GiB --name outer -- "$@"
    if ! wait_for 10 grep -q ready "$T/$PID.out"; then
        not_ok "$name" "$(<"$T/$PID.out")" "$(<"$T/$PID.err")"
        kill "$PID"
        return
    fi
    shown=$("$ULLAGE" ps -o json | json '[(o["command"], o["held_bytes"] >> 20 >= 2048)
        for j in d["jobs"] if j["name"] == "outer" for o in j["outside"]]')
    like "$name is shown as outside" "$shown" '^\[\["[^"]*guest[^"]*", true\]\]$'
    like "$name, in the table too" "$("$ULLAGE" ps)" 'outside: '
    like "$name, in CSV too" "$("$ULLAGE" ps -o csv)" ',outside,'
    kill "$PID"
    wait_for 10 gone "$PID"
    pkill_guests
}
# The guests that `hold` and that no signal of the supervisor reached.
pkill_guests() {
    local pid
    for pid in $(card '" ".join(str(p["pid"]) for c in d["cards"] for p in c["processes"] if not p["dead"])'); do
        kill -KILL "$pid"
        wait_for 10 gone "$pid"
    done
}

fake=(LD_LIBRARY_PATH="$FAKE")
reach() { # the cards of the moment, for a command whose environment is empty
    fake=(LD_LIBRARY_PATH="$FAKE" ULLAGE_FAKE_GPUS=6GiB "ULLAGE_FAKE_STATE=$T/cards.$((worlds + 1))")
}
reach
outside 'env -i' env -i "${fake[@]}" "$GUEST" ctx alloc 2GiB hold
reach
outside 'env -i of a grandchild' sh -c '"$@"; true' sh env -i "${fake[@]}" "$GUEST" ctx alloc 2GiB hold
reach
outside 'no LD_PRELOAD' env -u LD_PRELOAD "$GUEST" ctx alloc 2GiB hold
outside 'an orphan with an empty environment' sh -c "setsid env -i ${fake[*]/%/ } true; \
    (env -i $(printf '%q ' LD_LIBRARY_PATH="$FAKE" ULLAGE_FAKE_STATE="$T/cards.$((worlds + 1))") \
    '$GUEST' ctx alloc 2GiB hold &) ; sleep 30"
# What the linker does for a static program is nothing, so it is one of these; the fake driver cannot
# be opened by one, since it needs threads of the C library.
if [ -x "$GUESTS/guest_static" ]; then
    run -q -m 1GiB -- "$GUESTS/guest_static" label static exit 4
    is 'a static program runs as it is' "$CODE: $OUT$ERR" '4: '
else
    skip 'a static program runs as it is' 'there is no static C library'
fi
if [ "$(id -u)" = 0 ]; then
    cp "$GUEST" "$T/setuid_guest"
    chown 65534 "$T/setuid_guest"
    chmod 4755 "$T/setuid_guest"
    outside 'a setuid program' "$T/setuid_guest" via "open:$FAKE/libcuda.so.1" ctx alloc 2GiB hold
fi

# One that is held is not outside.
spawn "$ULLAGE" run -q -m 1GiB --name inner -- "$GUEST" ctx alloc 100MiB hold
wait_for 10 grep -q ready "$T/$PID.out"
is 'a held process is not shown as outside' \
    "$(ps_json '[o for j in d["jobs"] if j["name"] == "inner" for o in j["outside"]]')" '[]'
# And one that has nothing to do with a job is not shown at all.
spawn "$GUEST" ctx alloc 100MiB hold
wait_for 10 grep -q ready "$T/$PID.out"
is 'a stranger is not shown' "$(ps_json '[o for j in d["jobs"] for o in j["outside"]]')" '[]'

done_testing
