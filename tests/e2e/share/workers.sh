#!/usr/bin/env bash
#
# The daemon's workers. One that tidies up after a job whose `ullage run` is gone takes a while: who wants it moved meanwhile waits
# for that, and its end is not taken for that of the move. And if none can be started, who asked is told.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
mkdir "$T/theirs"
start_daemon
spawn "$ULLAGE" run --quiet --suspendable -m 500MiB --name job -- sh -c '"$@" & "$@"; wait' sh \
    "$GUEST" pid init device 0 alloc 100MiB wait "$T/go" alloc 1MiB
job=$PID
# shellcheck disable=SC2317 # by wait_for
both_have() { [ "$(grep -c '^alloc 0$' "$T/$job.out")" = 2 ]; }
check "two processes have memory" wait_for 10 both_have
wait_for 10 is_state job running
read -r one other < <(sed -n 's/^pid //p' "$T/$job.out" | xargs)
background+=("$one" "$other")
# A process that nobody has waited for yet is one that the driver still lists: its bytes stay in the books.
shell=$(sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$one/stat")
background+=("$shell")
kill -STOP "$shell"
kill -KILL "$job"
wait_for 10 gone "$job"
kill -KILL "$one"
# shellcheck disable=SC2317 # by wait_for
sweeps() { grep -lz -- "^sweep$" /proc/[0-9]*/cmdline 2>/dev/null | grep -q .; }
check "the daemon tidies up after the one that was killed" wait_for 10 sweeps
capture "$ULLAGE" suspend job
is "what is left is suspended" "$CODE" 0
like "... all of it is moved" "$ERR" '100(\.0)? MiB'
is "... when that is said" "$(job_value job state)" suspended
capture "$ULLAGE" resume job
is "and comes back" "$CODE: $(job_value job state)" "0: running"
kill -CONT "$shell"
touch "$T/go"
check "and goes on" wait_for 10 gone "$other"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"

# --- no further process: for root there is no such limit
who=()
if [ "$(id -u)" = 0 ]; then
    who=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    if ! "${who[@]}" "$ULLAGED" --version >/dev/null 2>&1; then
        skip "a worker that cannot be started" "needs a build that others may read"
        done_testing
    fi
    chmod -R a+rX "$T"
    umask 000
    cards 600MiB
    mkdir -p "$ULLAGE_FAKE_STATE"
    chmod -R a+rwX "$ULLAGE_FAKE_STATE" "$T/theirs"
    export ULLAGE_SOCKET=$T/theirs/ullaged.sock HOME=$T/theirs XDG_STATE_HOME=$T/theirs
fi
# shellcheck disable=SC2016
spawn "${who[@]}" bash -c 'ulimit -u 0 && exec "$@"' bash "$ULLAGED"
DAEMON=$PID
check "a daemon that may start no process begins" wait_for 10 grep -q "serves [0-9]* cards" "$T/$DAEMON.err"
spawn "${who[@]}" "$ULLAGE" run --quiet --suspendable -m 500MiB --name job -- \
    "$GUEST" init device 0 alloc 100MiB touch "$T/theirs/has" hold
job=$PID
wait_for 10 test -e "$T/theirs/has"
capture timeout 10 "${who[@]}" "$ULLAGE" suspend job
like "who asked is told why it is not moved" "$CODE: $ERR" '^1: .*cannot start a process: Resource temporarily unavailable'
kill "$job"
done_testing
