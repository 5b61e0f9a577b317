#!/usr/bin/env bash
#
# Who moves a job for the daemon is killed half-way: the daemon does not leave it there.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB

# shellcheck disable=SC2317 # by wait_for
works() { WORKER_PID=$(tr -d ' ' <"/proc/$DAEMON/task/$DAEMON/children") && [ -n "$WORKER_PID" ]; }
# The driver has locked the process, and its checkpoint takes a while; or the process moves itself.
# shellcheck disable=SC2317 # by wait_for
half_way() {
    case $way in
        --quiet) "$FAKECTL" status | grep -q '"frozen": 1' ;;
        *) [ "$(ps_json "d['jobs'][0]['processes'][0]['state']")" = suspending ] ;;
    esac
}

for way in --quiet --suspendable; do
    ULLAGE_FAKE_DELAY=cuCheckpointProcessCheckpoint=4s start_daemon
    ULLAGE_FAKE_DELAY=cuMemcpyDtoHAsync_v2=80ms spawn "$ULLAGE" run -q "$way" -m 500MiB --name job -- \
        "$GUEST" init device 0 alloc 400MiB touch "$T/has$way" wait "$T/go$way" alloc 1MiB
    job=$PID
    wait_for 10 test -e "$T/has$way"
    wait_for 10 is_state job running
    spawn "$ULLAGE" suspend job
    client=$PID
    wait_for 10 works
    check "$way: it is half-way" wait_for 10 half_way
    kill -KILL "$WORKER_PID"
    check "$way: the client is told" wait_for 10 gone "$client"
    like "$way: what happened" "$(<"$T/$client.err")" 'ended early'
    like "$way: so is the log" "$(<"$T/$DAEMON.err")" 'was left half-way: the process that did it ended early'
    check "$way: the job gets back" wait_for 20 is_state job running
    touch "$T/go$way"
    check "$way: and goes on" wait_for 20 gone "$job"
    is "$way: as if nothing had been" "$(grep -c '^alloc 0$' "$T/$job.out")" 2
    kill "$DAEMON"
    wait_for 10 gone "$DAEMON"
done
done_testing
