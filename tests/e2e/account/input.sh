#!/bin/bash
# input.sh: what is wrong is found before anything starts, and the message names the value and what was
# expected.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
TRACES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../bench/traces" && pwd)

cards 6GiB,6GiB

# refused CODE PATTERN OPTION...
refused() {
    local code=$1 pattern=$2
    shift 2
    run "$@" -- touch "$T/started"
    is "run $*: exit $code" "$CODE" "$code"
    like "run $*: says what and what was expected" "$ERR" "$pattern"
    check "run $*: nothing started" test ! -e "$T/started"
}

refused 2 "'10XB'.*unit 'XB' unknown.*expected a size" -m 10XB
refused 2 "'-1'.*expected a size" -m -1
refused 2 "'0'.*expected at least one byte" -m 0
refused 2 "'0%'.*expected above 0%" -m 0%
refused 2 "'400%'.*expected above 0% and at most 100%" -m 400%
refused 2 "'4GiB,'|''" -m 0=4GiB,
refused 3 "device 5.*2 GPUs" -m 5=4GiB
refused 3 "-g 9: no such GPU.*GPUs 0 to 1" -g 9
refused 3 "GPU-12345678" -g GPU-12345678-0000-0000-0000-000000000000
refused 2 "'3Q'.*--max-request" --max-request 3Q
refused 2 "'--bogus'" --bogus
refused 2 "--name ''.*expected 1 to" --name ''
ULLAGE_MEMORY=much refused 2 "'much'.*expected a size.*ULLAGE_MEMORY" --name x
mkdir "$T/config/ullage"
echo 'memory: 4GiB' >"$T/config/ullage/ullage.conf"
refused 2 "ullage.conf" --name x
echo 'memroy = 4GiB' >"$T/config/ullage/ullage.conf"
refused 2 "ullage.conf.*memroy" --name x
rm -r "$T/config/ullage"

run -m 1GiB --
is "no command: exit 2" "$CODE" 2
like "no command: says so" "$ERR" "no command: expected"
run -m 1GiB -- "$T/no-such-command"
is "a command that is not there: 127" "$CODE" 127
run -m 1GiB -- "$T"
is "one that cannot be executed: 126" "$CODE" 126
capture "$ULLAGE" frobnicate
is "an unknown verb: exit 2" "$CODE" 2
like "an unknown verb: named" "$ERR" "frobnicate"
capture "$ULLAGE" ps -o xml
is "an unknown format: exit 2" "$CODE" 2
like "an unknown format: named, with what there is" "$ERR" "'xml'.*table.*json.*csv"

# --- no place for the ledger ---
no_ledger() {
    ULLAGE_SHM_DIR=$2 run -m 1GiB -- touch "$T/started"
    is "$1: exit 125" "$CODE" 125
    like "$1: says so" "$ERR" "$2.*the command was not started"
    check "$1: nothing started" test ! -e "$T/started"
}
no_ledger "a missing shared-memory folder" "$T/missing"
no_ledger "one that cannot be written" /proc
mkdir "$T/full" "$T/readonly"
if mount -t tmpfs -o size=16k tmpfs "$T/full" 2>/dev/null; then
    trap 'umount "$T/full" "$T/readonly"; clean_up' EXIT
    no_ledger "a full one" "$T/full"
    mount -t tmpfs -o ro tmpfs "$T/readonly"
    no_ledger "a read-only one" "$T/readonly"
else
    skip "a full and a read-only shared-memory folder" "no permission to mount"
fi

# --- traces ---
trace=$T/trace.csv.gz
# bad NAME PATTERN: the trace $trace is refused
bad() {
    capture "$ULLAGE" replay "$trace"
    is "a trace $1: exit 1" "$CODE" 1
    like "a trace $1: says so" "$ERR" "trace\.csv\.gz.*$2"
    is "a trace $1: nothing played" "$OUT" ""
}
lines() {
    printf '%s\n' 'time_us,action,id,size,stream' "$@" | gzip >"$trace"
}
head -c 20000 "$TRACES/gpt2_b16.csv.gz" >"$trace"
bad "that is cut off" "truncated|cut|end"
echo 'time_us,action,id,size,stream' >"$trace"
bad "that is not gzip" "not gzip|gzip"
: >"$trace"
bad "that is empty" "too short"
rm "$trace"
mkdir "$trace"
bad "that is a folder" "expected a file"
rmdir "$trace"
mkfifo "$trace"
printf 'no gzip' | cat >"$trace" &
bad "that is a pipe" "expected a file"
wait
rm "$trace"
lines 1,a,1,-5,0
bad "with a negative size" "-5"
lines 1,f,77,512,0
bad "that frees what it never had" "77"
lines 1,a,1,abc,0
bad "with a word for a size" "abc"
lines 1,swim,1,512,0
bad "with an unknown action" "swim"
printf 'a,b\n' | gzip >"$trace"
bad "with another header" "header|expected"
capture "$ULLAGE" replay "$T/none.csv.gz"
is "a trace that is not there: exit 1" "$CODE" 1
like "a trace that is not there: named" "$ERR" "none.csv.gz"
done_testing
