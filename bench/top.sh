#!/usr/bin/env bash
#
# top.sh: what `ullage top` costs: CPU time of a whole screen, with processes that hold memory on a fake card.
#
# Two worlds of 64 processes: 8 jobs of 8 processes each, and 64 jobs of one. In each the screen is redrawn
# every second on a terminal of tmux, 160 columns by 50 lines, for a while; user and system time of the process
# over that time is the figure, in percent of one core. The fake NVML is part of it, a real driver is not.
#
# Usage: bench/top.sh [BUILD_FOLDER [SECONDS]]    (default build/release, 30)

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
seconds=${2:-30}
guest=$build/tests/e2e/guests/guest
work=$(mktemp -d)
ticks=$(getconf CLK_TCK)

export LC_ALL=C.UTF-8 LD_LIBRARY_PATH=$build/tests/fakecuda ULLAGE_FAKE_GPUS=h200
export XDG_STATE_HOME=$work/state XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache
unset CUDA_VISIBLE_DEVICES LD_PRELOAD NO_COLOR TMUX

jobs_pids=()
end_world() {
    local pid
    tmux -S "$work/tmux" kill-server 2>/dev/null || true
    for pid in "${jobs_pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    jobs_pids=()
}
trap 'end_world; rm -rf "$work"' EXIT

# world NAME JOBS PROCESSES: prints the figure
world() {
    local job pid before after
    export ULLAGE_FAKE_STATE=$work/cards.$1 ULLAGE_SHM_DIR=$work/shm.$1
    mkdir "$ULLAGE_SHM_DIR"
    for ((job = 0; job < $2; job++)); do
        # shellcheck disable=SC2016 # for the shell of the job
        "$build/ullage" run -q -m 2GiB --name "job$job" -- sh -c \
            'all=; for i in $(seq "$1"); do "$0" ctx alloc 100MiB hold & all="$all $!"; done
            trap "kill $all" TERM; wait' \
            "$guest" "$3" >/dev/null 2>&1 </dev/null &
        jobs_pids+=($!)
    done
    for ((try = 0; try < 300; try++)); do
        [ "$("$build/ullage" ps -o csv 2>/dev/null | grep -c ',process,')" -ge $(($2 * $3)) ] && break
        sleep 0.1
    done
    tmux -S "$work/tmux" -f /dev/null new-session -d -x 160 -y 50 "exec '$build/ullage' top"
    sleep 3
    pid=$(tmux -S "$work/tmux" display-message -p '#{pane_pid}')
    before=$(cut -d' ' -f14,15 "/proc/$pid/stat" | tr ' ' '+')
    sleep "$seconds"
    after=$(cut -d' ' -f14,15 "/proc/$pid/stat" | tr ' ' '+')
    awk -v name="$1" -v spent=$(((after) - (before))) -v ticks="$ticks" -v seconds="$seconds" \
        -v kib="$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")" \
        'BEGIN { printf "%-24s %.2f %% of a core, %.1f MiB resident\n", name, 100 * spent / ticks / seconds, kib / 1024 }'
    end_world
}

world 'jobs-8-processes-8' 8 8
world 'jobs-64-processes-1' 64 1
