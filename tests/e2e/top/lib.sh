# shellcheck shell=bash disable=SC2034 # variables for the tests
#
# lib.sh: a terminal for the tests of `ullage top`: a pane of tmux with a plain shell in it.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export LC_ALL=C.UTF-8 TERM=screen-256color
unset TMUX COLUMNS LINES

# t COMMAND...: tmux, of this test alone
t() {
    tmux -S "$T/tmux" -f /dev/null "$@"
}
trap 't kill-server 2>/dev/null; clean_up' EXIT

# terminal WIDTH HEIGHT: a fresh one
terminal() {
    t kill-server 2>/dev/null
    t new-session -d -x "$1" -y "$2" "exec env PS1='$ ' bash --norc --noprofile -i"
    t set-option -g status off >/dev/null
    t resize-window -x "$1" -y "$2"
    wait_for 10 pane_has '^\$ ?$'
}

pane() {
    t capture-pane -p
}

pane_has() {
    pane | grep -qE -- "$1"
}

pane_lacks() {
    ! pane_has "$1"
}

# keys KEY...: as tmux names them; words are typed
keys() {
    t send-keys "$@"
}

# shows NAME PATTERN: a line of the pane matches before long
shows() {
    if wait_for 10 pane_has "$2"; then ok "$1"; else not_ok "$1" "no line matches: $2" "$(pane)"; fi
}

# shows_no NAME PATTERN: no line matches any more before long
shows_no() {
    if wait_for 10 pane_lacks "$2"; then ok "$1"; else not_ok "$1" "a line matches: $2" "$(pane)"; fi
}

# top OPTION...: starts it in the shell of the pane; its pid in $TOP
top() {
    local shell
    shell=$(t display-message -p '#{pane_pid}')
    keys -l "'$ULLAGE' top -d 0.2 $*"
    keys Enter
    wait_for 10 eval "TOP=\$(pgrep -P $shell -x ullage)"
    TOP=$(pgrep -P "$shell" -x ullage)
}

# line NAME TEXT: what the shell of the pane answers to a command
answer() {
    keys -l "clear; $1 >'$T/answer' 2>&1; echo done >'$T/answered'"
    rm -f "$T/answered"
    keys Enter
    wait_for 10 test -s "$T/answered"
    cat "$T/answer"
}
