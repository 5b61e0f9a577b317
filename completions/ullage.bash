# shellcheck shell=bash
# Completion for ullage(1) in bash. Needs nothing but bash; with bash-completion the words of COMMAND
# are completed as its own.

_ullage_cards() {
    printf 'local\n'
    command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=index,uuid --format=csv,noheader \
        2>/dev/null | tr -d ' ' | tr ',' '\n'
}

# Where the command of `ullage run` begins: behind "--", or at the first word that is no option or value.
_ullage_command_at() {
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            echo $((i + 1))
            return
            ;;
        -m | -g | --memory | --gpus | --max-request | --name | --report)
            ((i++)) || true
            [[ ${COMP_WORDS[i]} == '=' ]] && ((i++))
            ;;
        -* | '=') ;;
        *)
            echo "$i"
            return
            ;;
        esac
    done
}

_ullage() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} at
    local words=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run ps replay --help --version' -- "$word")
        return
    fi
    if [[ $verb == run ]]; then
        at=$(_ullage_command_at)
        if [[ -z $at && $before != -* && -n $word && $word != -* ]]; then
            at=$COMP_CWORD
        fi
        if [[ -n $at ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "$at"
            elif ((COMP_CWORD == at)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            return
        fi
    fi
    case $verb:$before in
    run:-m | run:--memory) words='1GiB 2GiB 4GiB 8GiB 25% 50% 75%' ;;
    run:-g | run:--gpus) words=$(_ullage_cards) ;;
    replay:-m | replay:--memory) words='1GiB 2GiB 4GiB 8GiB 25% 50% 75%' ;;
    run:--max-request) words='256MiB 512MiB 1GiB' ;;
    run:--name | replay:--repeat | replay:--hold) return ;;
    run:--report)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    ps:-o | ps:--output) words='table json csv' ;;
    replay:-o | replay:--output) words='table json' ;;
    replay:--device) words='cuda:0 host' ;;
    run:*)
        words='-m --memory -g --gpus --growth --each --max-request --name --report -q --quiet -h --help --'
        ;;
    ps:*) words='-o --output --tree -h --help' ;;
    replay:*)
        words='--preallocate --growth --device --repeat --hold --pool -m --memory --compare -o --output -h --help'
        if [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gz' -- "$word")
            return
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o filenames -o bashdefault -F _ullage ullage
