#!/usr/bin/env bash
#
# Which card a budget is for: by UUID, whatever order and names a program or a child of it uses.
#
# shellcheck disable=SC2016,SC2054,SC2191 # scripts for the guests' shells; options such as -m 0=1GiB
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

export ULLAGE_FAKE_CONTEXT=100MiB
cards 6GiB,8GiB,16GiB
run -q -m 1GiB -- "$GUEST" init device 0 device 1 device 2 # learns what a context takes here
gpu() { # the UUID of a card, without its prefix
    printf '%08x-fa4e-4000-8000-%012x' 0 "$1"
}
is 'the cards are who they should be' "$(card '" ".join(c["uuid"] for c in d["cards"])')" \
    "GPU-$(gpu 0) GPU-$(gpu 1) GPU-$(gpu 2)"

# names KIND CARD...: a list for CUDA_VISIBLE_DEVICES
names() {
    local kind=$1 list='' card
    shift
    for card in "$@"; do
        case $kind in
        index) list+=,$card ;;
        uuid) list+=,GPU-$(gpu "$card") ;;
        capitals) list+=,GPU-$(gpu "$card" | tr a-f A-F) ;;
        esac
    done
    echo "${list#,}"
}

# Budgets of 1, 2 and 3 GiB for logical 0, 1 and 2. What is logical is told by the driver itself: the
# guest asks for UUIDs. Then it fills each card and the card says what it took.
budgets=(1 2 3)
orders=('0' '1' '2' '0 1' '1 0' '0 2' '2 0' '1 2' '2 1'
    '0 1 2' '0 2 1' '1 0 2' '1 2 0' '2 0 1' '2 1 0')
for kind in index uuid capitals; do
    for order in "${orders[@]}"; do
        read -ra chosen <<<"$order"
        list=$(names "$kind" "${chosen[@]}")
        rules='' words=(init count) wanted=$'init 0\ncount '"${#chosen[@]} 0"
        for i in "${!chosen[@]}"; do
            rules+=,$i=${budgets[i]}GiB
            words+=(uuid "$i" total "$i" device "$i" alloc $((budgets[i] * 1024 - 90))MiB alloc
                $((budgets[i] * 1024 - 300))MiB)
            wanted+=$'\n'"uuid $i $(gpu "${chosen[i]}")"
            wanted+=$'\n'"total $i $((budgets[i] * GIB)) 0"$'\n'"device $i 0"$'\nalloc 2\nalloc 0'
        done
        export CUDA_VISIBLE_DEVICES=$list
        run -q -m "${rules#,}" --report "$T/report" -- "$GUEST" "${words[@]}"
        unset CUDA_VISIBLE_DEVICES
        is "visible by $kind: $order" "$OUT" "$wanted"
        said=$(json '" ".join("%d=%d=%s" % (v["logical"], v["physical"], v["uuid"])
            for v in d["jobs"][0]["devices"] if v["logical"] is not None and v["logical"] >= 0)' "$T/report")
        for i in "${!chosen[@]}"; do
            is "by $kind, $order: the report's logical $i" "$(cut -d' ' -f$((i + 1)) <<<"$said")" \
                "$i=${chosen[i]}=GPU-$(gpu "${chosen[i]}")"
        done
    done
done

# --- lists that are not what they should be ---------------------------------------------------------------

# Held and bare programs must see the same cards, and the job's own count of them must agree.
seen() {
    sed -n 's/^uuid [0-9] //p' <<<"$1" | tr '\n' ' '
}
for list in '' ',' '0,' ',0' '0,,1' '0,9,1' '9' '-1' '0,-1,1' 'abc' '0,abc' '1,1' '0,1,0' ' 1' '1 ,0' '00' '02' \
    'GPU-' 'GPU-0' "GPU-$(gpu 1),0" "0,GPU-$(gpu 1)" "GPU-$(gpu 2),GPU-$(gpu 9)" "GPU-$(gpu 1),GPU-$(gpu 1)" \
    "gpu-$(gpu 1)" "$(gpu 1)" 'NoDevFiles' '1;0' '1.5' '0x1' '1x,0' '+1' '0 1' \
    '4294967297' '99999999999' "GPU-$(gpu 1) ,GPU-$(gpu 0)" " GPU-$(gpu 1)" "GPU-$(gpu 1)x" 'MIG-0'; do
    export CUDA_VISIBLE_DEVICES=$list
    words=(init count uuid 0 uuid 1 uuid 2)
    capture "$GUEST" "${words[@]}"
    bare=$OUT
    run -q --report "$T/report" -- "$GUEST" "${words[@]}"
    is "CUDA_VISIBLE_DEVICES='$list': the same cards as without us" "$OUT" "$bare"
    is "CUDA_VISIBLE_DEVICES='$list': the report knows them" "$(json '" ".join(v["uuid"][4:]
        for v in d["jobs"][0]["devices"] if v["logical"] is not None and v["logical"] >= 0)' "$T/report")" \
        "$(seen "$bare" | sed 's/---- *//g; s/ *$//')"
done
unset CUDA_VISIBLE_DEVICES

# --- children that choose for themselves -----------------------------------------------------------------------

child() { # NAME LIST WANTED-TOTALS, in a job of the options in $options
    local words=(init) i totals
    for i in 0 1 2; do words+=(total "$i"); done
    run -q "${options[@]}" -- env "CUDA_VISIBLE_DEVICES=$2" "$GUEST" "${words[@]}"
    totals=$(sed -n 's/^total [0-9] \([0-9]*\) 0$/\1/p' <<<"$OUT" | while read -r bytes; do
        echo $((bytes / MIB))
    done | xargs)
    is "$1" "$totals" "$3"
}
options=(-m 0=1GiB,1=2GiB,2=3GiB)
child 'a child that sees only the second card has the budget of the second' 1 2048
child 'one that turns the order round too' 2,1,0 '3072 2048 1024'
child 'and by UUID' "GPU-$(gpu 2),GPU-$(gpu 0)" '3072 1024'
options=(-g 1,0 -m 0=1GiB,1=2GiB)
child 'with -g the budgets follow the cards that were chosen' 0,1 '2048 1024'
child 'in any order' "GPU-$(gpu 1),GPU-$(gpu 0)" '1024 2048'
options=(-g 1 -m 1GiB)
child 'a budget for all holds on cards that the job was not to see' 2,0,1 '1024 1024 1024'
options=(-m 10%)
child 'a share is of each card by itself' 2,1,0 "$(card '" ".join(str(int(c["total"] * 0.1) // (1 << 20))
    for c in reversed(d["cards"]))')"

# The process holds on one card, its child on another: neither counts for the other.
run -q -m 0=1GiB,1=1GiB -- "$GUEST" ctx alloc 700MiB spawn init device 1 alloc 700MiB alloc 300MiB end alloc 300MiB
is 'two cards are two accounts' "$(grep alloc <<<"$OUT" | tr '\n' ' ')" 'alloc 0 alloc 0 alloc 2 alloc 2 '

# --- -g --------------------------------------------------------------------------------------------------------------

# chosen NAME CARD OPTION...: the command sees just that card, by UUID
chosen() {
    local name=$1 card=$2
    shift 2
    run -q "$@" -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"; exec "$0" init count uuid 0' "$GUEST"
    is "$name" "$OUT" "GPU-$(gpu "$card")"$'\ninit 0\ncount 1 0\nuuid 0 '"$(gpu "$card")"
}
chosen '-g by index' 2 -g 2
chosen '-g by UUID' 1 -g "GPU-$(gpu 1)"
run -q -g "2,GPU-$(gpu 0)" -m 0=1GiB,1=2GiB -- "$GUEST" init uuid 0 uuid 1 total 0 total 1
is '-g with several, mixed' "$OUT" \
    "init 0
uuid 0 $(gpu 2)
uuid 1 $(gpu 0)
total 0 $GIB 0
total 1 $((2 * GIB)) 0"
run -m 1GiB -g 2 --report "$T/report" -- "$GUEST" init
spawn "$ULLAGE" run -q -g 2,0 -m 1GiB --name mapped -- "$GUEST" ctx hold
wait_for 10 grep -q ready "$T/$PID.out"
like 'ps says which card is which' "$("$ULLAGE" ps)" "logical 0 = physical 2 \(GPU-$(gpu 2)\)"
like 'of each' "$("$ULLAGE" ps)" "logical 1 = physical 0 \(GPU-$(gpu 0)\)"
kill "$PID"

for variable in OMPI_COMM_WORLD_LOCAL_RANK LOCAL_RANK SLURM_LOCALID HOROVOD_LOCAL_RANK; do
    export "$variable=2"
    chosen "-g local by $variable" 2 -g local
    export "$variable=4"
    chosen "$variable beyond the cards wraps round" 1 -g local
    export "$variable=x"
    run -g local -- echo started
    like "a bad $variable is an error that names it" "$CODE: $OUT$ERR" "^2: ullage run: .*$variable.*'x'|^2: .*$variable"
    unset "$variable"
done
export LOCAL_RANK=1 CUDA_VISIBLE_DEVICES=2,0
chosen '-g local counts the cards that are visible' 0 -g local
unset LOCAL_RANK CUDA_VISIBLE_DEVICES
run -g local -- echo started
like '-g local without a rank is an error' "$CODE: $OUT$ERR" '^2: .*LOCAL_RANK'
run -g 9 -- echo started
like '-g of a card that is not there' "$CODE: $OUT$ERR" '^3: .*9.*GPUs 0 to 2'
run -g "GPU-$(gpu 9)" -- echo started
like '-g of a UUID that is not there' "$CODE: $OUT$ERR" '^3: '
run -m 3=1GiB -- echo started
like '-m of a device that is not there' "$CODE: $OUT$ERR" '^3: .*3GPUs|^3: .*device 3'

# --- the driver's order is not NVML's --------------------------------------------------------------------------------

export ULLAGE_FAKE_FASTEST=2,0,1
run -q -m 0=1GiB,1=2GiB,2=3GiB -- "$GUEST" init uuid 0 total 0 uuid 1 total 1 uuid 2 total 2
is 'fastest first: budgets are for devices as the program counts them' "$OUT" \
    "init 0
uuid 0 $(gpu 2)
total 0 $GIB 0
uuid 1 $(gpu 0)
total 1 $((2 * GIB)) 0
uuid 2 $(gpu 1)
total 2 $((3 * GIB)) 0"
chosen 'fastest first: -g counts as nvidia-smi does' 1 -g 1
export CUDA_VISIBLE_DEVICES=0
run -q -m 0=1GiB -- "$GUEST" init uuid 0 total 0
is 'fastest first: CUDA_VISIBLE_DEVICES counts as CUDA does' "$OUT" \
    $'init 0\nuuid 0 '"$(gpu 2)"$'\ntotal 0 1073741824 0'
export CUDA_DEVICE_ORDER=PCI_BUS_ID
run -q -m 0=1GiB -- "$GUEST" init uuid 0 total 0
is 'CUDA_DEVICE_ORDER=PCI_BUS_ID: as nvidia-smi does' "$OUT" \
    $'init 0\nuuid 0 '"$(gpu 0)"$'\ntotal 0 1073741824 0'
unset CUDA_VISIBLE_DEVICES
run -q -m 0=1GiB,1=2GiB,2=3GiB -- env -u CUDA_DEVICE_ORDER "$GUEST" init uuid 0 total 0
is 'a child that changes the order has the same budgets on the same cards' "$OUT" \
    $'init 0\nuuid 0 '"$(gpu 2)"$'\ntotal 0 3221225472 0'
unset CUDA_DEVICE_ORDER ULLAGE_FAKE_FASTEST

# --- MIG ------------------------------------------------------------------------------------------------------------------

export ULLAGE_FAKE_MIG=1:2GiB+4GiB
cards 6GiB,8GiB
mapfile -t uuids < <(card '"\n".join(c["uuid"] for c in d["cards"])')
instance=${uuids[3]}
run -q -g "$instance" -m 50% -- "$GUEST" init count uuid 0 total 0 device 0 alloc 2000MiB alloc 1500MiB
is 'a share of a MIG instance is of the instance' "$OUT" \
    "init 0
count 1 0
uuid 0 ${instance#MIG-}
total 0 $(card '(d["cards"][3]["total"]) // 2') 0
device 0 0
alloc 2
alloc 0"
export CUDA_VISIBLE_DEVICES=$instance
run -q -m 1GiB -- "$GUEST" init count total 0
is 'a MIG instance by CUDA_VISIBLE_DEVICES' "$OUT" $'init 0\ncount 1 0\ntotal 0 1073741824 0'
unset CUDA_VISIBLE_DEVICES
run -g 1 -- echo started
like 'a card that is divided cannot be chosen whole' "$CODE: $OUT$ERR" '^3: .*divided into MIG'
unset ULLAGE_FAKE_MIG

done_testing
