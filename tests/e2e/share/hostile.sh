#!/usr/bin/env bash
#
# Clients that mean no good, and many jobs at once; the page and the metrics, and who may act by them.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=tests/e2e/share/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
here=$(dirname "${BASH_SOURCE[0]}")

cards 600MiB
export ULLAGE_FAKE_CONTEXT=10MiB
ulimit -n 4096
port=$((20000 + $$ % 20000))
echo "a-secret-token" >"$T/token"
printf '%s\n' "listen = 127.0.0.1:$port" "token_file = $T/token" "history = $T/history.db" >"$T/config/ullage/ullage.conf"
start_daemon
page=http://127.0.0.1:$port

spawn "$ULLAGE" run -q -m 300MiB --request 100MiB --name 'a "job\q' -- "$GUEST" init device 0 alloc 100MiB touch "$T/a" hold
wait_for 10 test -e "$T/a"
id=$(ps_json "d['jobs'][0]['id']")

# --- hostile
is "10,000 malformed messages, one that does not read, too many connections" \
    "$(python3 "$here/hostile.py" "$ULLAGE_SOCKET" 2>&1 | tr '\n' ' ')" "malformed alive slow alive many alive "
is "the job is served all the time" "$(job_value 'a "job\\q' state)" running

# --- the page
get() { curl -s -o "$T/body" -w '%{http_code}' "$@"; }
# shellcheck disable=SC2317 # by wait_for
shows() { curl -s "$page/metrics" >"$T/metrics" && grep -q "ullage_job_state{job=\"$id\",state=\"running\"} 1" "$T/metrics"; }
check "the metrics show the job" wait_for 10 shows
spawn "$ULLAGE" run -q -m 10MiB --name $'\xff\xe2\x82\xac\xc3 x' -- sleep 100
odd=$PID
# shellcheck disable=SC2317 # by wait_for
odd_shows() { shows && grep -q $'name="\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd x"' "$T/metrics"; }
check "a name that is no text is made one" wait_for 10 odd_shows
check "they are as the format says" python3 "$here/web.py" check "$T/metrics"
check "the dashboard asks for what there is" python3 "$here/web.py" dashboard "$here/../../../examples/grafana/ullage.json" "$T/metrics"
kill "$odd"
wait_for 10 gone "$odd"
is "the page is there" "$(get "$page/") $(grep -c '<title>ullage' "$T/body")" "200 1"
is "the state in JSON" "$(get "$page/api/state") $(json "d['jobs'][0]['name']" "$T/body")" '200 a "job\q'
is "nobody acts without the token" "$(get -X POST "$page/api/suspend?job=$id")" 401
is "nor with another" "$(get -X POST -H 'Authorization: Bearer a-secret-tokex' "$page/api/suspend?job=$id")" 401
is "nor by GET" "$(get -H 'Authorization: Bearer a-secret-token' "$page/api/suspend?job=$id")" 405
is "nor under another name of this host" "$(get -H 'Host: example.org' "$page/metrics")" 421
is "with it a job is suspended" "$(get -X POST -H 'Authorization: Bearer a-secret-token' "$page/api/suspend?job=$id")" 202
check "and then it is" wait_for 10 is_state 'a "job\\q' suspended
is "an unknown job" "$(get -X POST -H 'Authorization: Bearer a-secret-token' "$page/api/resume?job=none")" 404
is "it is resumed" "$(get -X POST -H 'Authorization: Bearer a-secret-token' "$page/api/resume?job=$id")" 202
check "and then it is" wait_for 10 is_state 'a "job\\q' running
# shellcheck disable=SC2317 # by wait_for
past() { [ "$(get "$page/api/history?seconds=600") $(json "len(d) > 0" "$T/body")" = "200 true" ]; }
check "the past is kept" wait_for 15 past
pkill -KILL -f "$T/a"
# shellcheck disable=SC2317 # by wait_for
ended() { [ "$(curl -s "$page/metrics" | grep -c "job=\"$id\"")" = 0 ]; }
check "a job that is gone has no metrics" wait_for 10 ended

# --- others may reach it: the token is needed for all
printf '%s\n' "listen = 0.0.0.0:$port" "history = none" >"$T/config/ullage/ullage.conf"
kill "$DAEMON"
wait_for 10 gone "$DAEMON"
capture "$ULLAGED"
is "an address that others can reach needs a token" "$CODE" 1
like "and it says so" "$ERR" 'which others can reach: set token_file'
printf '%s\n' "listen = 0.0.0.0:$port" "history = none" "token_file = $T/token" >"$T/config/ullage/ullage.conf"
start_daemon
is "then metrics need it" "$(get "$page/metrics") $(get -H 'Authorization: Bearer a-secret-token' "$page/metrics")" "401 200"

# --- 128 jobs
jobs=()
for i in $(seq 128); do
    spawn "$ULLAGE" run -q -m 600MiB --wait --name "j$i" -- sh -c "echo $i >>$T/ran"
    jobs+=("$PID")
done
# shellcheck disable=SC2317 # by wait_for
ran() { [ "$(sort -u "$T/ran" | wc -l)" = 128 ]; }
check "128 jobs that each want the whole card all run" wait_for 60 ran
done_testing
