#!/usr/bin/env bash
#
# What a program keeps as its own although a library was put into it, and what `ullage run` passes on.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

hygiene=$GUESTS/hygiene

# --- signals, umask, locale, environment, descriptors, threads ------------------------------------------

# Of the environment only what `ullage run` sets on purpose may differ, of descriptors only more of
# ours, and of threads the parked one after cuInit.
comparable() {
    sed -E -e '/ env (LD_PRELOAD|ULLAGE_[A-Z]*|_|TIMEOUT)=/d' -e '/ fd\.[0-9]+ .*(\.out|\.err)$/d' \
        -e '/ fd\.[0-9]+ /d' -e '/ threads /d' -e '/ thread takes nothing/d' \
        -e '/^init errno/d' "$1"
}

echo 'some input' >"$T/input"
umask 0027
timeout 20 "$hygiene" <"$T/input" >"$T/bare" 2>"$T/bare.err"
is 'the bare program runs' "$?" 0
timeout 20 "$ULLAGE" run -q -m 1GiB -- "$hygiene" <"$T/input" >"$T/held" 2>"$T/held.err"
is 'the held program runs' "$?" 0
is 'signals, masks, umask, locale, folder, environment, input and errno are as without us' \
    "$(diff <(comparable "$T/bare") <(comparable "$T/held"))" ''
is 'nothing is said' "$(<"$T/held.err")" ''
check 'the comparison sees signals and errno' grep -q '^alloc disposition.10 ours' "$T/held"
check 'and refusals' grep -q '^refused 2 errno' "$T/held"

is 'no thread before cuInit' "$(grep -E '^(start|opened) threads' "$T/held")" \
    $'start threads 1\nopened threads 1'
is 'and no descriptor' "$(grep -E '^(start|opened) fd' "$T/held" | cut -d' ' -f1,2)" \
    "$(grep -E '^(start|opened) fd' "$T/bare" | cut -d' ' -f1,2)"
bare_threads=$(sed -n 's/^init threads //p' "$T/bare")
is 'one thread more after it' "$(sed -n 's/^init threads //p' "$T/held")" "$((bare_threads + 1))"
is 'no thread of ours takes signals' "$(grep ' thread takes' "$T/held" | grep -v nothing)" ''
for moment in init alloc; do
    added=$(comm -13 <(sed -n "s/^$moment fd\.[0-9]* //p" "$T/bare" | sort) \
        <(sed -n "s/^$moment fd\.[0-9]* //p" "$T/held" | sort) | grep -v -e "$T/held" -e "$T/input")
    is "after $moment no descriptor of ours stays open across exec" "$(grep -v ' cloexec$' <<<"$added")" ''
    is "after $moment none of ours is below 3" \
        "$(sed -n "s/^$moment fd\.[012] //p" "$T/held" | grep -v -e "$T/" -e '^/dev/')" ''
done
umask 0022

# With descriptors 0 to 2 closed, whatever is opened lands there: it must not stay.
"$ULLAGE" run -q -m 1GiB -- sh -c 'exec "$@" <&- 2>&-' sh "$hygiene" >"$T/held" 2>/dev/null
is 'with its input and error output closed the program runs' "$?" 0
timeout 20 sh -c 'exec "$@" <&- 2>&-' sh "$hygiene" >"$T/bare" 2>/dev/null
is 'and we leave nothing in their places' \
    "$(sed -n 's/^alloc \(fd\.[02] .*\)/\1/p' "$T/held" | sed 's/data\.[0-9.]*/data/')" \
    "$(sed -n 's/^alloc \(fd\.[02] .*\)/\1/p' "$T/bare" | sed 's/data\.[0-9.]*/data/')"

# Nor into that of `ullage run`, which keeps the ledger open and has something to say.
# shellcheck disable=SC2016
timeout 20 "$ULLAGE" run -m 1GiB -- sh -c 'ln "$ULLAGE_JOB" "$1" && ! (echo >&2)' sh "$T/kept" 2>&-
is 'with its error output closed it runs a command, for which it is closed too' "$?" 0
is 'and its own lines do not go into the ledger' "$(head -c 8 "$T/kept" | tail -c 7)" lgegull

# --- what programs do to descriptors and signals -----------------------------------------------------------

run -q -m 1GiB -- "$GUEST" ctx alloc 100MiB closeall alloc 100MiB free alloc 2GiB fill 64MiB
like 'a program that closes all descriptors stays held' "$CODE: $OUT" \
    $'^0: .*alloc 0\nalloc 0\nfree 0\nalloc 2\nfill [0-9]+ 2$'
run -m 1GiB -- "$GUEST" closeerr ctx alloc 2GiB alloc 1MiB
like 'one without standard error too' "$CODE: $OUT" $'^0: .*alloc 2\nalloc 0$'
# shellcheck disable=SC2016
run -m 1GiB -- sh -c '"$@" 2>&1 >"$0" | true; sleep 0.2; cat "$0"' "$T/piped" "$GUEST" \
    ctx sleep 100 alloc 2GiB alloc 1MiB
like 'a refusal into a pipe that nobody reads ends nobody' "$OUT" $'alloc 2\nalloc 0$'

# --- exit codes and signals -----------------------------------------------------------------------------------

run -q -m 1GiB -- "$GUEST" ctx exit 0
is 'exit code 0' "$CODE" 0
run -q -m 1GiB -- "$GUEST" ctx exit 3
is 'exit code 3' "$CODE" 3
run -q -m 1GiB -- "$GUEST" ctx kill
is 'killed by signal 9' "$CODE" 137
run -q -m 1GiB -- sh -c 'kill -TERM $$'
is 'killed by signal 15' "$CODE" 143
run -q -m 1GiB -- sh -c 'kill -SEGV $$'
is 'killed by signal 11' "$CODE" 139
echo text >"$T/not-executable"
run -q -m 1GiB -- "$T/not-executable"
is 'cannot be executed' "$CODE" 126
run -q -m 1GiB -- "$T"
is 'a folder cannot be executed' "$CODE" 126
run -q -m 1GiB -- /nowhere/command
is 'not found' "$CODE" 127
run -q -m 1GiB -- no-such-command-anywhere
is 'not found on the path' "$CODE" 127

# A shell without job control starts its background with SIGINT and SIGQUIT ignored, for good.
cat >"$T/with-defaults.py" <<'END'
import os, signal, sys
for number in signal.SIGINT, signal.SIGQUIT:
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
END
for signal in INT TERM HUP USR1 QUIT; do
    spawn python3 "$T/with-defaults.py" "$ULLAGE" run -q -m 1GiB -- bash -c \
        "trap 'echo got $signal; exit 7' $signal
        touch '$T/ready.$signal'; while :; do sleep 0.01; done"
    wait_for 10 test -e "$T/ready.$signal"
    kill "-$signal" "$PID"
    wait_for 10 gone "$PID"
    is "SIG$signal is passed on" "$(<"$T/$PID.out")" "got $signal"
done

# A terminal sends its signals to the whole group, and a stopped job stops as a whole.
cat >"$T/terminal.py" <<'END'
import os, pty, select, signal, sys, time
def until(fd, text):
    seen = b""
    end = time.time() + 10
    while text not in seen and time.time() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break
    return seen
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
until(fd, b"ready")
os.write(fd, b"\x1a")
end = time.time() + 10
while os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0] == 0 and time.time() < end:
    time.sleep(0.01)
print("stopped" if time.time() < end else "not stopped")
os.killpg(pid, signal.SIGCONT)
time.sleep(0.1)
os.write(fd, b"\x03")
text = until(fd, b"interrupted\r\n")
_, status = os.waitpid(pid, 0)
print(text.count(b"interrupted"), os.waitstatus_to_exitcode(status))
END
# The leader of a session cannot be stopped by its terminal, so a shell comes between.
cat >"$T/interactive" <<'END'
set -m
"$@"
code=$?
[ "$code" -gt 128 ] && { kill -STOP $$; fg >/dev/null; code=$?; }
exit "$code"
END
capture python3 "$T/terminal.py" /bin/bash "$T/interactive" "$ULLAGE" run -q -m 1GiB -- bash -c \
    'trap "echo interrupted; exit 9" INT; echo ready; while :; do sleep 0.05; done'
is 'Ctrl-Z stops and Ctrl-C interrupts, once' "$OUT" $'stopped\n1 9'

# --- output of ullage itself ---------------------------------------------------------------------------------

run -q -m 1GiB -- "$GUEST" ctx alloc 2GiB
is 'nothing but the command writes to standard output' "$OUT" $'init 0\ndevice 0 0\nalloc 2'
is 'and with -q nothing to standard error' "$ERR" ''
run -m 1GiB -- "$GUEST" ctx
is 'without -q neither' "$OUT" $'init 0\ndevice 0 0'
"$ULLAGE" run -m 1GiB -- sh -c 'exit 5' >&- 2>"$T/err"
is 'standard output closed' "$?" 5
"$ULLAGE" run -m 1GiB -- sh -c 'exit 5' >/dev/null 2>&-
is 'standard error closed' "$?" 5
"$ULLAGE" run -m 1GiB -- sh -c 'exit 5' >/dev/full 2>/dev/full
is 'a full disk behind both' "$?" 5
{
    "$ULLAGE" run -m 1GiB -- sh -c 'sleep 0.2; exit 6' 2>&1
    echo "$?" >"$T/code"
} | true
is 'a pipe that nobody reads' "$(<"$T/code")" 6
is 'input goes through to the command' "$(echo hello | "$ULLAGE" run -q -m 1GiB -- cat)" hello
is 'a descriptor of the user goes through' \
    "$("$ULLAGE" run -q -m 1GiB -- sh -c 'cat <&7' 7<<<seven)" seven
is 'arguments go through as they are' \
    "$("$ULLAGE" run -q -m 1GiB -- printf '<%s>' 'a b' '' '*' -- --report)" '<a b><><*><--><--report>'

# --- old C libraries -----------------------------------------------------------------------------------------

for library in "$PRELOAD" "$NVML"; do
    newest=$(objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    needs=$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -1)
    [ -n "$SANITIZED" ] || # whose runtime does
        is "$(basename "$library") needs nothing newer than glibc 2.17" "$needs" GLIBC_2.17
    like "$(basename "$library") needs something of it" "$newest" '^GLIBC_2'
    unlike "$(basename "$library") exports no other names" \
        "$(nm -D --defined-only "$library" | awk '{print $3}' | grep -vE '^(cu|nvml)|^dlm?open$')" .
done

done_testing
