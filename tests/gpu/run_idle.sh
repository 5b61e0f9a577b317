#!/usr/bin/env bash
# Idle caches on a real card: a program with a pool that only keeps memory gives it to another job that needs it, by
# libullage.so and by PyTorch; and the daemon's watermark. About 60 s on an H200. Exit 0 if all checks passed.
#
#   tests/gpu/run_idle.sh [OUTPUT_DIR]     on a machine with a GPU; PyTorch for its part
#
# BUILD names a build that is there already, with ullaged and the tests' guests (cache, guest); else build/gpu is
# made. KEEP and NEED: MiB (60 % and 60 % of the card); LIVE: that stay in use (1024).
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=${BUILD:-build/gpu}
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

build_for idle ullaged ullage ullaged cache guest ullage-torch
ullage=$build/ullage
guests=$build/tests/e2e/guests
state=$(mktemp -d)
export ULLAGE_SHM_DIR=$state/shm XDG_STATE_HOME=$state XDG_CONFIG_HOME=$state/config ULLAGE_SOCKET=$state/ullaged.sock
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$state/shm" "$state/config/ullage"
port=$((20000 + RANDOM % 10000))
printf '%s\n' "listen = 127.0.0.1:$port" "history = none" "suspend = asked" "watermark = 90%" >"$state/config/ullage/ullage.conf"
pids=()
clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$state"
}
trap clean_up EXIT
began() { date +%s%N; }
ms_since() { echo $((($(date +%s%N) - $1) / 1000000)); }
wait_for() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}
held_gib() { # JOB
    "$ullage" ps -o json | python3 -c '
import json, sys
print(round(sum(v["held_bytes"] for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1]
                for v in j["devices"]) / 2**30, 1))' "$1"
}

# What the daemon knows while somebody waits: a line each time that anything has changed, for who must find out why
# nothing was given back. held, idle: MiB by job; trims: how often anybody was asked.
watch() { # in the background: becomes the program
    exec python3 - "$port" "$ullage" <<'EOF'
import json, re, subprocess, sys, time, urllib.request

began, last = time.time(), None
while True:
    try:
        text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1], timeout=2).read().decode()
        jobs = json.loads(subprocess.run([sys.argv[2], "ps", "-o", "json"], capture_output=True).stdout)["jobs"]
        names = {j["id"]: j["name"] for j in jobs}
        said = []
        for job, kind, value in re.findall(r'memory_bytes{job="(\w+)",device="0",kind="(held|idle)"} (\d+)', text):
            said.append("%s %s %d" % (names.get(job, job), kind, int(value) >> 20))
        said += re.findall(r"ullage_(trims_total \d+)", text)
        if said != last:
            print("   %6.2f s: %s" % (time.time() - began, ", ".join(said)), flush=True)
        last = said
    except (OSError, ValueError):
        pass
    time.sleep(0.25)
EOF
}

say "machine"
what_runs_here
card=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits -i 0)
KEEP=${KEEP:-$((card * 60 / 100))}
NEED=${NEED:-$((card * 60 / 100))}
LIVE=${LIVE:-1024}
"$build/ullaged" 2>"$out/idle-ullaged.log" &
pids+=($!)
wait_for 10 grep -q serves "$out/idle-ullaged.log"

# scene TITLE FILE COMMAND...: the command keeps and makes FILE; another job needs more than is left
scene() {
    local title=$1 file=$2 keeper needer start watcher
    shift 2
    say "$title: $KEEP MiB are kept, $NEED are needed"
    "$ullage" run -q -m 95% --name keeps -- "$@" >"$out/idle-keeps.txt" 2>&1 &
    keeper=$!
    pids+=("$keeper")
    check "it keeps what it freed" wait_for 90 test -e "$file"
    echo "kept: $(held_gib keeps) GiB"
    sleep 1.5
    watch &
    watcher=$!
    pids+=("$watcher")
    sleep 0.5
    start=$(began)
    "$ullage" run -q -m 95% --name needs -- "$guests/guest" init device 0 alloc "${NEED}MiB" touch "$file.has" wait "$file.stop" \
        >"$out/idle-needs.txt" 2>&1 &
    needer=$!
    pids+=("$needer")
    check "another one gets it" wait_for 70 test -e "$file.has"
    echo "after $(ms_since "$start") ms, its context included; kept now: $(held_gib keeps) GiB"
    check "by an allocation that succeeded" grep -qx "alloc 0" "$out/idle-needs.txt"
    kill "$watcher" 2>/dev/null
    touch "$file.stop"
    check "it ends" wait_for 30 sh -c "! kill -0 $needer 2>/dev/null"
    check "and so does the other" wait_for 60 sh -c "! kill -0 $keeper 2>/dev/null"
}

scene "libullage.so" "$state/a" "$guests/cache" take "${LIVE}MiB" take "${KEEP}MiB" check free take "${LIVE}MiB" \
    touch "$state/a" wait "$state/a.stop" check take "${KEEP}MiB" check
check "with every byte right, before and after" [ "$(grep -c "check right" "$out/idle-keeps.txt")" = 3 ]

if ! python3 -c 'import torch' 2>/dev/null; then
    echo "left out: PyTorch"
else
    export ULLAGE_TORCH_LIBRARY=$build/libullage-torch.so PYTHONPATH=$PWD/bindings/python PYTHONDONTWRITEBYTECODE=1
    scene "PyTorch" "$state/b" python3 tests/gpu/idle_torch.py "$KEEP" "$state/b" "$state/b.stop"
    cat "$out/idle-keeps.txt"
    check "with the same result before and after" python3 -c '
import json, sys
d = json.loads(open(sys.argv[1]).read().splitlines()[-1])
sys.exit(not (d["first"] == d["last"] and d["steps"] > 0))' "$out/idle-keeps.txt"
fi
cat "$out/idle-ullaged.log"
over
