# shellcheck shell=bash
#
# gated_lib.sh: what the tests of jobs that were started with --suspendable share. Source it after lib.sh.
#
# A scene is a program of words for the guest `worker` (tests/e2e/guests/worker.c). It runs once alone and once
# as a job that is suspended and resumed while it runs; both must print the same.

export ULLAGE_FAKE_CONTEXT=100MiB
WORKER=$GUESTS/worker

state_is() { # NAME STATE
    [ "$(job_value "$1" state)" = "$2" ]
}

card_is_empty() {
    [ "$(used_by_all)" -eq 0 ]
}

# As a job in the background: its `ullage run` in $JOB.
start_job() { # NAME WORD...
    local name=$1
    shift
    spawn "$ULLAGE" run -q -m 5GiB --suspendable --name "$name" -- "$WORKER" "$@"
    JOB=$PID
    wait_for 20 job_value "$name" state
}

# Is only that of it on the card which it says stays there (contexts, streams)? It may say so a little later than
# it is.
stays_now() { # NAME
    local resident
    gone "$JOB" && return
    STAYS=$(used_by_all)
    resident=$(job_value "$1" resident_bytes)
    [ "$STAYS" -ge "$resident" ] && [ "$STAYS" -le $((resident + 24 * MIB)) ]
}

# At last: a process may just be starting or ending.
only_what_stays() { # NAME
    wait_for 5 stays_now "$1" || gone "$JOB"
}

count_of() { # FILE made by the word `progress`
    od -An -tu8 "$1" | tr -d ' \n'
}

# Suspends and resumes at different moments until the job has ended; $SUSPENDED counts, $WRONG tells what was not
# as it must be.
MOST=${ULLAGE_TEST_SUSPENSIONS:-4}
LEAST=1
suspend_all_the_time() { # NAME [PROGRESS_FILE]
    local before after
    SUSPENDED=0 WRONG=''
    while ! gone "$JOB"; do
        sleep "0.0$((RANDOM % 10))"
        [ $SUSPENDED -lt "$MOST" ] || continue
        capture "$ULLAGE" suspend -q "$1"
        if [ "$CODE" -ne 0 ]; then
            # It may have ended, or not have begun; a ring may not come to rest in its time.
            [[ $ERR =~ 'no job of yours'|'holds memory of a GPU'|'it was stopped' ]] || WRONG+="suspend: $ERR; "
            continue
        fi
        only_what_stays "$1" || WRONG+="on the card there are $STAYS; "
        if [ -n "${2:-}" ] && [ -e "$2" ]; then
            before=$(count_of "$2")
            sleep 0.05
            after=$(count_of "$2")
            [ "$before" = "$after" ] || WRONG+="$((after - before)) launches while it was suspended; "
        fi
        SUSPENDED=$((SUSPENDED + 1))
        [ $SUSPENDED -lt "$LEAST" ] || touch "$T/$1.held.go"
        capture "$ULLAGE" resume -q "$1"
        [ "$CODE" -eq 0 ] || [[ $ERR =~ 'no job of yours' ]] || WRONG+="resume: $ERR; "
    done
}

# scene NAME LEAST WORD...: "FILE." in the words is a file of this run; FILE.go is there when it was suspended LEAST
# times, which it must be.
scene() {
    local name=$1 least=$2 alone=() held=() word
    LEAST=$least
    touch "$T/$name.alone.go"
    shift 2
    for word in "$@"; do
        alone+=("${word/FILE./$T/$name.alone.}")
        held+=("${word/FILE./$T/$name.held.}")
    done
    timeout 60 "$WORKER" "${alone[@]}" >"$T/$name.alone" 2>&1
    is "$name: alone it ends well" $? 0
    start_job "$name" "${held[@]}"
    suspend_all_the_time "$name" "$T/$name.held.progress"
    is "$name: the same to the last bit" "$(sort "$T/$JOB.out")" "$(sort "$T/$name.alone")"
    if [ "$SUSPENDED" -ge "$least" ]; then
        ok "$name: it was suspended $least times or more"
    else
        not_ok "$name: it was suspended $least times or more" "$SUSPENDED times"
    fi
    is "$name: nothing was out of order" "$WRONG$(<"$T/$JOB.err")" ""
    check "$name: nothing is left on the card" wait_for 10 card_is_empty
}
