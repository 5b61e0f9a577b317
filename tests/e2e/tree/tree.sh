#!/usr/bin/env bash
#
# One budget for a process and all that it starts, however it starts it.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB T FAKECTL
# Two contexts of 100 MiB and 600 MiB leave less than 400 MiB of 1 GiB, and more than 100 MiB.
run -q -m 1GiB -- "$GUEST" ctx # learns what a context takes here

# shared NAME HOW: the parent holds 600 MiB, and the child made in that way gets no 400 MiB, but 100 MiB
shared() {
    local got
    run -q -m 1GiB -- "$GUEST" label parent ctx alloc 600MiB "$2" label child ctx alloc 400MiB alloc 100MiB \
        end alloc 400MiB alloc 100MiB
    got=$(grep alloc <<<"$OUT")
    is "$1" "$CODE: $got" \
        $'0: parent: alloc 0\nchild: alloc 2\nchild: alloc 0\nparent: alloc 2\nparent: alloc 0'
}

# Without a job both get it: the test above can fail.
capture "$GUEST" ctx alloc 600MiB spawn ctx alloc 400MiB end
is 'without a job the child gets what it wants' "$(grep alloc <<<"$OUT")" $'alloc 0\nalloc 0'

shared 'posix_spawn' spawn
shared 'vfork and exec' vfork

# The driver cannot be used in a child forked after cuInit, so here another process holds the 600 MiB
# and the parent has not started CUDA.
cat >"$T/beside" <<'END'
"$0" label other ctx alloc 600MiB touch "$T/go" wait "$T/done" &
"$@"
touch "$T/done"
wait
END
words=(label child wait "$T/go" ctx alloc 400MiB alloc 100MiB)
beside() {
    local name=$1
    shift
    rm -f "$T/go" "$T/done"
    run -q -m 1GiB -- sh -c "$(<"$T/beside")" "$GUEST" "$@"
    is "$name" "$CODE: $(grep alloc <<<"$OUT")" $'0: other: alloc 0\nchild: alloc 2\nchild: alloc 0'
}
beside 'a sibling' "$GUEST" "${words[@]}"
beside 'fork before cuInit' "$GUEST" fork "${words[@]}" end
beside 'fork by the bare system call' "$GUEST" raw "${words[@]}" end
beside 'double fork' "$GUEST" double "${words[@]}" end
beside 'a daemon: fork, setsid, fork, exec' "$GUEST" fork setsid double exec "${words[@]}" end end
beside 'setsid' setsid -w "$GUEST" "${words[@]}"
beside 'exec' "$GUEST" exec "${words[@]}"
beside 'a shell in a shell' sh -c 'sh -c "\"\$@\"; true" sh "$@"; true' sh "$GUEST" "${words[@]}"
beside 'nohup' nohup "$GUEST" "${words[@]}"
beside 'xargs' sh -c 'shift 0; printf "%s\n" "$@" | xargs '"$GUEST" sh "${words[@]}"
beside 'python subprocess' python3 -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' \
    "$GUEST" "${words[@]}"

# --- Python's multiprocessing ---------------------------------------------------------------------------

cat >"$T/family.py" <<'END'
import ctypes, multiprocessing, sys
def start():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda
def take(who, cuda, mib):
    print(who, cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib << 20)), flush=True)
def child(go):
    go.wait()
    cuda = start()
    take("child", cuda, 400)
    take("child", cuda, 100)
if __name__ == "__main__":
    way = multiprocessing.get_context(sys.argv[1])
    go = way.Event()
    process = way.Process(target=child, args=(go,))
    process.start() # with "fork": before this process starts CUDA
    cuda = start()
    take("parent", cuda, 600)
    go.set()
    process.join()
    sys.exit(process.exitcode)
END
for way in spawn fork forkserver; do
    run -q -m 1GiB -- python3 "$T/family.py" "$way"
    is "python multiprocessing, $way" "$CODE: $OUT" $'0: parent 0\nchild 2\nchild 0'
done

# --- children that the driver refuses, and programs that replace themselves --------------------------------

# A child of an initialized parent gets "not initialized" from the driver, and nothing of its parent's
# account changes by whatever it does or however it ends.
for how in fork raw; do
    run -q -m 1GiB -- "$GUEST" ctx alloc 600MiB "$how" label child init device 0 alloc 100MiB free kill end \
        alloc 400MiB free alloc 400MiB alloc 100MiB
    is "$how after cuInit: the child gets nothing, and takes nothing from its parent" "$CODE: $OUT" \
        "0: init 0
device 0 0
alloc 0
child: init 3
child: device 0 3
child: alloc 3
child: free 3
$how ended 137
alloc 2
free 0
alloc 0
alloc 0"
done

# When the driver failed in the parent, it may work in the child: which is then a member by itself.
for how in fork raw; do
    [ -z "$SANITIZED" ] || continue # their locks are as some thread of the parent left them
    rm -f "$T/there" "$T/child.end"
    spawn env ULLAGE_FAKE_FAIL=cuInit:1=999 "$ULLAGE" run -q -m 1GiB --name "$how" -- \
        "$GUEST" init "$how" ctx alloc 600MiB alloc 600MiB pid touch "$T/there" wait "$T/child.end" end
    wait_for 10 test -e "$T/there"
    holders=$(ps_json "[p['pid'] for j in d['jobs'] if j['name'] == '$how'
        for p in j['processes'] if p['held_bytes'] > 600 << 20]")
    is "$how after a cuInit that failed: the child has a place of its own" \
        "$(grep -E '^(init|alloc)' "$T/$PID.out" | xargs) $holders" \
        "init 999 init 0 alloc 0 alloc 2 [$(sed -n 's/^pid //p' "$T/$PID.out")]"
    touch "$T/child.end"
    wait_for 10 gone "$PID"
done

run -q -m 1GiB -- "$GUEST" ctx alloc 800MiB exec sleep 600 ctx alloc 800MiB alloc 150MiB
is 'exec in an initialized process gives back what it held' "$(grep alloc <<<"$OUT")" \
    $'alloc 0\nalloc 0\nalloc 2'
run -q -m 1GiB -- "$GUEST" fork ctx alloc 800MiB kill end sleep 600 ctx alloc 800MiB
is 'so does a kill' "$(grep alloc <<<"$OUT")" $'alloc 0\nalloc 0'
run -q -m 1GiB -- "$GUEST" fork ctx alloc 800MiB quit end sleep 600 ctx alloc 800MiB
is 'and an end without exit handlers' "$(grep alloc <<<"$OUT")" $'alloc 0\nalloc 0'

# --- other users ---------------------------------------------------------------------------------------------

if [ "$(id -u)" != 0 ]; then
    skip 'children that drop their privileges' 'needs root'
elif ! setpriv --reuid=65534 --regid=65534 --clear-groups test -r "$PRELOAD"; then
    skip 'children that drop their privileges' "nobody cannot read $PRELOAD"
else
    beside 'setpriv to nobody' setpriv --reuid=65534 --regid=65534 --clear-groups "$GUEST" "${words[@]}"
    beside 'a program that gives up root by itself' "$GUEST" fork uid 65534 "${words[@]}" end
    beside 'su to nobody' su -s /bin/sh -m nobody -c "$(printf '%q ' "$GUEST" "${words[@]}")"
fi

# --- many at once -----------------------------------------------------------------------------------------------

# 64 processes with a context each take pieces of 16 MiB until every one was refused.
cat >"$T/many" <<'END'
i=0
while [ $i -lt 64 ]; do
    "$0" ctx wait "$T/start" fill 16MiB wait "$T/end" &
    i=$((i + 1))
done
until [ "$(grep -c '^device 0 0' "$T/many.out")" = 64 ]; do sleep 0.02; done
touch "$T/start"
until [ "$(grep -c '^fill' "$T/many.out")" = 64 ]; do sleep 0.02; done
"$FAKECTL" status >"$T/status"
touch "$T/end"
wait
END
export ULLAGE_FAKE_CONTEXT=10MiB ULLAGE_FAKE_TAG=many
cards 8GiB
timeout 60 "$ULLAGE" run -q -m 3GiB --report "$T/report" -- sh -c "$(<"$T/many")" "$GUEST" \
    >"$T/many.out" 2>&1
is '64 processes at once end well' "$?" 0
is 'each was refused in the end' "$(grep -c '^fill [0-9]* 2$' "$T/many.out")" 64
taken=$(json 'sum(p["used"] + p["hidden"] for p in d["cards"][0]["processes"])' "$T/status")
between 'together they took the budget, says the card' "$taken" $((3 * GIB - 16 * MIB)) $((3 * GIB))
peak=$(card 'd["cards"][0]["tags"]["many"]["peak_used"]')
between 'and at no instant more' "$peak" $((3 * GIB - 16 * MIB)) $((3 * GIB))
is 'our account says the same' \
    "$(json 'd["jobs"][0]["devices"][0]["peak_bytes"] <= 3 << 30' "$T/report")" true

done_testing
