# shellcheck shell=bash disable=SC2034 # variables for the tests
#
# lib.sh: what the end-to-end tests share. A test sources it first:
#
#   . "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
#   run -m 50% -- "$GUEST" init alloc 1MiB          # output in $OUT, $ERR; exit code in $CODE
#   is "the guest ends well" "$CODE" 0
#   done_testing
#
# BUILD_DIR names the build tree. Every test has cards, ledgers, configuration and state of its own
# below $T, which go away at its end together with the processes it left in the background.
# Output is TAP: "ok 1 - name", "not ok 2 - name" with "# ..." lines, and the plan at the end.

set -u
: "${BUILD_DIR:?BUILD_DIR must name the build tree}"
BUILD_DIR=$(cd "$BUILD_DIR" && pwd)

export LC_ALL=C
# Sanitizers of a library that is preloaded into shells and Python: not first, and not theirs to judge.
export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:handle_segv=0
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER LD_PRELOAD NO_COLOR
unset OMPI_COMM_WORLD_LOCAL_RANK LOCAL_RANK SLURM_LOCALID HOROVOD_LOCAL_RANK
for name in $(compgen -e); do
    case $name in ULLAGE_*) unset "$name" ;; esac
done

T=$(mktemp -d "${TMPDIR:-/tmp}/ullage-e2e.XXXXXX")
chmod 755 "$T"
mkdir "$T/shm" "$T/config" "$T/state" "$T/cache" "$T/home"
chmod 1777 "$T/shm"
export ULLAGE_SHM_DIR=$T/shm XDG_CONFIG_HOME=$T/config XDG_STATE_HOME=$T/state
export XDG_CACHE_HOME=$T/cache HOME=$T/home

FAKE=$BUILD_DIR/tests/fakecuda
export LD_LIBRARY_PATH=$FAKE
ULLAGE=$BUILD_DIR/ullage
FAKECTL=$FAKE/fakectl
PRELOAD=$BUILD_DIR/libullage-preload.so
NVML=$BUILD_DIR/libullage-nvml.so
SANITIZED=$(objdump -p "$PRELOAD" | grep -oE 'NEEDED +lib(a|t|ub)san' | head -n 1)
GUESTS=$BUILD_DIR/tests/e2e/guests
GUEST=$GUESTS/guest
MIB=1048576
GIB=1073741824

count=0
failed=0
worlds=0
spawned=0
OUT='' ERR='' CODE=0
background=()
exec {NEVER}<> <(:) # nothing is ever to be read there: to wait without a process

# cards "6GiB,16GiB": fresh cards of these sizes, which nothing uses yet.
cards() {
    worlds=$((worlds + 1))
    export ULLAGE_FAKE_GPUS=$1 ULLAGE_FAKE_STATE=$T/cards.$worlds
}

# Also what a killed `ullage run` left behind: its processes know this test's folder.
clean_up() {
    local pid
    for pid in "${background[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    while IFS=/ read -r _ _ pid _; do
        [ "$pid" = $$ ] || kill -KILL "$pid" 2>/dev/null
    done < <(grep -lz "^ULLAGE_SHM_DIR=$T/shm" /proc/[0-9]*/environ 2>/dev/null)
    rm -rf "$T"
}
trap clean_up EXIT
cards 6GiB

# --- verdicts -------------------------------------------------------------------------------------

ok() {
    count=$((count + 1))
    echo "ok $count - $1"
}

# not_ok NAME [LINE...]
not_ok() {
    count=$((count + 1))
    failed=$((failed + 1))
    echo "not ok $count - $1"
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/#   /'
}

skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

# is NAME GOT WANTED
is() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got:    $2" "wanted: $3"; fi
}

isnt() {
    if [ "$2" != "$3" ]; then ok "$1"; else not_ok "$1" "got what was not wanted: $2"; fi
}

# like NAME TEXT PATTERN (an extended regular expression of bash, over the whole text)
like() {
    if [[ $2 =~ $3 ]]; then ok "$1"; else not_ok "$1" "text:    $2" "pattern: $3"; fi
}

unlike() {
    if [[ ! $2 =~ $3 ]]; then ok "$1"; else not_ok "$1" "text:    $2" "must not match: $3"; fi
}

# check NAME COMMAND...: the command must succeed
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "failed: $*" "$said"; fi
}

# between NAME NUMBER LEAST MOST
between() {
    if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then
        ok "$1"
    else
        not_ok "$1" "got $2, wanted $3 to $4"
    fi
}

done_testing() {
    echo "1..$count"
    [ "$failed" -eq 0 ] || echo "# $failed of $count failed"
    exit $((failed > 0))
}

# --- running --------------------------------------------------------------------------------------

# capture COMMAND...: standard output in $OUT, standard error in $ERR, exit code in $CODE. No command
# of a test takes 100 seconds, not on a busy machine; one that does has hung.
capture() {
    CODE=0
    timeout -k 1 100 "$@" >"$T/.out" 2>"$T/.err" || CODE=$?
    OUT=$(<"$T/.out")
    ERR=$(<"$T/.err")
}

# run OPTION... -- COMMAND...: `ullage run`
run() {
    capture "$ULLAGE" run "$@"
}

# spawn COMMAND...: in the background, output to $T/PID.out and $T/PID.err, its pid in $PID
spawn() {
    spawned=$((spawned + 1))
    : >"$T/job.$spawned.out"
    : >"$T/job.$spawned.err"
    "$@" </dev/null >"$T/job.$spawned.out" 2>"$T/job.$spawned.err" &
    PID=$!
    background+=("$PID")
    disown "$PID"
    ln -sf "job.$spawned.out" "$T/$PID.out"
    ln -sf "job.$spawned.err" "$T/$PID.err"
}

# wait_for SECONDS COMMAND...: until the command succeeds; fails when it never does. The seconds are those of a machine
# that has nothing else to do: three times as many are given, and some tries in any case. A command that takes long is
# tried less often, so that half of the time is left to what is waited for.
wait_for() {
    local tries=0 until=$((SECONDS + 3 * $1)) began us
    shift
    began=${EPOCHREALTIME/./}
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$SECONDS" -le "$until" ] || [ "$tries" -lt 20 ] || return 1
        us=$((${EPOCHREALTIME/./} - began))
        us=$((us < 20000 ? 20000 : us > 200000 ? 200000 : us))
        read -rt "0.$(printf %06d "$us")" -u "$NEVER"
        began=${EPOCHREALTIME/./}
    done
}

gone() {
    [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"
}

# --- looking --------------------------------------------------------------------------------------

# json EXPRESSION [FILE]: a Python expression over the document d, from FILE or standard input
json() {
    python3 -c '
import json, sys
d = json.load(open(sys.argv[2]) if len(sys.argv) > 2 else sys.stdin)
v = eval(sys.argv[1])
print(json.dumps(v) if isinstance(v, (dict, list, bool, type(None))) else v)' "$@"
}

# ps EXPRESSION: over what `ullage ps -o json` says; job(NAME) would be
# next(j for j in d["jobs"] if j["name"] == NAME)
ps_json() {
    "$ULLAGE" ps -o json 2>/dev/null | json "$1"
}

job_value() { # NAME KEY
    ps_json "next(j['$2'] for j in d['jobs'] if j['name'] == '$1')"
}

# card EXPRESSION: over `fakectl status`, the witness that knows nothing of ullage
card() {
    "$FAKECTL" status | json "$1"
}

# Of all cards. Without Python, since tests wait for it.
used_by_all() {
    local sum=0 rest
    rest=$("$FAKECTL" status) || return 1
    while [[ $rest =~ \"used\":\ ([0-9]+),\ \"peak_used\"(.*) ]]; do
        sum=$((sum + BASH_REMATCH[1]))
        rest=${BASH_REMATCH[2]}
    done
    echo "$sum"
}
