#!/usr/bin/env bash
#
# SIGKILL of jobs, of their `ullage run`, of the daemon, of its workers and of clients at random moments: every byte of
# whoever lives stays right, nothing is left on the card or the host, and whoever comes after is served. ROUNDS for more
# of them, SEED for others: 1000 take an hour, or two minutes in 32 parts side by side on 16 processors (each in a pid
# namespace of its own, since the number of a process that is over is soon another's).
#
# shellcheck disable=SC2317 # by wait_for
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 300MiB
export ULLAGE_FAKE_CONTEXT=10MiB
# On a busy machine a move takes long, and then slices are long, too: nobody gives up because of that.
configure "slice = 500ms" "allocation_wait = 300s"
RANDOM=${SEED:-11}
rounds=${ROUNDS:-5}
daemons=()
next_daemon() {
    start_daemon
    daemons+=("$DAEMON")
}
next_daemon

# Without Python, whose start is most of a round.
card_is_empty() { [[ $("$FAKECTL" status) == *'"used": 0, '* ]]; }
no_jobs() { [[ $("$ULLAGE" ps -o json 2>/dev/null) == *'"jobs": []'* ]]; }

# children PID...: one a line
children() {
    local pid
    for pid in "$@"; do cat "/proc/$pid/task/$pid/children" 2>/dev/null; done | tr ' ' '\n' | sed '/^$/d'
}

# What is left on the host: files of jobs, bytes of the fake card's, sockets, and processes but the daemon.
left_on_host() {
    local file pid
    find "$T/shm" -type f ! -name 'ullaged-*' # the daemon's sign for others
    for file in "$ULLAGE_FAKE_STATE"/data*; do
        [ -e "$file" ] && [ "$(stat -c %b "$file")" -gt 0 ] && echo "$file"
    done
    [ "$(find "$T" -type s | wc -l)" = 1 ] || find "$T" -type s
    while IFS=/ read -r _ _ pid _; do
        [ "$pid" = $$ ] || [ "$pid" = "$DAEMON" ] || gone "$pid" ||
            { [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" && echo "($pid)"; }
    done < <(grep -lz "^ULLAGE_SHM_DIR=$T/shm" /proc/[0-9]*/environ 2>/dev/null | grep -v "/$BASHPID/")
}
host_is_clean() { LEFT=$(left_on_host) && [ -z "$LEFT" ]; }

# resume_those_of JOB...: what a person suspended stays so until a person resumes it
resume_those_of() {
    local job
    for job in "$@"; do
        gone "${jobs[job - 1]}" || "$ULLAGE" resume -q "r$round.$job" >/dev/null 2>&1
    done
}

# kill_ours PID...: those that are this test's still; the number of one that is over may be another's by now
kill_ours() {
    local pid
    for pid in "$@"; do
        ! grep -qz "^ULLAGE_SHM_DIR=$T/shm" "/proc/$pid/environ" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
    done
}

# Kills something. What it may not be able to do afterwards, it does here.
strike() {
    local victims client
    case $((RANDOM % 7)) in
    0) # a run; its command goes on by itself
        kill_ours "${jobs[RANDOM % 3]}" ;;
    1 | 2) # a command
        mapfile -t victims < <(children "${jobs[@]}")
        [ ${#victims[@]} -eq 0 ] || kill_ours "${victims[RANDOM % ${#victims[@]}]}"
        ;;
    3)
        kill -KILL "$DAEMON"
        next_daemon
        ;;
    4) # all at once
        kill_ours "$DAEMON" "${jobs[@]}"
        next_daemon
        ;;
    5) # a client, at work or not
        asked=$((RANDOM % 3 + 1))
        spawn "$ULLAGE" suspend -q "r$round.$asked"
        client=$PID
        sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
        kill -KILL "$client" 2>/dev/null
        ;;
    6) # who moves memory for the daemon
        mapfile -t victims < <(children "$DAEMON")
        kill_ours "${victims[@]}"
        ;;
    esac
}

# all_end SECONDS
all_end() {
    local until=$((SECONDS + $1)) job
    for job in "${jobs[@]}"; do
        until gone "$job"; do
            [ "$SECONDS" -lt "$until" ] || return 1
            [ -z "$asked" ] || resume_those_of "$asked"
            sleep 0.05
        done
    done
}

bad=''
for round in $(seq "$rounds"); do
    jobs=() asked=''
    for i in 1 2 3; do
        options=()
        [ $((RANDOM % 3)) -eq 0 ] && options+=(--wait)
        [ $((RANDOM % 2)) -eq 0 ] && options+=(--suspendable)
        spawn "$ULLAGE" run -q -m 250MiB "${options[@]}" --priority $((RANDOM % 2)) --name "r$round.$i" -- \
            "$GUESTS/share" 4 40MiB 4
        jobs+=("$PID")
    done
    sleep "0.$((RANDOM % 9))"
    strike
    sleep "0.$((RANDOM % 9))"
    # Those that live end by themselves; what was started by a run that was killed does so too.
    all_end 180 || bad+=" round $round: a job hangs: $("$ULLAGE" ps -o json | tr -d '\n');"
    wait_for 60 card_is_empty || bad+=" round $round: $(used_by_all) bytes are left: $("$ULLAGE" ps -o json | tr -d '\n');"
    wait_for 20 no_jobs || bad+=" round $round: jobs are left: $("$ULLAGE" ps -o json | tr -d '\n');"
    wait_for 20 host_is_clean || bad+=" round $round: on the host there are ${LEFT//$'\n'/ };"
    for job in "${jobs[@]}"; do
        grep -Eq '^(alloc|copy|set|free|block|context|current|init)' "$T/$job.out" && bad+=" round $round: $(cat "$T/$job.out");"
    done
    [ -z "$bad" ] || break
done
# What everybody said: it may be a long time until it happens again.
last_words() {
    local pid
    for pid in "$@"; do sed "s/^/# $pid: /" "$T/$pid.out" "$T/$pid.err"; done
}
[ -z "$bad" ] || last_words "${jobs[@]}" "${daemons[@]}"
is "$rounds rounds" "$bad" ""

# A host that is full: nothing moves, and the lower one waits as long as it may.
configure "host_memory = 1MiB" "allocation_wait = 2s" "slice = 500ms"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
next_daemon
spawn "$ULLAGE" run -q -m 250MiB --name low -- "$GUEST" init device 0 alloc 200MiB touch "$T/low" hold
low=$PID
wait_for 10 test -e "$T/low"
run -q -m 250MiB --priority 9 --name high -- "$GUEST" init device 0 alloc 150MiB
is "a full host: out of memory in the end" "$(tail -n 1 <<<"$OUT")" "alloc 2"
is "and the lower one was left where it is" "$(job_value low state)" running
[ "$failed" = 0 ] || { printf '# high: %s\n' "$OUT" "$ERR"; last_words "$low" "$DAEMON"; }
kill -KILL "$low" 2>/dev/null
done_testing
