#!/usr/bin/env bash
# Suspension on a real card: the scenes of the guest `worker`, unmodified PyTorch, what swapping takes beside the
# driver's own checkpoint, what the gate costs, and two trainings that alternate on a card too small for both.
# Exit 0 if all checks passed.
#
#   tests/gpu/run_suspend.sh [OUTPUT_DIR [PART...]]     on a machine with a GPU and PyTorch
#
# Parts, in this order, all of them if none is named; seconds on an H200: swap 120, scenes 45, shared 40, mapped 20,
# spill 15, gate 10, training 90, alternate 90, graph 10, ipc 30.
#
# BUILD names a build that is there already (cmake without tests is enough); else build/gpu is made. LIMIT: no new part
# begins after so many seconds (default 400). SIZES: GiB that swap moves (8 32). DRIVER: the libcuda.so.1 to link with.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/gpu-results}
build=${BUILD:-build/gpu}
limit=${LIMIT:-400}
SIZES=${SIZES:-8 32}
parts=" ${*:2} "
mkdir -p "$out"
# shellcheck source=tests/gpu/lib.sh
. tests/gpu/lib.sh

part() { # NAME TITLE
    its_turn "$parts" "$@" || return 1
    [ "$SECONDS" -lt "$limit" ] || { echo "left out: no time"; false; }
}

build_for suspend ullage
worker_for suspend
ullage=$build/ullage
state=$(mktemp -d -p /dev/shm) # the driver does not pin files of a disk
trap 'rm -rf "$state"' EXIT
export ULLAGE_SHM_DIR=$state XDG_STATE_HOME=$state CUBLAS_WORKSPACE_CONFIG=:4096:8

say "machine"
what_runs_here

held_gib() { # JOB
    "$ullage" ps -o json 2>/dev/null | python3 -c '
import json, sys
print(max([v["held_bytes"] >> 20 for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1] for v in j["devices"]], default=0) / 1024)' "$1"
}
used_mib() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
wait_held() { # JOB GIB: until the job holds so much, 40 s at most
    local tries=200
    until python3 -c "import sys; sys.exit(not $(held_gib "$1") >= $2)" || [ $tries = 0 ]; do
        sleep 0.2
        tries=$((tries - 1))
    done
}
alive() { kill -0 "$1" 2>/dev/null; }

# --- figures ------------------------------------------------------------------------------------------------

swap() { # GIB TIMES LABEL OPTION...: blocks of 512 MiB; one line a move: GB/s whole, and of the bytes alone
    local gib=$1 times=$2 label=$3 job i verb
    shift 3
    rm -f "$state"/swap.*
    "$ullage" run -q -m 100GiB "$@" --name swap -- "$worker" init 0 alloc 512MiB $((gib * 2)) touch "$state/swap.has" \
        wait "$state/swap.go" verify >"$out/swap.txt" 2>&1 &
    job=$!
    for i in $(seq 200); do
        [ -e "$state/swap.has" ] && break
        sleep 0.1
    done
    if [ "$label" = pinned ]; then
        i=0
        until [ "$(pinned_gib swap)" = "$gib" ] || [ $i = 150 ]; do
            sleep 0.2
            i=$((i + 1))
        done
        echo "   $gib GiB $label: $(pinned_gib swap) GiB are pinned after $((i / 5)) s"
    fi
    for i in $(seq "$times"); do
        for verb in suspend resume; do
            echo "$verb $(timeout 60 "$ullage" $verb --timeout 50 swap 2>&1)"
        done
    done | tee "$out/swap.line" | sed -nE 's/^(suspend|resume) .* in ([0-9.]+) s(, at ([0-9.]+) GB\/s)?.*/\1 \2 \4/p' |
        awk -v gib="$gib" -v label="$label" '{
            way = $1 == "suspend" ? "out" : "back"; n[way]++
            printf "   | %d GiB, %s | %s %d | %.2f s | %.1f GB/s | %s |\n", gib, label, way, n[way], $2,
                gib * 1.073741824 / $2, $3 ? $3 " GB/s" : "-" }'
    touch "$state/swap.go"
    wait $job
    check "$gib GiB, $label: every word is right" grep -q '^wrong 0$' "$out/swap.txt"
    grep -v 'ullage: job swap is' "$out/swap.line" | head -n 4
}
pinned_gib() { # JOB
    "$ullage" ps -o json 2>/dev/null | python3 -c '
import json, sys
print(max([j["pinned_bytes"] >> 30 for j in json.load(sys.stdin)["jobs"] if j["name"] == sys.argv[1]], default=0))' "$1"
}
if part swap "swapping: | what | way and time | whole | whole rate | rate of the bytes |"; then
    for gib in $SIZES; do
        swap "$gib" 3 pageable --suspendable
        swap "$gib" 3 "never pinned" --suspendable --pinned none
        swap "$gib" 2 pinned --suspendable --pinned "${gib}GiB"
        swap "$gib" 1 "by the driver"
    done
fi

# --- the guest, scene by scene ----------------------------------------------------------------------------

scene() { # NAME WORD...: alone, then as a job that is suspended four times
    local name=$1 alone held code suspended=0
    shift
    local options=(${SCENE_OPTIONS[@]+"${SCENE_OPTIONS[@]}"})
    [ ${#options[@]} -gt 0 ] || options=(-m 100GiB)
    alone=("${@/FILE./$state/$name.alone.}")
    held=("${@/FILE./$state/$name.held.}")
    timeout 30 "$worker" "${alone[@]}" >"$out/$name.alone" 2>&1
    timeout -k 5 60 "$ullage" run -q "${options[@]}" --suspendable --name "$name" -- "$worker" "${held[@]}" \
        >"$out/$name.held" 2>"$out/$name.err" &
    local job=$!
    while alive $job && [ $suspended -lt 4 ]; do
        sleep 0.3
        timeout 20 "$ullage" suspend -q --timeout 15 "$name" 2>>"$out/$name.err" || continue
        suspended=$((suspended + 1))
        timeout 20 "$ullage" resume -q --timeout 15 "$name" 2>>"$out/$name.err"
    done
    wait $job
    code=$?
    check "$name: suspended $suspended times, exit code $code, the same to the last bit" \
        cmp <(sort "$out/$name.alone") <(sort "$out/$name.held" && [ $code != 0 ] && echo "code $code")
    if [ $suspended = 0 ] || [ $code != 0 ]; then
        echo "   $(head -c 600 "$out/$name.err" | sort -u | tr '\n' ' ')"
        tail -n 1 "$out/$name.held"
    fi
}
if part scenes "scenes"; then
    "$worker" init 0 launches 1000 >"$out/first" || { cat "$out/first"; exit 1; } # code is loaded once
    touch "$state/replay.alone.end" "$state/replay.held.end"
    scene rounds init 0 alloc 64MiB 20 alloc 5000 50 rounds 600 3 sum
    scene churn init 0 alloc 1MiB 4 churn 400 3 small 300 2 sum
    scene async init 0 alloc 1MiB 1 async 60 30 sum
    scene small init 0 alloc 4KiB 10000 rounds 500 4 sum
    scene pointers init 0 alloc 5000 3 alloc 3MiB 1 sleep 1500 pointers free 1 pointers
    scene replay init 0 alloc 1MiB 8 capture FILE.end 0 replay 400 5 sum
    # An open capture: refused while it is open, and not broken.
    "$ullage" run -q -m 100GiB --suspendable --name open -- "$worker" init 0 alloc 1MiB 8 capture "$state/open.end" 0 \
        replay 100 10 sum >"$out/open.txt" 2>&1 &
    job=$!
    wait_held open 0.001
    timeout 20 "$ullage" suspend --timeout 2 open
    check "an open capture: refused" [ $? = 1 ]
    touch "$state/open.end"
    sleep 0.5
    timeout 20 "$ullage" suspend open
    check "then it can be suspended" [ $? = 0 ]
    timeout 20 "$ullage" resume open
    wait $job
    "$worker" init 0 alloc 1MiB 8 capture "$state/open.end" 0 replay 100 10 sum >"$out/open.alone"
    check "and the captured graph replays the same" cmp "$out/open.txt" "$out/open.alone"
fi

# --- processes that share, memory of the program's own mapping, memory beyond the limit ---------------------------

if part shared "processes that share memory"; then
    scene ring spawn init 0 ring FILE.meet 1 150 10 end init 0 ring FILE.meet 0 150 10 join
    scene passed spawn init 0 import FILE.meet 150 10 end init 0 alloc 8MiB 3 export FILE.meet join sum
fi
if part mapped "memory that the program maps itself"; then
    scene mapped init 0 alloc 10M 2 map 6M 20 map 2M 40 mapexport 8M remap 400 5 mapsum sum unmap
fi
if part spill "memory beyond the limit"; then
    SCENE_OPTIONS=(-m 2GiB --spill 4GiB)
    scene spill init 0 alloc 60M 40 alloc 100K 50 rounds 60 10 sum
    unset SCENE_OPTIONS
fi

if part gate "what the gate costs a launch (ns, in turn)"; then
    for _ in 1 2 3 4 5; do
        echo "free $("$worker" init 0 launches 200000 | sed 's/launch_ns //')"
        echo "held $("$ullage" run -q -m 100GiB -- "$worker" init 0 launches 200000 | sed 's/launch_ns //')"
        echo "gated $("$ullage" run -q -m 100GiB --suspendable -- "$worker" init 0 launches 200000 | sed 's/launch_ns //')"
    done | tee "$out/launches.txt" | awk '{ n[$1]++; v[$1, n[$1]] = $2 } END { for (k in n) { printf "%s:", k; for (i = 1; i <= n[k]; i++) printf " %s", v[k, i]; print "" } }'
fi

# --- PyTorch ----------------------------------------------------------------------------------------------

train=(python3 tests/gpu/train.py --steps 200 --width 8192 --batch 8192)
suspended_training() { # NAME OPTION...
    local name=$1 suspended=0
    shift
    "$ullage" run -m 100GiB "$@" --name "$name" -- "${train[@]}" >"$out/$name.txt" 2>"$out/$name.err" &
    local job=$!
    wait_held "$name" 8
    for _ in 1 2 3; do
        sleep 1
        alive $job || break
        echo "on the card before: $(used_mib) MiB"
        timeout 60 "$ullage" suspend "$name" && suspended=$((suspended + 1))
        echo "while suspended: $(used_mib) MiB"
        timeout 60 "$ullage" resume "$name"
    done
    wait $job
    check "$name: suspended $suspended times, the same losses bit for bit" cmp "$out/free.txt" "$out/$name.txt"
    [ $suspended = 3 ] || check "$name: three times" false
    tail -n 3 "$out/$name.err"
}
free_losses() { # once
    [ -s "$out/free.txt" ] || "${train[@]}" >"$out/free.txt" 2>&1
}
rm -f "$out/free.txt"

if part training "a training, suspended three times"; then
    free_losses
    head -c 120 "$out/free.txt"
    echo
    suspended_training gated --suspendable
    suspended_training by_driver
fi

# --- two trainings on a card for one --------------------------------------------------------------------------

if part alternate "two trainings alternate"; then
    free_losses
    total=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
    need=11 # GiB, as `ullage run` says at its end
    rm -f "$state"/hog.*
    "$worker" init 0 alloc 512MiB $(((total / 1024 - need * 3 / 2 - 2) * 2)) touch "$state/hog.has" wait "$state/hog.go" &
    hog=$!
    until [ -e "$state/hog.has" ] || ! alive $hog; do sleep 0.1; done
    echo "a training needs $need GiB; on the card: $(used_mib) of $total MiB"
    start() { "$ullage" run -m $((need + 4))GiB --suspendable --name "$1" -- "${train[@]}" >"$out/$1.txt" 2>"$out/$1.err" & }
    start first
    first=$!
    wait_held first $((need * 3 / 4))
    sleep 1
    timeout 60 "$ullage" suspend first
    start second
    second=$!
    wait_held second $((need * 3 / 4))
    sleep 1
    timeout 60 "$ullage" resume first
    check "both do not fit: the first stays suspended" [ $? = 1 ]
    turns=0
    a=second b=first
    while alive $first && alive $second && [ $turns -lt 12 ]; do
        timeout 60 "$ullage" suspend $a && timeout 60 "$ullage" resume $b
        turns=$((turns + 1))
        c=$a a=$b b=$c
        sleep 2
    done
    while alive $first || alive $second; do # the one that waits has room when the other has ended
        sleep 1
        for job in first second; do "$ullage" resume -q $job 2>/dev/null; done
    done
    echo "$turns turns"
    check "the first: the same losses bit for bit" cmp "$out/free.txt" "$out/first.txt"
    check "the second: the same losses bit for bit" cmp "$out/free.txt" "$out/second.txt"
    touch "$state/hog.go"
    wait $hog
fi

torch_job() { # KIND OPTION...
    local kind=$1 code
    shift
    rm -f "$state/torch.end"
    timeout -k 5 90 "$ullage" run -q -m 100GiB "$@" --name "torch-$kind" -- \
        python3 tests/gpu/suspend_torch.py "$kind" "$state/torch.end" >"$out/torch-$kind.txt" 2>&1 &
    local job=$!
    for _ in $(seq 200); do
        [ "$(grep -c ready "$out/torch-$kind.txt")" -ge "$READY" ] && break
        sleep 0.1
    done
    for _ in 1 2; do
        timeout 30 "$ullage" suspend --timeout 20 "torch-$kind"
        timeout 30 "$ullage" resume "torch-$kind"
        sleep 0.2
    done
    touch "$state/torch.end"
    wait $job
    code=$?
    check "$kind ${*:-by the driver}: ends well ($(tail -n 1 "$out/torch-$kind.txt"))" [ $code = 0 ]
}
if part graph "a captured graph in PyTorch"; then
    READY=1 torch_job graph --suspendable
fi
if part ipc "a tensor of two processes"; then
    READY=2 torch_job ipc --suspendable
    # Drivers before 610 would lose it, so it is refused and runs on.
    READY=2 torch_job ipc 2>"$out/ipc-driver.txt"
    cat "$out/ipc-driver.txt"
    major=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
    [ "${major%%.*}" -ge 610 ] ||
        check "ipc by an old driver is refused" grep -q 'drivers before 610' "$out/ipc-driver.txt"
fi

over
