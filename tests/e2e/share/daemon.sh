#!/usr/bin/env bash
#
# The daemon among others: what it tells systemd, a configuration that is read again, and another daemon beside it.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cards 600MiB
port=$((20000 + $$ % 20000))
chmod a+rx "$T"

# --- as systemd starts it
cat >"$T/listen.py" <<'P'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    text = s.recv(4096).decode().strip()
    with open(sys.argv[2], "a") as out:
        print(text, file=out)
P
spawn env -u LD_LIBRARY_PATH python3 "$T/listen.py" "$T/notify" "$T/told"
wait_for 10 test -S "$T/notify"
printf '%s\n' "listen = 127.0.0.1:$port" "history = none" "watermark = 80%" >"$T/config/ullage/ullage.conf"
# The socket is there before the daemon, and it was another process that listened.
cat >"$T/activate.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
if os.fork() == 0:
    s.listen(8)
    os._exit(0)
os.wait()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
P
spawn env NOTIFY_SOCKET="$T/notify" WATCHDOG_USEC=600000 python3 "$T/activate.py" "$ULLAGE_SOCKET" "$ULLAGED"
DAEMON=$PID
wait_for 10 grep -q "serves [0-9]* cards" "$T/$DAEMON.err"
# shellcheck disable=SC2317 # by wait_for
told() { [ "$(grep -cx "$1" "$T/told")" -ge "$2" ]; }
check "it says that it is ready" wait_for 5 told READY=1 1
check "and that it lives, again and again" wait_for 10 told WATCHDOG=1 4
is "not more often than it should" "$(($(grep -cx WATCHDOG=1 "$T/told") < 40))" 1


# --- asked by that socket
spawn "$ULLAGE" run -q --name asked -m 400MiB -- "$GUEST" init device 0 alloc 100MiB touch "$T/asked" wait "$T/asked.end"
wait_for 10 test -e "$T/asked"
# shellcheck disable=SC2317 # by wait_for
served() { [ "$("$ULLAGE" ps -o json | json "d['jobs'][0]['state']")" = running ] && grep -qx 'STATUS=1 card, 1 job' "$T/told"; }
check "it knows the job" wait_for 10 served
capture "$ULLAGE" suspend asked --timeout 10
is "a job is suspended by it" "$CODE $(job_value asked state)" "0 suspended"
capture "$ULLAGE" resume asked --timeout 10
is "and resumed" "$CODE $(job_value asked state)" "0 running"
ULLAGE_SOCKET=$T/nowhere.sock capture "$ULLAGE" suspend asked --timeout 1
is "one that cannot be asked is no reason to wait for ever" "$CODE $(job_value asked state)" "5 running"
like "it is said which, and what to do" "$ERR" "the daemon that serves the job, process $DAEMON, cannot be asked: no daemon answers at $T/nowhere.sock.*ULLAGE_SOCKET"

# --- somebody tidies up where ledgers lie
"$ULLAGE" suspend -q asked
rm -rf "$T"/shm/*
check "its sign comes back" wait_for 10 test -s "$T/shm/ullaged-$(id -u)"
check "a job that it had moved is still known" wait_for 10 is_state asked suspended
capture "$ULLAGE" resume asked --timeout 10
is "and resumed" "$CODE $(job_value asked state)" "0 running"
touch "$T/asked.end"

# --- the configuration, read again
# shellcheck disable=SC2317 # by wait_for
watermark() {
    env -u LD_LIBRARY_PATH python3 -c "
import sys, urllib.request
text = urllib.request.urlopen('http://127.0.0.1:$port/metrics').read().decode()
print(next(round(float(l.split()[-1]) / $MIB) for l in text.splitlines() if l.startswith('ullage_device_watermark_bytes')))"
}
# shellcheck disable=SC2317
is_watermark() { [ "$(watermark)" = "$1" ]; }
check "the watermark is what was configured" wait_for 5 is_watermark 480
printf '%s\n' "listen = none" "history = none" "watermark = 65%" "host_memory = 1GiB" >"$T/config/ullage/ullage.conf"
kill -HUP "$DAEMON"
check "SIGHUP reads it again" wait_for 10 is_watermark 390
like "and says so" "$(cat "$T/$DAEMON.err")" 'read its configuration again'
like "also what it cannot change" "$(cat "$T/$DAEMON.err")" "listen is '' now: that takes effect when ullaged starts again"
check "systemd hears of both ends" wait_for 5 told READY=1 2
is "in that order" "$(grep -x '\(READY\|RELOADING\)=1' "$T/told" | tr '\n' ' ')" "READY=1 RELOADING=1 READY=1 "
echo "watermark = 20%" >"$T/config/ullage/ullage.conf"
kill -HUP "$DAEMON"
wait_for 10 grep -q "stays as it was" "$T/$DAEMON.err"
like "what is wrong changes nothing" "$(cat "$T/$DAEMON.err")" "watermark is '20%' .*expected 60% to 90%"
is "it goes on as before" "$(watermark)" 390

# --- two of them
# shellcheck disable=SC2119
configure
spawn "$ULLAGED" --socket "$T/second.sock"
second=$PID
check "a second one of the same user says what that means" \
    wait_for 10 grep -q "another ullaged of this user (process $DAEMON) runs beside this one" "$T/$second.err"
rm "$T/second.sock"
check "a socket that was removed comes back" wait_for 10 test -S "$T/second.sock"
# shellcheck disable=SC2016
spawn sh -c 'exec "$@" 2>&-' sh "$ULLAGED" --socket "$T/third.sock"
wait_for 10 test -S "$T/third.sock"
is "with its error output closed its lines go nowhere" "$(readlink "/proc/$PID/fd/2")" /dev/null
kill -KILL "$PID" # or it would be the one that others see, and leave its sign
wait_for 10 gone "$PID"
kill -KILL "$DAEMON"
wait_for 10 gone "$DAEMON"
others=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" != 0 ] || ! "${others[@]}" "$ULLAGED" --version >/dev/null 2>&1; then
    skip "another user's" "needs root, and a build that others may read"
    done_testing
fi
chmod -R a+rX "$T"
mkdir "$T/theirs"
chown 65534:65534 "$T/theirs"
umask 000
mkdir -p "$ULLAGE_FAKE_STATE"
chmod -R a+rwX "$ULLAGE_FAKE_STATE"
spawn "${others[@]}" env "HOME=$T/theirs" "XDG_STATE_HOME=$T/theirs" "$ULLAGED" --socket "$T/theirs/ullaged.sock"
theirs=$PID
check "another user's sees root's" \
    wait_for 10 grep -q "the machine's ullaged (root's, process $second) runs beside this one" "$T/$theirs.err"
check "and root's sees it" \
    wait_for 10 grep -q "an ullaged of user 65534 (process $theirs) runs beside this one" "$T/$second.err"
kill -KILL "$theirs"
check "until it ends" wait_for 10 grep -q "user 65534 (process $theirs) has ended" "$T/$second.err"
kill "$second"
wait_for 10 gone "$second"
is "one that ends leaves no sign" "$(find "$T/shm" -name 'ullaged-0')" ""
done_testing
