#!/usr/bin/env bash
#
# SIGKILL of jobs, of their `ullage run`, of the daemon and of waiting clients at random moments: nothing is left on the
# card, and whoever comes after is served. ROUNDS for more of them: 1000 take about half an hour.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
configure "slice = 500ms"
RANDOM=${SEED:-11}
rounds=${ROUNDS:-8}
start_daemon

# shellcheck disable=SC2317 # by wait_for
card_is_empty() { [ "$(used_by_all)" = 0 ]; }
# shellcheck disable=SC2317
no_jobs() { [ "$(ps_json "len(d['jobs'])")" = 0 ]; }

bad=''
for round in $(seq "$rounds"); do
    jobs=()
    for i in 1 2 3; do
        wait_option=()
        [ $((RANDOM % 3)) -eq 0 ] && wait_option=(--wait)
        spawn "$ULLAGE" run -q -m 500MiB "${wait_option[@]}" --priority $((RANDOM % 2)) --name "r$round.$i" -- \
            "$GUESTS/share" 4 80MiB 5
        jobs+=("$PID")
    done
    sleep "0.$((RANDOM % 9))"
    case $((RANDOM % 4)) in
    0) kill -KILL "${jobs[RANDOM % 3]}" 2>/dev/null ;;
    1) pkill -KILL -n -f "$GUESTS/share 4 80MiB 5" ;;
    2)
        kill -KILL "$DAEMON"
        start_daemon
        ;;
    3) # all at once
        kill -KILL "$DAEMON" "${jobs[@]}" 2>/dev/null
        start_daemon
        ;;
    esac
    sleep "0.$((RANDOM % 9))"
    # Those that live end by themselves; what was started by a run that was killed does so too.
    for job in "${jobs[@]}"; do
        wait_for 30 gone "$job" || bad+=" round $round: $job hangs;"
    done
    wait_for 20 card_is_empty || bad+=" round $round: $(used_by_all) bytes are left;"
    wait_for 20 no_jobs || bad+=" round $round: jobs are left;"
    for job in "${jobs[@]}"; do
        grep -Eq '^(alloc|copy|block|context|init)' "$T/$job.out" && bad+=" round $round: $(cat "$T/$job.out");"
    done
    [ -z "$bad" ] || break
done
is "$rounds rounds" "$bad" ""

# A host that is full: nothing moves, and the lower one waits as long as it may.
configure "host_memory = 1MiB" "allocation_wait = 2s" "slice = 500ms"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
start_daemon
spawn "$ULLAGE" run -q -m 500MiB --name low -- "$GUEST" init device 0 alloc 400MiB touch "$T/low" hold
low=$PID
wait_for 10 test -e "$T/low"
run -q -m 500MiB --priority 9 --name high -- "$GUEST" init device 0 alloc 300MiB
is "a full host: out of memory in the end" "$(tail -n 1 <<<"$OUT")" "alloc 2"
is "and the lower one was left where it is" "$(job_value low state)" running
kill -KILL "$low" 2>/dev/null
done_testing
