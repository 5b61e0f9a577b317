#!/usr/bin/env bash
#
# SIGKILL of jobs, of their `ullage run`, of the daemon, of its workers and of clients at random moments, a thousand times: every
# byte of whoever lives stays right, nothing is left on the card or the host, and whoever comes after is served. What is done is in
# kills/. ROUNDS for more or fewer, SEED for other moments, WORLDS for more or fewer side by side.
#
# shellcheck disable=SC2317 # by wait_for
# In memory, where there is enough of it: what the files of cards and jobs cost on a disk is not the question.
if [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt 2000000 ]; then export TMPDIR=/dev/shm; fi
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seed=${SEED:-11}
if [ -z "$SANITIZED" ]; then rounds=${ROUNDS:-1000} worlds=${WORLDS:-12}; else rounds=${ROUNDS:-50} worlds=${WORLDS:-4}; fi
said=$("$BUILD_DIR/tests/e2e/share/kills/kills" "$rounds" "$worlds" "$seed" "$T" 2>&1)
CODE=$?
grep '^#' <<<"$said"
is "$rounds rounds, seed $seed" "$CODE $(grep -v '^#' <<<"$said")" "0 "

# A host that is full: nothing moves, and the lower one waits as long as it may.
cards 300MiB
export ULLAGE_FAKE_CONTEXT=10MiB
configure "host_memory = 1MiB" "allocation_wait = 2s" "slice = 500ms"
start_daemon
spawn "$ULLAGE" run -q -m 250MiB --name low -- "$GUEST" init device 0 alloc 200MiB touch "$T/low" hold
low=$PID
wait_for 10 test -e "$T/low"
run -q -m 250MiB --priority 9 --name high -- "$GUEST" init device 0 alloc 150MiB
is "a full host: out of memory in the end" "$(tail -n 1 <<<"$OUT")" "alloc 2"
is "and the lower one was left where it is" "$(job_value low state)" running
[ "$failed" = 0 ] || printf '# high: %s\n' "$OUT" "$ERR" "$(<"$T/$low.err")" "$(<"$T/$DAEMON.err")"
kill -KILL "$low" 2>/dev/null
done_testing
