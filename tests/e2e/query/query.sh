#!/usr/bin/env bash
#
# `ullage query` against what nvidia-smi of driver 580.159 printed for the same words on an H200.
#
# shellcheck disable=SC2016 # scripts for other shells
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# says NAME EXIT OUTPUT WORD...: the exit code, and standard output to the byte (with "." at its end, so
# that ends of lines count)
says() {
    local name=$1 code=$2 wanted=$3
    shift 3
    capture "$ULLAGE" query "$@"
    is "$name" "$CODE:$(cat "$T/.out" && echo .)" "$code:$wanted."
}

# The H200 as it was: 2 processes with 1 GiB each.
cards h200
export ULLAGE_FAKE_NAME='NVIDIA H200' ULLAGE_FAKE_CONTEXT=526MiB
spawn "$GUEST" ctx alloc 1GiB touch "$T/one" hold
first=$PID
wait_for 10 test -e "$T/one"
printf -v odd '/tmp/a,b "c\x27 \xc3\xa9\xff\tz'
spawn bash -c 'exec -a "$1" "$2" ctx alloc 1GiB touch "$3" hold' bash "$odd" "$GUEST" "$T/two"
second=$PID
wait_for 10 test -e "$T/two"

# --- literally ----------------------------------------------------------------------------------------

spawn "$ULLAGE" query --query-gpu=index,memory.used,memory.total,utilization.gpu --format=csv -l 5
loop=$PID
wait_for 10 grep -q '^0,' "$T/$loop.out"
used=$("$ULLAGE" query --query-gpu=memory.used --format=csv,noheader,nounits)
between 'both processes are in memory.used' "$used" 3072 3120
is 'index, memory and load, every 5 seconds: the first round is there at once' "$(cat "$T/$loop.out")" \
    "index, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
0, $used MiB, 143771 MiB, 0 %"
check 'and it goes on' test -e "/proc/$loop"
kill "$loop"
held=$("$ULLAGE" query --query-compute-apps=used_memory --format=csv,noheader,nounits | head -n 1)
between 'a process with 1 GiB' "$held" 1540 1552
says 'pids, memory and names of processes' 0 "pid, used_gpu_memory [MiB], process_name
$first, $held MiB, $GUEST
$second, $held MiB, ${odd//,/?}
" --query-compute-apps=pid,used_memory,process_name --format=csv

# --- cards ------------------------------------------------------------------------------------------------

uuid=GPU-00000000-fa4e-4000-8000-000000000000
says 'names' 0 "name, uuid, pci.bus_id, index, count, serial
NVIDIA H200, $uuid, 00000000:01:00.0, 0, 1, 1653724050700
" --query-gpu=name,uuid,pci.bus_id,index,count,serial --format=csv
says 'other names of fields have the same header' 0 "name, serial, uuid, pci.bus_id, clocks.current.sm [MHz]
NVIDIA H200, 1653724050700, $uuid, 00000000:01:00.0, 1980 MHz
" --query-gpu=gpu_name,gpu_serial,gpu_uuid,gpu_bus_id,clocks.sm --format=csv
says 'parts of the PCI address' 0 'pci.domain, pci.bus, pci.device, pci.device_id
0x0000, 0x01, 0x00, 0xFA4E10DE
' --query-gpu=pci.domain,pci.bus,pci.device,pci.device_id --format=csv
says 'MiB are rounded up, as nvidia-smi does' 0 'memory.total [MiB], memory.reserved [MiB]
143771 MiB, 616 MiB
' --query-gpu=memory.total,memory.reserved --format=csv
says 'power, temperature, clocks, modes' 0 \
    'power.draw [W], power.limit [W], temperature.gpu, clocks.max.memory [MHz], pstate, fan.speed [%]
125.84 W, 700.00 W, 41, 3201 MHz, P0, [N/A]
' --query-gpu=power.draw,power.limit,temperature.gpu,clocks.max.memory,pstate,fan.speed --format=csv
says 'without units, which the header has all the same' 0 'power.draw [W], fan.speed [%], compute_cap, mig.mode.current
125.84, [N/A], 9.0, Disabled
' --query-gpu=power.draw,fan.speed,compute_cap,mig.mode.current --format=csv,nounits
says 'without a header' 0 '0, 143771 MiB
' --query-gpu=index,memory.total --format=csv,noheader
read -r total reserved used free <<<"$("$ULLAGE" query --format=json \
    --query-gpu=memory.total,memory.reserved,memory.used,memory.free |
    json '" ".join(str(d["gpus"][0]["memory." + k]) for k in ("total", "reserved", "used", "free"))')"
is 'used + reserved + free = total' "$((used + reserved + free))" "$total"
like 'the time' "$("$ULLAGE" query --query-gpu=timestamp --format=csv,noheader)" \
    '^20[0-9]{2}/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}$'

# --- how words are read ------------------------------------------------------------------------------------

two=$'index, name\n0, NVIDIA H200\n' one=$'index\n0\n'
says 'empty fields are passed over' 0 "$two" --query-gpu=index,,name, --format=csv
says 'no field at all' 0 $'\n\n' --query-gpu= --format=csv
says 'no field of processes' 0 $'\n\n\n' --query-compute-apps= --format=csv
says 'a field twice' 0 $'index, index\n0, 0\n' --query-gpu=index,index
says 'values as words of their own' 0 "$one" --query-gpu index --format csv
says 'any order' 0 "$one" --format=csv --query-gpu=index
says 'no format' 0 "$one" --query-gpu=index
says 'a format without a value' 0 "$one" --query-gpu=index --format
says 'an empty format' 0 "$one" --query-gpu=index --format=
says 'a format without csv' 0 $'0\n' --query-gpu=index --format=nounits,noheader
says 'of the same query twice the last one counts' 0 $'name\nNVIDIA H200\n' --query-gpu=index --query-gpu=name
unknown() { # NAME FIELD WORD...
    says "$1" 2 "Field \"$2\" is not a valid field to query."$'\n\n' "${@:3}"
    like '... and where the fields are listed' "$ERR" '^ullage: .*--help-query-'
}
unknown 'an unknown field' foo --query-gpu=index,foo,bar --format=csv
unknown 'nothing is trimmed' ' name ' '--query-gpu=index, name , uuid' --format=csv
unknown 'letters count' INDEX --query-gpu=INDEX
unknown 'a field of processes for cards' pid --query-gpu=pid
unknown 'a field of cards for processes' index --query-compute-apps=pid,index
unknown 'nor is it written to a file' foo --query-gpu=foo -f "$T/none"
check '... which is not made' test ! -e "$T/none"
bad=$'Format modifier is not recognized.\n'
says 'an unknown format' 2 "$bad" --query-gpu=index --format=csv,foo
says 'xml' 2 "$bad" --query-gpu=index --format=xml
says 'CSV in capitals' 2 "$bad" --query-gpu=index --format=CSV
says 'both queries' 2 $'Only one --query-* switch can be used at a time.\n' \
    --query-gpu=index --query-compute-apps=pid
says 'an unknown option' 2 '' --query-gpu=index --foo
says 'a word too much' 2 '' --query-gpu=index --format=csv foo
says 'a query without a value' 2 '' --query-gpu --format=csv
says 'nothing asked' 2 '' --format=csv

# --- which cards -----------------------------------------------------------------------------------------------

for id in 0 0,0 0,7 7,0 "$uuid" "foo,$uuid" 00000000:01:00.0 0000:01:00.0 1653724050700; do
    says "-i $id" 0 "$one" --query-gpu=index --format=csv -i "$id"
done
for id in 5 foo GPU- "${uuid%0}" 00000000:09:00.0 ''; do
    says "-i '$id' is no card" 6 $'No devices were found\n' --query-gpu=index --format=csv -i "$id"
done
says '-i for processes' 0 $'pid\n'"$first"$'\n'"$second"$'\n' --query-compute-apps=pid -i 0
says '... of no card' 6 $'No devices were found\n' --query-compute-apps=pid -i 5

# --- again and again ----------------------------------------------------------------------------------------------

says '-lms with a number of rounds' 0 $'index\n0\n0\n0\n' --query-gpu=index -lms 20 -n 3
says '-lms=' 0 $'index\n0\n0\n' --query-gpu=index -lms=20 --rounds=2
says '--loop-ms' 0 $'0\n0\n' --query-gpu=index --format=csv,noheader --loop-ms 20 -n 2
says '-l without a number' 0 "$one" --query-gpu=index -n 1 -l
for loop in '-l 0' '-l x' '-l 1.5' '-l -1' '-lms 0' '-lms 99999999999999999999' '-n 0' '-n x'; do
    # shellcheck disable=SC2086
    says "$loop is refused" 2 '' --query-gpu=index $loop
done
start=$(date +%s%N)
"$ULLAGE" query --query-gpu=index -lms 100 -n 6 >"$T/paced"
between 'rounds keep the pace' "$((($(date +%s%N) - start) / 1000000))" 500 60000
capture bash -c '"$0" query --query-gpu=index --format=csv -lms 10 | head -n 2; echo "${PIPESTATUS[0]}"' "$ULLAGE"
is 'a reader that has enough ends it, quietly' "$OUT:$ERR" $'index\n0\n141:'
capture bash -c 'trap "" PIPE; "$0" query --query-gpu=index -lms 10 | head -n 1; echo "${PIPESTATUS[0]}"' "$ULLAGE"
is '... also where that signal was ignored' "$OUT:$ERR" $'index\n141:'
"$ULLAGE" query --query-gpu=index -l 60 >"$T/flushed" &
background+=("$!")
check 'a round is there before the next one begins' wait_for 5 grep -q '^0$' "$T/flushed"
kill $!

# --- files ----------------------------------------------------------------------------------------------------------

says '-f writes into a file' 0 '' --query-gpu=index -f "$T/file"
is '... the same' "$(cat "$T/file" && echo .)" "$one."
says '--filename too' 0 '' --query-gpu=index --format=csv,noheader "--filename=$T/file"
is '... in place of what was there' "$(cat "$T/file")" 0
says 'a file that cannot be made' 1 '' --query-gpu=index -f "$T/no/such/folder"
like '... and why' "$ERR" 'cannot write .*no/such/folder.: No such file'
capture bash -c '"$0" query --query-gpu=index >/dev/full' "$ULLAGE"
like 'a full disk' "$CODE:$ERR" '^1:ullage: .*No space left'

# --- JSON --------------------------------------------------------------------------------------------------------------

is 'JSON in bytes, ratios and null' "$(ULLAGE_FAKE_UTIL=37,12 "$ULLAGE" query --format=json \
    --query-gpu=index,utilization.gpu,fan.speed,memory.total,power.draw,clocks.sm,index | json 'd["gpus"]')" \
    '[{"index": 0, "utilization.gpu": 0.37, "fan.speed": null, "memory.total": 150754820096, "power.draw": 125.838, "clocks.current.sm": 1980000000}]'
"$ULLAGE" query --query-compute-apps=pid,process_name --format=json -lms 10 -n 3 >"$T/lines"
is 'again and again: one document a line' "$(wc -l <"$T/lines"):$(head -n 1 "$T/lines" | json 'd["processes"][0]["pid"]')" "3:$first"
"$ULLAGE" query --query-compute-apps=pid,process_name --format=ndjson >"$T/lines"
is '... or once, when asked' "$(wc -l <"$T/lines")" 1

# --- our own fields ------------------------------------------------------------------------------------------------------

says 'a process of no job' 0 "$first, [N/A], free, [N/A], [N/A], here
$second, [N/A], free, [N/A], [N/A], here
" --query-compute-apps=pid,ullage.job,ullage.state,ullage.budget,ullage.held,ullage.where --format=csv,noheader
# The driver lists the dead for a moment.
# shellcheck disable=SC2317 # for wait_for
listed() {
    [ "$("$ULLAGE" query --query-compute-apps=pid --format=csv,noheader | wc -l)" = "$1" ]
}
kill "$second"
wait_for 10 listed 1
spawn "$ULLAGE" run -q -m 4GiB --name 'a,job' -- "$GUEST" ctx alloc 2GiB free alloc 1GiB touch "$T/three" hold
job=$PID
wait_for 10 test -e "$T/three"
says 'a process of a job' 0 "[N/A], free, [N/A]
a?job, held, 4096 MiB
" --query-compute-apps=ullage.job,ullage.state,ullage.budget --format=csv,noheader
own=$("$ULLAGE" query --query-compute-apps=ullage.held,ullage.peak,used_memory --format=csv,noheader,nounits | tail -n 1)
between 'what it holds' "${own%%,*}" 1540 1560
between '... and held at most' "$(cut -d' ' -f2 <<<"$own" | tr -d ,)" 2560 2590
like 'its command line' "$("$ULLAGE" query --query-compute-apps=ullage.command --format=csv,noheader | tail -n 1)" 'alloc 2GiB'
is 'the card: jobs, budgets, refusals, processes' \
    "$("$ULLAGE" query --query-gpu=ullage.jobs,ullage.budget,ullage.refusals,ullage.processes --format=csv)" \
    $'ullage.jobs, ullage.budget [MiB], ullage.refusals, ullage.processes\n1, 4096 MiB, 0, 2'
is 'what jobs hold and what others do add up' "$("$ULLAGE" query --format=json \
    --query-gpu=ullage.held,ullage.others,ullage.used,memory.used |
    json 'all(g["ullage.held"] + g["ullage.others"] == g["ullage.used"] == g["memory.used"] for g in d["gpus"])')" true
kill "$job" "$first"
wait_for 10 listed 0
says 'no process' 0 $'pid, used_gpu_memory [MiB]\n' --query-compute-apps=pid,used_memory --format=csv

# A job inside a job counts once.
spawn "$ULLAGE" run -q -m 4GiB --name outer -- "$ULLAGE" run -q -m 2GiB --name inner -- "$GUEST" ctx alloc 1GiB touch "$T/four" hold
wait_for 10 test -e "$T/four"
is 'a job inside a job' "$("$ULLAGE" query --query-gpu=ullage.jobs,ullage.budget --format=csv,noheader):$(
    "$ULLAGE" query --query-compute-apps=ullage.job,ullage.budget --format=csv,noheader)" '1, 4096 MiB:inner, 2048 MiB'
between '... holds once what it holds' "$("$ULLAGE" query --query-gpu=ullage.held --format=csv,noheader,nounits)" 1540 1560

# Inside a job the card is the budget, as it is for nvidia-smi there.
run -q -m 2GiB -- "$ULLAGE" query --query-gpu=memory.total,memory.reserved,memory.used,memory.free --format=csv,noheader
is 'inside a job' "$CODE:$OUT" '0:2048 MiB, 0 MiB, 0 MiB, 2048 MiB'

# --- help ------------------------------------------------------------------------------------------------------------------

for table in gpu compute-apps; do
    capture "$ULLAGE" query "--help-query-$table"
    fields=$(sed -nE 's/^"([^"]*)".*/\1/p' <<<"$OUT" | paste -sd,)
    check "all fields of --help-query-$table can be asked at once" "$ULLAGE" query "--query-$table=$fields" --format=csv
    is '... and each has a value in every row' \
        "$("$ULLAGE" query "--query-$table=$fields" --format=csv | awk -F', ' '{ print NF }' | sort -u | wc -l)" 1
done
capture "$ULLAGE" query --help
like 'help' "$CODE:$OUT" '^0:Usage: ullage query '

done_testing
