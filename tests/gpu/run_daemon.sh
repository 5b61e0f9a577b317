#!/usr/bin/env bash
# The daemon on a real card: a job of higher priority arrives on a full card, and two equal ones take turns. Three
# minutes on an H200. Exit 0 if all checks passed.
#
#   tests/gpu/run_daemon.sh BUILD_DIR [OUTPUT_DIR]     a build with ullaged; on a machine with a GPU and PyTorch
#
# Jobs have 30 GiB each. A program that is no job takes all but 45 GiB of the card before, so that only one has room.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${1:?BUILD_DIR: a build with ullaged}" && pwd)
out=${2:-build/gpu-results}
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

state=$(mktemp -d -p /dev/shm)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$state"' EXIT
export ULLAGE_SHM_DIR=$state XDG_STATE_HOME=$state XDG_CONFIG_HOME=$state XDG_RUNTIME_DIR=$state
mkdir -p "$state/ullage"
printf 'socket = %s/socket\nslice = 5s\nlisten = none\nhistory = none\n' "$state" >"$state/ullage/ullage.conf"
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv,noheader

python3 - "$state/filled" <<'PY' &
import sys, time, torch
free, _ = torch.cuda.mem_get_info()
kept = torch.empty(free - (45 << 30), dtype=torch.uint8, device="cuda")
open(sys.argv[1], "w").close()
time.sleep(600)
PY
for _ in $(seq 300); do [ -e "$state/filled" ] && break; sleep 0.1; done
check "the card is filled but for 45 GiB" [ -e "$state/filled" ]
LD_LIBRARY_PATH=$build/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$build/ullaged" 2>"$out/ullaged.err" &
daemon=$!
for _ in $(seq 100); do [ -S "$state/socket" ] && break; sleep 0.1; done
check "the daemon listens" [ -S "$state/socket" ]

job() { # NAME PRIORITY SECONDS
    LD_LIBRARY_PATH=$build/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$build/ullage" run -q -m 34GiB --suspendable \
        --priority "$2" --name "$1" -- python3 tests/gpu/daemon_job.py "$1" 30 "$3" >"$out/job-$1.txt" 2>&1
    echo $? >"$out/job-$1.code"
}
echo "== a job of higher priority"
job low 0 25 &
low=$!
sleep 12
job high 5 6 &
wait $! "$low"
cat "$out"/job-{low,high}.txt
check "both end right" [ "$(cat "$out"/job-low.code "$out"/job-high.code | tr -d '\n')" = 00 ]
echo "== two of one priority"
job one 0 40 &
one=$!
job two 0 40 &
wait $! "$one"
cat "$out"/job-{one,two}.txt
check "both end right" [ "$(cat "$out"/job-one.code "$out"/job-two.code | tr -d '\n')" = 00 ]
check "the daemon is still there" kill -0 "$daemon"
tail -n 20 "$out/ullaged.err"
over
