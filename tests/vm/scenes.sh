#!/usr/bin/env bash
#
# What run.sh runs in its virtual machine, as root, once that has booted: prints TAP. The daemon was enabled before.
set -u
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
export ULLAGE_FAKE_GPUS=100MiB ULLAGE_FAKE_STATE=/run/cards ULLAGE_FAKE_CONTEXT=4MiB
W=/run/scenes
mkdir -m 1777 "$W"
cd "$W" || exit 1
count=0

# is NAME GOT WANTED
is() {
    count=$((count + 1))
    if [ "$2" = "$3" ]; then echo "ok $count - $1"; else printf 'not ok %d - %s\n#   got:    %s\n#   wanted: %s\n' "$count" "$1" "$2" "$3"; fi
}
# check NAME COMMAND...: it must succeed
check() {
    local name=$1 said code=0
    shift
    said=$("$@" 2>&1) || code=$?
    is "$name" "$code${said:+ }$([ $code = 0 ] || echo "$said")" "0${said:+ }"
}
# wait_for SECONDS COMMAND...
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -le "$until" ] || return 1
        sleep 0.2
    done
}
as() { # USER COMMAND...
    local user=$1
    shift
    runuser -u "$user" -- env "HOME=/home/$user" "$@"
}
jobs() { # KEY: its values, a line each; the keys of a job are in order
    ullage ps -o json 2>/dev/null | awk -F'"' -v key="$1" '$2 == key { print $4 }'
}
state_of() { # NAME
    ullage ps -o json 2>/dev/null | awk -F'"' -v name="$1" '$2 == "name" { at = $4 } $2 == "state" && at == name { print $4 }'
}
is_state() { [ "$(state_of "$1")" = "$2" ]; }
# start USER NAME OPTION... -- WORD...: a job of the guest's that goes on until $W/NAME.end is there
start() {
    local user=$1 name=$2 options=()
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    as "$user" ullage run -q --name "$name" "${options[@]}" -- /opt/guest init device 0 "$@" \
        touch "$W/$name.there" wait "$W/$name.end" info touch "$W/$name.done" </dev/null >"$W/$name.log" 2>&1 &
}
end() { # NAME...
    local name
    for name; do touch "$W/$name.end"; done
    for name; do wait_for 60 test -e "$W/$name.done"; done
}
show() { systemctl show -P "$1" ullaged.service; }
active() { systemctl is-active --quiet ullaged.service; }
pid_other_than() { [ "$(show MainPID)" != "$1" ] && [ "$(show MainPID)" != 0 ] && active; }
said() { journalctl -u ullaged.service -o cat --no-pager | grep -q "$1"; }
metric() { curl -s http://127.0.0.1:9836/metrics | grep "^$1" | awk '{ print $NF; exit }'; }
metric_is() { [ "$(metric "$1")" = "$2" ]; }

# --- after the boot
check "it was started at the boot" wait_for 60 active
is "as something that says when it is ready" "$(show Type) $(show StatusText)" "notify 1 card, 0 jobs"
is "nothing else failed" "$(systemctl --failed --no-legend | grep ullage)" ""
is "the socket is root's, and for everybody" "$(stat -c '%U %a' /run/ullage /run/ullage/ullaged.sock | tr '\n' ' ')" "root 755 root 666 "
is "its state is root's" "$(stat -c '%U %a' /var/lib/ullage)" "root 755"
check "with a history" wait_for 20 test -s /var/lib/ullage/history.db
check "the log is in the journal" said 'serves 1 cards at /run/ullage/ullaged.sock'
is "without a prefix of its own" "$(journalctl -u ullaged.service -o cat --no-pager _COMM=ullaged | grep -c 'ullaged: ')" 0
check "metrics are there" wait_for 10 metric_is 'ullage_device_memory_bytes.*state="used"' 0

# --- two people
start ada adas -m 80MiB -- alloc 60MiB
check "a user's job runs" wait_for 60 test -e "$W/adas.there"
check "root's daemon sees it" wait_for 20 metric_is 'ullage_job_state.*state="running"' 1
is "another user does not" "$(as bob ullage ps -o json 2>/dev/null | grep -c '"id"')" 0
id=$(jobs id)
is "and may not touch it" "$(as bob ullage suspend "$id" >"$W/out" 2>&1; echo $?)" 1
start bob bobs -m 80MiB --request 60MiB --priority 2 -- alloc 40MiB
check "who was promised memory gets it" wait_for 60 test -e "$W/bobs.there"
is "as the other was moved, by its owner's right" "$(state_of adas)" suspended
is "the status says how many there are" "$(show StatusText)" "1 card, 2 jobs"

# --- restarted under load
before=$(show MainPID)
check "restarted while jobs run" systemctl restart ullaged.service
check "it is another one" pid_other_than "$before"
sleep 2
is "who waits in host memory stays there" "$(state_of adas) $(state_of bobs)" "suspended running"
end bobs
check "and comes back when there is room" wait_for 60 is_state adas running
is "its owner suspends it" "$(as ada ullage suspend adas >"$W/out" 2>&1; echo $?) $(state_of adas)" "0 suspended"
sed 's/^/# /' "$W/out"
before=$(show MainPID)
kill -KILL "$before"
check "killed, it is started again" wait_for 30 pid_other_than "$before"
sleep 2
is "what a person suspended stays so" "$(state_of adas)" suspended
is "until they resume it" "$(as ada ullage resume adas >"$W/out" 2>&1; echo $?)" 0
check "through the new one" wait_for 30 is_state adas running

# --- reload
mkdir -p /etc/ullage
echo 'watermark = 80%' >/etc/ullage/ullage.conf
check "reloaded" systemctl reload ullaged.service
check "it goes by the new configuration" wait_for 20 metric_is ullage_device_watermark_bytes 83886080
echo 'watermark = 8%' >/etc/ullage/ullage.conf
systemctl reload ullaged.service
check "one that is wrong is refused in the log" wait_for 20 said "watermark is '8%'"
is "and changes nothing" "$(active && metric ullage_device_watermark_bytes)" 83886080
echo 'listen = 127.0.0.1:9836' >/etc/ullage/ullage.conf

# --- the watchdog
mkdir -p /etc/systemd/system/ullaged.service.d
printf '[Service]\nWatchdogSec=4\n' >/etc/systemd/system/ullaged.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart ullaged.service
sleep 10
before=$(show MainPID)
restarts=$(show NRestarts)
is "one that lives is left alone by the watchdog" "$restarts $(active && echo active)" "0 active"
kill -STOP "$before"
check "one that hangs is started again" wait_for 60 pid_other_than "$before"
is "by the watchdog" "$(show NRestarts) $(journalctl -u ullaged.service --no-pager | grep -c 'Watchdog timeout')" "1 1"
check "and finds the job" wait_for 20 metric_is 'ullage_job_state.*state="running"' 1
rm /etc/systemd/system/ullaged.service.d/watchdog.conf
systemctl daemon-reload

# --- stopped
check "stopped while a job runs" systemctl stop ullaged.service
is "the socket goes on listening, so the next who asks starts it" \
    "$(as ada ullage run -q --wait=20 -m 10MiB -- /opt/guest init >"$W/out" 2>&1; echo $?) $(active && echo active)" "0 active"
check "stopped, with its socket" systemctl stop ullaged.socket ullaged.service
is "nothing of it is left to run" "$(pgrep -x ullaged)" ""
is "no socket either" "$(ls /run/ullage)" ""
is "what needs it says so" "$(as ada ullage run -q --wait=5 -m 10MiB -- /opt/guest init >"$W/out" 2>&1; echo $?)" 5
is "what does not goes on without" "$(as ada ullage suspend adas >"$W/out" 2>&1; echo $?) $(state_of adas)" "0 suspended"
check "one that is started finds that" systemctl start ullaged.service
sleep 2
is "and leaves it" "$(state_of adas)" suspended
is "until it is resumed" "$(as ada ullage resume adas >"$W/out" 2>&1; echo $?)" 0
end adas
check "the job ends well through all of this" grep -q '^info .* 0$' "$W/adas.log"
sed 's/^/# /' "$W/adas.log"
check "nothing is left on the card" wait_for 20 metric_is 'ullage_device_memory_bytes.*state="used"' 0

# --- a user who logs out: logind removes what is theirs in /dev/shm (RemoveIPC)
systemd-run -q --uid=ada --setenv=HOME=/home/ada --setenv=ULLAGE_FAKE_GPUS --setenv=ULLAGE_FAKE_STATE --setenv=ULLAGE_FAKE_CONTEXT \
    /usr/local/bin/ullage run -q --name batch -m 80MiB -- /opt/guest init device 0 alloc 20MiB \
    touch "$W/batch.there" wait "$W/batch.end" info touch "$W/batch.done"
check "a job that is in no session of its user's" wait_for 60 test -e "$W/batch.there"
su - ada -c true
sleep 20
is "is still known when they have logged out" "$(state_of batch)" running
end batch

# --- one user's own
systemctl stop ullaged.socket ullaged.service
loginctl enable-linger ada
wait_for 30 test -S /run/user/1001/bus
own() { as ada XDG_RUNTIME_DIR=/run/user/1001 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1001/bus "$@"; }
check "a user's own daemon" own systemctl --user enable --now ullaged.service
check "is where they alone can ask it" test -S /run/user/1001/ullage/ullaged.sock
is "and answers" "$(own ullage run -q --wait=20 -m 10MiB -- /opt/guest init >"$W/out" 2>&1; echo $?)" 0
check "it reloads" own systemctl --user reload ullaged.service
check "and stops" own systemctl --user stop ullaged.service

# --- removed
systemctl -q disable ullaged.service ullaged.socket
xargs rm -f </opt/manifest
systemctl daemon-reload
is "what was installed can be removed" "$(systemctl list-unit-files --no-legend 'ullaged*')" ""
is "to the last file" "$(find /usr/local -name '*ullage*' ! -type d)" ""
check "what it wrote and what was configured stays" test -s /var/lib/ullage/history.db -a -s /etc/ullage/ullage.conf
echo "1..$count"
