# shellcheck shell=bash
#
# lib.sh: what the tests of the daemon share; source it after tests/e2e/lib.sh.

ULLAGED=$BUILD_DIR/ullaged
export ULLAGE_SOCKET=$T/ullaged.sock
export ULLAGE_FAKE_CONTEXT=100MiB
mkdir -p "$T/config/ullage"

# configure LINE...: the configuration file of the daemon and of everything else in this test
configure() {
    printf '%s\n' "listen = none" "history = none" "$@" >"$T/config/ullage/ullage.conf"
}
configure


# start_daemon: its pid in $DAEMON
start_daemon() {
    spawn "$ULLAGED"
    DAEMON=$PID
    wait_for 10 grep -q "serves [0-9]* cards" "$T/$DAEMON.err"
}

# is_state NAME STATE
is_state() { [ "$(job_value "$1" state)" = "$2" ]; }
