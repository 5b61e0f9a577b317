#!/usr/bin/env bash
#
# `ullage top` on a terminal, as somebody sees it: rows, keys, sizes, details, killing.
#
# shellcheck disable=SC2016 # scripts for the shells of the guests
# shellcheck source=tests/e2e/top/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB,16GiB
terminal 80 24
top
shows 'it begins without jobs' '^ullage top  .*  0 jobs  0 processes +every 0\.2 s'
shows 'with the cards' '^1 +Ullage Fake'

# --- rows ---------------------------------------------------------------------------------------------------

spawn "$ULLAGE" run -q -m 4GiB -g 0 --name train -- "$GUEST" ctx alloc 900MiB alloc 4GiB alloc 1MiB \
    spawn ctx alloc 400MiB hold end hold
train=$PID
wait_for 10 grep -q ready "$T/$train.out"
spawn "$ULLAGE" run -q -m 1GiB -g 1 --name notebook -- "$GUEST" ctx alloc 50MiB hold
notebook=$PID
wait_for 10 grep -q ready "$T/$notebook.out"
shows 'a job appears' '^train +[0-9]+ root +0 +4\.0G +1\.5G'
shows 'and its tree' '^   └─ guest'
shows 'and the other job' '^notebook '
shows 'the selection is on the first row, the sort on what is held' '▼HELD'
is 'largest first' "$(pane | grep -oE '^(train|notebook)' | xargs)" 'train notebook'
shows 'after some rounds there is a verdict' '^notebook .* steady'

keys '<' '<' '<' '<'
shows 'another column' 'JOB / PROCESS▲'
is 'by name' "$(pane | grep -oE '^(train|notebook)' | xargs)" 'notebook train'
keys r
shows 'reversed' 'JOB / PROCESS▼'
is 'the other way round' "$(pane | grep -oE '^(train|notebook)' | xargs)" 'train notebook'
keys r '>' '>' '>' '>' t
shows 'no tree' '^  guest'
keys t

keys / n o t e
shows 'a filter as it is typed' '^filter: note_'
shows_no 'leaves out the rest' '^train'
keys Enter
shows 'it stays, and says so' '^filter: note +\(Esc: all'
keys Escape
shows 'Escape shows all' '^train'

keys Home Space
shows 'a folded job' '^\+ train \(2\)'
keys Space
shows 'and unfolded' '^└─ guest'

keys c c
shows_no 'no cards' '^GPU  NAME'
keys c
shows 'cards again' '^GPU  NAME'

keys d 0 . 5 Enter
shows 'another delay' 'every 0\.5 s'
keys d 9 9 9 9 9 Enter
shows 'one that cannot be' "'99999' is not a number"

# --- pages ----------------------------------------------------------------------------------------------------

keys Home Enter
shows 'details of a job' '^job train$'
shows 'its classes' '^   data +1\.3G'
shows 'its refusals' '^refused requests: 1, of which 1 by programs that went on'
shows 'its processes' 'guest ctx alloc'
keys Escape Down Enter
shows 'details of a process' '^process [0-9]+$'
shows 'whose state' 'held by its job'
keys Escape '?'
shows 'help' 'kill: sends a signal'
keys q
shows 'q goes back' '^JOB / PROCESS'

# --- sizes ------------------------------------------------------------------------------------------------------

t resize-window -x 160 -y 50
shows 'wide: every column and the command' '^└─ guest ctx alloc 900MiB alloc 4GiB.* USE|^JOB / PROCESS.* USE '
t resize-window -x 60 -y 20
shows 'narrow: fewer columns' '^JOB / PROCESS +PID .*HELD'
shows_no 'no user there' ' USER '
t resize-window -x 30 -y 5
shows 'too small: it says so' '^30x5: needs 40x8'
t resize-window -x 80 -y 24
shows 'and back' '^train'

# --- killing --------------------------------------------------------------------------------------------------

child=$(pgrep -f 'guest ctx alloc 400MiB hold' | while read -r pid; do
    grep -qz "^ULLAGE_SHM_DIR=$T/shm" "/proc/$pid/environ" && echo "$pid"
done | tail -n 1)
keys Home Down Down k
shows 'it asks, with pid and name' "^SIGTERM to $child \\(guest ctx"
keys n
shows 'anything but y is a no' '^nothing was sent'
check 'the process lives' test -e "/proc/$child"
keys k Enter
shows 'Enter too' '^nothing was sent'
keys k Tab Tab
shows 'another signal' "^SIGKILL to $child "
keys y
shows 'it says what it did' "^SIGKILL sent to $child "
check 'the process is gone' wait_for 10 gone "$child"
shows_no 'and its row' '^   └─ guest'
keys Home k
shows 'a job is told by its run' "^SIGTERM to $train \\(job train\\)"
keys y
check 'the job ends' wait_for 10 gone "$train"
shows_no 'and leaves the list' '^train'
keys q
shows 'q ends it' '^\$ ?$'

top --readonly
shows 'read only is said' 'read only'
keys k
shows 'k sends nothing' 'started with --readonly'
check 'the job is there' test -e "/proc/$notebook"
keys q
shows 'it ends' '^\$ ?$'

# --- colours ------------------------------------------------------------------------------------------------------

top
shows 'again' '^notebook'
like 'there are colours' "$(t capture-pane -ep)" $'\033\\[[0-9;]*3[1-6]m'
keys q
shows 'the end' '^\$ ?$'
keys -l 'export NO_COLOR=1'
keys Enter
top
shows 'with NO_COLOR' '^notebook'
unlike 'there are none' "$(t capture-pane -ep)" $'\033\\[[0-9;]*[34][1-7]m'
like 'but the selection can be seen' "$(t capture-pane -ep)" $'\033\\[[0-9;]*7m'
keys q
shows 'that ends' '^\$ ?$'

# --- names --------------------------------------------------------------------------------------------------------

# A clear screen, a wide name, marks of no width, no UTF-8: rows stay where they are.
spawn "$ULLAGE" run -q -m 1GiB -g 1 --name 'wide 学习训练程序很长的名字' -- bash -c \
    'exec -a "$(printf "\033[2J\033[1;1H\377\303 e\314\201\314\201 \360\237\224\245 \342\200\256x")" "$0" ctx hold' "$GUEST"
evil=$PID
wait_for 10 grep -q ready "$T/$evil.out"
top
shows 'the wide name is cut where it ends' '^wide 学习训练程[^ ]*… +[0-9]+ root'
shows 'the head is still there' '^ullage top'
shows 'a name without sense' '^└─ \?\[2J.* root '
columns=$(pane | grep -E '^(notebook|JOB)' | awk '{ print index($0, "root") + index($0, "USER") }' | sort -u | wc -l)
is 'columns are in line' "$columns" 1
keys q
shows 'the end of it' '^\$ ?$'
done_testing
