#!/usr/bin/env bash
#
# However `ullage top` ends or stops, the terminal is as it was; and a driver that hangs hangs nothing else.
#
# shellcheck disable=SC2119 # top without options is no mistake
# shellcheck source=tests/e2e/top/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

terminal 80 24
before=$(answer 'stty -g')
keys -l 'clear; echo here I was'
keys Enter
shows 'a shell' '^here I was'

# restored NAME CODE: the old screen, cursor and modes are back, and the shell saw this exit code
restored() {
    shows "$1: the old screen is back" '^here I was'
    is "$1: exit code" "$(answer "echo $2")" "$3"
    is "$1: modes of the terminal" "$(answer 'stty -g')" "$before"
    is "$1: the cursor" "$(t display-message -p '#{cursor_flag} #{alternate_on}')" '1 0'
    keys -l 'clear; echo here I was'
    keys Enter
    shows "$1: the shell goes on" '^here I was'
}

top
shows 'it runs' '^ullage top'
is 'in a screen of its own' "$(t display-message -p '#{cursor_flag} #{alternate_on}')" '0 1'
keys q
# shellcheck disable=SC2016 # for the shell of the pane
code='$code'
keys -l 'code=$?'
keys Enter
restored 'q' "$code" 0

for signal in TERM:143 HUP:129 INT:130 QUIT:131; do
    top
    shows "SIG${signal%:*}: it runs" '^ullage top'
    kill -"${signal%:*}" "$TOP"
    check "SIG${signal%:*}: it ends" wait_for 10 gone "$TOP"
    keys -l 'code=$?'
    keys Enter
    restored "SIG${signal%:*}" "$code" "${signal#*:}"
done

top
shows 'it runs again' '^ullage top'
keys C-z
shows 'Ctrl-Z stops it' 'Stopped'
is 'stopped: modes of the terminal' "$(answer 'stty -g')" "$before"
keys -l fg
keys Enter
shows 'fg goes on' '^ullage top'
keys '?'
shows 'and keys work' 'kill: sends a signal'
keys q
shows 'as before' '^JOB / PROCESS'
kill -STOP "$TOP"
shows 'a stop that it could not see coming' 'Stopped'
t resize-window -x 90 -y 30
keys -l fg
keys Enter
shows 'fg goes on after that too, at the new size' '^ullage top .{50}.*every'
shows 'all of it drawn' '^q quit '
keys C-c
check 'Ctrl-C ends it' wait_for 10 gone "$TOP"
t resize-window -x 80 -y 24
keys -l 'clear; echo here I was'
keys Enter
shows 'the shell is back' '^here I was'

# A driver that never answers.
top_on_hung_driver() {
    local shell
    shell=$(t display-message -p '#{pane_pid}')
    keys -l "LD_LIBRARY_PATH= ULLAGE_LIBNVML='$BUILD_DIR/tests/e2e/top/libslow_nvml.so' '$ULLAGE' top -d 0.2"
    keys Enter
    wait_for 10 pgrep -P "$shell" -x ullage
    TOP=$(pgrep -P "$shell" -x ullage)
}
top_on_hung_driver
shows 'a hung driver: it says what it waits for' 'asking the driver'
keys '?'
shows 'keys are heard' 'kill: sends a signal'
keys q q
check 'it can be ended' wait_for 3 gone "$TOP"
shows 'and the terminal is back' '^\$ ?$'
is 'as it was' "$(answer 'stty -g')" "$before"
top_on_hung_driver
shows 'once more' 'asking the driver'

# A terminal that goes away.
t kill-server
check 'it does not outlive its terminal' wait_for 5 gone "$TOP"
done_testing
