#!/usr/bin/env bash
#
# A daemon of root's, and jobs of another user: only as root.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "$(id -u)" != 0 ] || ! setpriv --reuid=65534 --regid=65534 --clear-groups "$ULLAGE" --version >/dev/null 2>&1; then
    skip "all" "needs root, and a build that others may read"
    done_testing
fi
cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
mkdir "$T/theirs"
chown 65534:65534 "$T/theirs"
chmod -R a+rX "$T"
umask 000
mkdir -p "$ULLAGE_FAKE_STATE"
chmod 1777 "$ULLAGE_FAKE_STATE"
theirs=(setpriv --reuid=65534 --regid=65534 --clear-groups
    env "HOME=$T/theirs" "XDG_STATE_HOME=$T/theirs")
configure "slice = 500ms" "max_priority = 5"
start_daemon

spawn "${theirs[@]}" "$ULLAGE" run -q -m 500MiB --name nobodys -- "$GUEST" init device 0 alloc 400MiB touch "$T/theirs/a" hold
nobodys=$PID
wait_for 10 test -e "$T/theirs/a"
is "root's daemon sees another user's job" "$(job_value nobodys state)" running
spawn "$ULLAGE" run -q -m 500MiB --request 300MiB --priority 2 --name roots -- \
    "$GUEST" init device 0 alloc 250MiB touch "$T/b" wait "$T/end"
roots=$PID
check "and moves it to make room" wait_for 15 test -e "$T/b"
is "which its owner sees" "$("${theirs[@]}" "$ULLAGE" ps -o json | json "d['jobs'][0]['state']")" suspended
capture "${theirs[@]}" "$ULLAGE" suspend roots
is "who cannot touch a job of root's" "$CODE" 1
id=$(job_value roots id)
is "nor by the socket" "$("${theirs[@]}" python3 - "$ULLAGE_SOCKET" "$id" <<'P'
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
job = sys.argv[2].encode()
body = bytes([1, 0]) + struct.pack("<H", len(job)) + job
s.sendall(b"UL\x01\x03" + struct.pack("<II", 1, len(body)) + body)
print("rights" if b"you have no rights to the job" in s.recv(4096) else "?")
P
)" rights
touch "$T/end"
wait_for 10 gone "$roots"
check "and comes back" wait_for 15 is_state nobodys running
capture "${theirs[@]}" "$ULLAGE" suspend nobodys
is "its owner suspends it through root's daemon" "$CODE $(job_value nobodys state)" "0 suspended"
capture "$ULLAGE" resume nobodys
is "and root resumes it" "$CODE $(job_value nobodys state)" "0 running"
capture "${theirs[@]}" "$ULLAGE" run -m 100MiB --priority 9 --wait=2 -- true
is "a priority above what is for everybody" "$CODE" 4
like "is refused, saying why" "$ERR" 'priority 9: up to 5 is for everybody here'
kill -KILL "$nobodys"
pkill -KILL -f "$T/theirs/a"
# shellcheck disable=SC2317 # by wait_for
none() { [ "$(used_by_all) $(ps_json "len(d['jobs'])")" = "0 0" ]; }
check "what dies leaves nothing" wait_for 20 none
done_testing
