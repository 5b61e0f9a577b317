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
        -m | -g | --memory | --gpus | --max-request | --request | --prewarm | --priority | --group | --collective-timeout | --spill | --pinned | --name | --report | --record)
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

# Words for `ullage query`. bash parts words at "=", so a value comes with "=" or an option in front; of a
# list with commas the last entry is completed.
_ullage_query() {
    local word=$1 before=$2 option=$2 list entry
    [[ $word == '=' ]] && word=
    [[ $before == '=' ]] && option=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $1 == '=' ]] && option=$before
    case $option in
    --query-gpu) list=$(ullage query --help-query-gpu 2>/dev/null | sed -n 's/^"\([^"]*\)".*/\1/p') ;;
    --query-compute-apps)
        list=$(ullage query --help-query-compute-apps 2>/dev/null | sed -n 's/^"\([^"]*\)".*/\1/p')
        ;;
    --format) list='csv noheader nounits json ndjson' ;;
    *)
        echo '--query-gpu --query-compute-apps --format --help-query-gpu --help-query-compute-apps -i --id' \
            '-f --filename -l --loop -lms --loop-ms -n --rounds -h --help'
        return
        ;;
    esac
    for entry in $list; do
        if [[ $word == *,* ]]; then echo "${word%,*},$entry"; else echo "$entry"; fi
    done
}

_ullage() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} at
    local words=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run ps top query report sweep plan train eval replay budget suspend resume --help --version' -- "$word")
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
    run:--request | run:--prewarm) words='1GiB 2GiB 4GiB 8GiB last' ;;
    run:--max-request | run:--spill) words='256MiB 512MiB 1GiB' ;;
    run:--pinned) words='4GiB 8GiB 16GiB none' ;;
    run:--name | replay:--repeat | replay:--hold) return ;;
    run:--report | run:--record | replay:--record)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    ps:-o | ps:--output) words='table json csv' ;;
    replay:-o | replay:--output) words='table json' ;;
    replay:--device) words='cuda:0 host' ;;
    run:*)
        words='-m --memory -g --gpus --growth --each --max-request --request --wait --prewarm --priority --group --collective-timeout --spill --suspendable --pinned --driver-pools --name --report --record --stacks -q --quiet -h --help --'
        ;;
    ps:--check) words='held>90% free<1GiB refusals>0' ;;
    ps:*) words='-o --output --tree --check -h --help' ;;
    budget:* | suspend:* | resume:*)
        words=$(ullage ps -o json 2>/dev/null | sed -n 's/^      "name": "\(.*\)",$/\1/p')
        case $verb in
        budget) [[ $COMP_CWORD -gt 2 ]] && words='auto 1GiB 2GiB 4GiB 8GiB 25% 50% 75%' ;;
        suspend) words="$words -q --quiet --timeout --expect -h --help" ;;
        *) words="$words -q --quiet --timeout -h --help" ;;
        esac
        ;;
    top:-o | top:--output) words='table json ndjson' ;;
    top:-s | top:--sort) words='name pid user budget held peak use trend' ;;
    top:-d | top:--delay) words='0.5 1 2 5 10' ;;
    top:-n | top:--rounds | top:-f | top:--filter) return ;;
    top:*)
        words='-d --delay -s --sort -r --reverse -f --filter --flat --readonly --ascii -n --rounds -o --output -h --help'
        ;;
    query:-i | query:--id) words=$(_ullage_cards) ;;
    query:-f | query:--filename)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    query:*)
        words=$(_ullage_query "$word" "$before")
        [[ $word == '=' ]] && word=
        ;;
    report:-f | report:--format)
        words=$(ullage report --help 2>/dev/null | sed -n 's/^  -f, --format FORMAT  \(.*\) (default.*/\1/p' | sed 's/ or / /; s/,//g')
        ;;
    report:--role) words='training inference' ;;
    report:*)
        words='-f --format --role --diff -o --output -h --help'
        if [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
        fi
        ;;
    sweep:-m | sweep:--memory) words='1GiB,2GiB,4GiB 25%,50%,75%' ;;
    sweep:-o | sweep:--output) words='table json html' ;;
    sweep:*)
        words='-m --memory -o --output -q --quiet -h --help --'
        if [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
            return
        fi
        ;;
    plan:--calibrate)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    plan:--offsets)
        mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.csv' -- "$word")
        return
        ;;
    plan:--capacity) words='1GiB 2GiB 4GiB 8GiB' ;;
    plan:--nodes) return ;;
    plan:--like) words='torch torch:amp torch:fp32,fp32+ckpt' ;;
    plan:-o) words='table json csv' ;;
    plan:--optimizer) words='adam adamw sgd' ;;
    plan:--mode) words='training inference' ;;
    plan:--parallel) words='data model pipeline' ;;
    plan:--weights) words='fp32 fp16 bf16 fp8 int8' ;;
    plan:--precision) words='auto fp32 bf16 fp16' ;;
    plan:--device) words='h200 a100-80g rtx4090 v100-16g t4 jetson-agx cpu' ;;
    plan:-m | plan:--memory) words='4GiB 8GiB 16GiB 50%' ;;
    plan:*)
        words='-m --memory -b --batch --mode --weights --context --requests --optimizer --precision --device --bn-group --max-accumulation
            --recompute-min --max-workspace --host-memory --threads --clip --devices --parallel --ladder --fit --html --like --calibrate --models
            --list-devices --offsets --capacity --nodes -o -h --help'
        if [[ $word != -* ]]; then
            words='mlp lenet resnet20 resnet18 resnet34 resnet50 vit-b16 unet bert-base gpt2-124m
                gpt2-355m gpt2-774m gpt2-1558m gpt-char llama'
        fi
        ;;
    train:--data | eval:--data | train:--plan | train:--save-plan | train:--html | train:--trace | train:--save)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    train:--optimizer) words='sgd adam adamw' ;;
    train:--schedule) words='cosine linear constant' ;;
    train:--parallel) words='data' ;;
    train:--precision) words='auto fp32 bf16 fp16' ;;
    train:-m | train:--memory) words='128MiB 512MiB 2GiB auto' ;;
    train:-o) words='text json ndjson' ;;
    train:*)
        words='-m --memory --data -b --batch -e --epochs --max-steps --lr --schedule --warmup --optimizer --momentum
            --weight-decay --clip --precision --loss-scale --bn-group --min-batch --max-batch --max-accumulation
            --buckets --host-memory --recompute-min --plan --save-plan --save --save-every --resume --eval-every --eval-samples --ablation --no-augment
            --threads --seed --html --trace --devices --parallel -o -h --help'
        if [[ $word != -* ]]; then
            words='mlp lenet resnet20 resnet18 resnet34 resnet50 vit-b16 bert-base gpt2-124m gpt-char llama'
        fi
        ;;
    eval:-o) words='text json' ;;
    eval:*)
        words='--data --samples --generate --prompt --temperature --seed -b --batch -m --memory --threads -o -h --help'
        if [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$word")
            return
        fi
        ;;
    replay:*)
        words='--preallocate --growth --device --repeat --hold --pool -m --memory --compare --record -o --output -h --help'
        if [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gz' -- "$word")
            return
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o filenames -o bashdefault -F _ullage ullage
