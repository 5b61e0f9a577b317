#!/usr/bin/env bash
#
# `ullage query` over drivers that know less or otherwise: old ones, cards in MIG mode, cards that share
# the host's memory, pids of other namespaces, names with anything in them, no driver at all.
#
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

query() {
    capture "$ULLAGE" query "$@"
}
says() { # NAME EXIT OUTPUT WORD...
    query "${@:4}"
    is "$1" "$CODE:$OUT" "$2:$3"
}

cards 6GiB
spawn "$GUEST" ctx alloc 1GiB touch "$T/ready" hold
guest=$PID
wait_for 10 test -e "$T/ready"
memory=memory.total,memory.reserved,memory.used,memory.free
plain=$("$ULLAGE" query --query-compute-apps=pid,used_memory --format=csv,noheader)

export ULLAGE_FAKE_NVML=old
query --query-gpu=$memory --format=csv,noheader,nounits
like 'a driver that does not tell reserved memory from used' "$OUT" '^6192, \[N/A\], 1[0-9]{3}, [0-9]+$'
says '... and lists processes in the oldest form' 0 "$plain" --query-compute-apps=pid,used_memory --format=csv,noheader
export ULLAGE_FAKE_NVML=longrows
says 'rows that are longer than they should be' 0 "$plain" --query-compute-apps=pid,used_memory --format=csv,noheader
export ULLAGE_FAKE_NVML=badrows
says 'rows that cannot be are left out' 0 "$plain" --query-compute-apps=pid,used_memory --format=csv,noheader
export ULLAGE_FAKE_NVML=noutil
says 'a card that does not tell its load' 0 '[N/A], [N/A], [N/A]' \
    --query-gpu=utilization.gpu,utilization.memory,utilization.encoder --format=csv,noheader
export ULLAGE_FAKE_NVML=unknownuse
says 'a process whose memory is not known' 0 "$guest, [N/A]" --query-compute-apps=pid,used_memory --format=csv,noheader
is '... is null in JSON' "$("$ULLAGE" query --query-compute-apps=used_memory --format=json | json 'd["processes"]')" \
    '[{"used_gpu_memory": null}]'
export ULLAGE_FAKE_NVML=noname
says 'a name that may not be seen' 0 "$guest, [Insufficient Permissions]" \
    --query-compute-apps=pid,process_name --format=csv,noheader
export ULLAGE_FAKE_NVML=otherpids
says 'a pid of another namespace' 0 "$((guest + 100000)), [Not Found], unseen, [Not Found]" \
    --query-compute-apps=pid,process_name,ullage.where,ullage.command --format=csv,noheader
export ULLAGE_FAKE_NVML=nopids
says 'a container that sees no process' 0 'pid' --query-compute-apps=pid --format=csv
export ULLAGE_FAKE_NVML=nomemory
says 'a card that shares the memory of the host' 0 '[N/A], [N/A], [N/A], [N/A]' \
    --query-gpu=$memory --format=csv,noheader
query --query-gpu=ullage.total,ullage.used --format=csv,noheader,nounits
is '... but the CUDA driver knows how much there is, and its processes what they use' "$OUT" "6144, $(
    grep -oE '[0-9]+ MiB' <<<"$plain" | cut -d' ' -f1)"
export ULLAGE_FAKE_INTEGRATED=1
says '... or whose processes are not told either' 0 '[N/A], 6144 MiB, [N/A], [N/A]' \
    --query-gpu=memory.used,ullage.total,ullage.used,ullage.processes --format=csv,noheader
says '... so that none is listed' 0 '' --query-compute-apps=pid --format=csv,noheader
unset ULLAGE_FAKE_INTEGRATED
export ULLAGE_FAKE_NVML=notsupported
query --query-gpu=index
like 'no driver' "$CODE:$OUT$ERR" '^9:ullage: .*driver is not loaded'
unset ULLAGE_FAKE_NVML

if [ "$(id -u)" = 0 ] && unshare --pid --fork --mount-proc true 2>/dev/null; then
    spawn unshare --pid --fork --mount-proc "$GUEST" ctx alloc 10MiB touch "$T/inside" hold
    wait_for 10 test -e "$T/inside"
    # The fake driver lists pids as the process itself counts: 1 here.
    query --query-compute-apps=pid,ullage.where --format=csv,noheader
    like 'a process that a container counts otherwise' "$OUT" '(^|
)1, (here|inside)'
else
    skip 'pid namespaces' 'unshare --pid is not permitted'
fi

# --- names -----------------------------------------------------------------------------------------------------

export ULLAGE_FAKE_NAME=$'odd, "name" \xff\xc3\xa9\ttab'
query --query-gpu=name,index --format=csv,noheader
is 'commas in names become question marks, all else stays' "$OUT" $'odd? "name" \xff\xc3\xa9\ttab, 0'
is '... and JSON is valid' "$("$ULLAGE" query --query-gpu=name --format=json | json 'ascii(d["gpus"][0]["name"])')" \
    "'odd, \"name\" \\ufffd\\xe9\\ttab'"
unset ULLAGE_FAKE_NAME

# --- MIG -------------------------------------------------------------------------------------------------------

cards 8GiB
export ULLAGE_FAKE_MIG=0:3GiB+2GiB
spawn "$GUEST" ctx alloc 1GiB touch "$T/mig" hold
guest=$PID
wait_for 10 test -e "$T/mig"
is 'in MIG mode there is a row for the card, not for its instances' \
    "$("$ULLAGE" query --query-gpu=index,mig.mode.current,utilization.gpu --format=csv,noheader)" '0, Enabled, [N/A]'
card=$("$ULLAGE" query --query-gpu=uuid --format=csv,noheader)
says 'a process has the name of the card, and the numbers of its instances' 0 "$guest, $card, 1, 0" \
    --query-compute-apps=pid,gpu_uuid,ullage.gpu_instance,ullage.compute_instance --format=csv,noheader
instance=MIG-00000000-fa4e-4000-9000-000000000001
says 'an instance can be asked for by its UUID' 0 "0, $instance, 3096 MiB" \
    --query-gpu=index,uuid,memory.total --format=csv,noheader -i "$instance"
says '... and its processes' 0 "$guest, $instance" --query-compute-apps=pid,gpu_uuid --format=csv,noheader -i "$instance"
used=$("$ULLAGE" query --query-gpu=memory.used --format=csv,noheader)
export ULLAGE_FAKE_NVML=onegi
is 'two compute instances of one GPU instance: its memory is told once' \
    "$("$ULLAGE" query --query-gpu=memory.used --format=csv,noheader)" "$used"
unset ULLAGE_FAKE_NVML ULLAGE_FAKE_MIG

# --- without the management library --------------------------------------------------------------------------------

cards 4GiB,6GiB
mkdir "$T/cuda" "$T/nothing"
ln -s "$FAKE/libcuda.so.1" "$T/cuda/"
if ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    skip 'without NVML' 'this machine has it'
else
    export LD_LIBRARY_PATH=$T/cuda
    says 'without NVML the CUDA driver names the cards' 0 \
        '0, Ullage Fake GPU 0, [N/A], 4096 MiB
1, Ullage Fake GPU 1, [N/A], 6144 MiB' \
        --query-gpu=index,name,memory.total,ullage.total --format=csv,noheader
    says '... and cannot say more' 0 '[N/A], [N/A], [N/A], [N/A], [N/A]' \
        --query-gpu=memory.used,utilization.gpu,driver_version,pci.bus_id,ullage.used --format=csv,noheader -i 1
    export LD_LIBRARY_PATH=$T/nothing
    query --query-gpu=index --format=csv
    like 'neither of both libraries' "$CODE:$OUT$ERR" '^12:ullage: libnvidia-ml.so.1 was not found'
fi

done_testing
