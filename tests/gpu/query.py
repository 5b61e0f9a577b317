"""Asks nvidia-smi and `ullage query` the same and compares what they print; see query.sh.

What changes from one moment to the next (load, power, temperature, clocks, time) is compared by its form
and within a tolerance; memory must be equal in one of a few tries, since nothing but the processes that
this starts uses the card. Everything else, headers and messages included, must be equal to the byte.
"""
import os
import re
import signal
import subprocess
import sys
import time

ULLAGE = os.environ["ULLAGE"]
SMI = os.environ.get("SMI", "nvidia-smi").split()
TRACE = sys.argv[1]
CSV = "--format=csv"
VOLATILE = re.compile(
    rb"timestamp|utilization|power\.draw|temperature|clocks\.current|pstate|pcie\.link\.(gen|width)\..*current|fan"
)
passed = failed = 0


def check(name, good, *lines):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok: " if good else "FAILED: ") + name, *(() if good else lines), sep="\n    ", flush=True)


def ask(program, words):
    done = subprocess.run([*program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    return done.returncode, done.stdout


def number(text):
    found = re.match(rb"-?[0-9.]+", text)
    return float(found.group()) if found else None


def alike(field, left, right):
    """Two values of a field that changes: the same form, and figures that are near."""
    if re.sub(rb"[0-9]+", b"9", left) == re.sub(rb"[0-9]+", b"9", right) and b"timestamp" in field:
        return True
    a, b = number(left), number(right)
    if a is None or b is None:
        return left == right
    units = left.lstrip(b"0123456789.") == right.lstrip(b"0123456789.")
    return units and abs(a - b) <= max(30, 0.5 * max(a, b))


def same_cells(left, right):
    """Names of the fields in which two outputs with a header differ."""
    a, b = left.split(b"\n"), right.split(b"\n")
    if a[0] != b[0] or len(a) != len(b):
        return ["header or number of rows"]
    header = a[0].split(b", ")
    wrong = []
    for row_a, row_b in zip(a[1:-1], b[1:-1]):
        cells_a, cells_b = row_a.split(b", "), row_b.split(b", ")
        if len(cells_a) != len(header) or len(cells_b) != len(header):
            return ["number of fields"]
        for field, x, y in zip(header, cells_a, cells_b):
            if x != y and not (VOLATILE.search(field) and alike(field, x, y)):
                wrong.append(f"{field.decode()}: nvidia-smi {x!r}, ullage {y!r}")
    return wrong


def equal(name, *words):
    """Output and exit code to the byte, in one of five tries."""
    for _ in range(5):
        theirs, ours = ask(SMI, words), ask([ULLAGE, "query"], words)
        if theirs == ours:
            return check(name, True)
        time.sleep(0.2)
    check(name, False, f"nvidia-smi: {theirs}", f"ullage:     {ours}")


def near(name, *words):
    """The same, but cells that change within a tolerance."""
    for _ in range(5):
        theirs, ours = ask(SMI, words), ask([ULLAGE, "query"], words)
        wrong = same_cells(theirs[1], ours[1]) if theirs[0] == ours[0] else ["exit code"]
        if not wrong:
            return check(name, True)
        time.sleep(0.2)
    check(name, False, *wrong)


def listed(table):
    text = ask([ULLAGE, "query"], [f"--help-query-{table}"])[1].decode()
    fields = re.findall(r'^"([^"]+)"(?: or "([^"]+)")?$', text, re.M)
    return [name for pair in fields for name in pair if name and not name.startswith("ullage.")]


def hold(name, card=0):
    """A process of this name that holds memory on a card; returns when it does."""
    words = [name, b"replay", os.fsencode(TRACE), b"--hold", b"300"]
    world = dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=str(card))
    child = subprocess.Popen(words, executable=ULLAGE, stdout=subprocess.DEVNULL, env=world)
    for _ in range(300):
        if str(child.pid).encode() in ask([ULLAGE, "query"], ["--query-compute-apps=pid", CSV])[1].split():
            break
        time.sleep(0.1)
    return child


def wait_until_steady():
    before = None
    for _ in range(100):
        now = ask([ULLAGE, "query"], ["--query-gpu=memory.used", CSV])
        if now == before:
            return
        before = now
        time.sleep(1)


def compare_cards():
    equal("index, memory and names", "--query-gpu=index,memory.used,memory.total,name,uuid,pci.bus_id", CSV)
    equal("all memory", "--query-gpu=memory.total,memory.reserved,memory.used,memory.free", CSV + ",noheader,nounits")
    near("the literal query", "--query-gpu=index,memory.used,memory.total,utilization.gpu", CSV)
    known = [field for field in listed("gpu")
             if ask(SMI, ["--query-gpu=" + field, CSV])[0] == 0]
    print("not fields of this nvidia-smi:", ", ".join(sorted(set(listed("gpu")) - set(known))) or "none")
    for field in known:
        (near if VOLATILE.search(field.encode()) else equal)("field " + field, "--query-gpu=" + field, CSV)
    near("all of them at once", "--query-gpu=" + ",".join(known), CSV)
    near("without units", "--query-gpu=" + ",".join(known), CSV + ",nounits")


def compare_processes():
    equal("the literal query of processes", "--query-compute-apps=pid,used_memory,process_name", CSV)
    near("all fields of processes", "--query-compute-apps=" + ",".join(listed("compute-apps")), CSV)
    equal("processes without units", "--query-compute-apps=pid,gpu_uuid,used_memory", CSV + ",noheader,nounits")
    equal("processes of card 0", "--query-compute-apps=pid", CSV, "-i", "0")


def compare_words():
    uuid = ask(SMI, ["--query-gpu=uuid", CSV + ",noheader", "-i", "0"])[1].decode().strip()
    bus = ask(SMI, ["--query-gpu=pci.bus_id", CSV + ",noheader", "-i", "0"])[1].decode().strip()
    gpu = "--query-gpu=index"
    for words in (
        ["--query-gpu=foo", CSV], ["--query-gpu=index,foo,bar", CSV], ["--query-gpu=", CSV],
        ["--query-gpu=index,,name,", CSV], ["--query-gpu=index, name , uuid", CSV], ["--query-gpu=INDEX", CSV],
        ["--query-gpu=pid", CSV], ["--query-compute-apps=index", CSV], ["--query-compute-apps=", CSV],
        [gpu], [gpu, "--format"], [gpu, "--format="], [gpu, "--format=foo"], [gpu, "--format=csv,foo"],
        [gpu, "--format=noheader"], [gpu, "--format=nounits,noheader,csv"], [gpu, "--format=csv, noheader"],
        [gpu, "--format=CSV"], ["--query-gpu", "index", "--format", "csv"], [CSV, gpu],
        [gpu, "--query-gpu=name", CSV], [gpu, "--query-compute-apps=pid", CSV], ["--query-gpu=index,index", CSV],
        [gpu, CSV, "-i", "0"], [gpu, CSV, "--id=0"], [gpu, CSV, "--id", "0"], [gpu, CSV, "-i", "0,0"],
        [gpu, CSV, "-i", "99"], [gpu, CSV, "-i", "0,99"], [gpu, CSV, "-i", "foo"], [gpu, CSV, "-i", uuid],
        [gpu, CSV, "-i", "1"], [gpu, CSV, "-i", "1,0"], [gpu, CSV, "-i", "1,99"],
        ["--query-compute-apps=pid,gpu_bus_id", CSV, "-i", "1"], [gpu, CSV, "-i", uuid[:12]], [gpu, CSV, "-i", bus], ["--query-compute-apps=pid", CSV, "-i", "99"],
    ):
        equal("words " + " ".join(words), *words)
    for path in ("/tmp/ullage-query-smi", "/tmp/ullage-query-own"):
        program = SMI if path.endswith("smi") else [ULLAGE, "query"]
        ask(program, [gpu + ",name", CSV, "-f", path])
    with open("/tmp/ullage-query-smi", "rb") as theirs, open("/tmp/ullage-query-own", "rb") as ours:
        check("-f writes the same file", theirs.read() == ours.read())


def rounds(program, *words):
    """What comes out within a second and a half, with the time at which each line came."""
    child = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.set_blocking(child.stdout.fileno(), False)
    begin, pieces = time.monotonic(), []
    while time.monotonic() - begin < 1.5:
        piece = child.stdout.read()
        if piece:
            pieces.append(piece)
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    child.wait()
    return b"".join(pieces), len(pieces)


def compare_rounds():
    for words in (["-lms", "200"], ["-lms=200"], ["--loop-ms=200"], ["-l", "1"], ["--loop=1"], ["-l"], ["-lms"]):
        theirs = rounds(SMI, "--query-gpu=index,memory.total", CSV, *words)
        ours = rounds([ULLAGE, "query"], "--query-gpu=index,memory.total", CSV, *words)
        check("rounds with " + " ".join(words),
              set(theirs[0].split(b"\n")) == set(ours[0].split(b"\n")) and abs(theirs[1] - ours[1]) <= 2,
              f"nvidia-smi: {theirs}", f"ullage: {ours}")
    for program in (SMI, [ULLAGE, "query"]):
        child = subprocess.Popen([*program, "--query-gpu=index", CSV, "-lms", "50"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        child.stdout.close()
        check(f"{program[-1]} ends by SIGPIPE, quietly", child.wait(20) == -signal.SIGPIPE and not child.stderr.read())


def makes_no_context():
    words = ["--query-compute-apps=pid", CSV + ",noheader"]
    before = ask(SMI, words)
    watcher = subprocess.Popen([ULLAGE, "query", "--query-gpu=memory.used,ullage.held,ullage.used", CSV, "-lms", "20"],
                               stdout=subprocess.DEVNULL)
    time.sleep(1)
    during = ask(SMI, words)
    watcher.kill()
    watcher.wait()
    check("watching makes no context", before == during, f"before {before}", f"during {during}")


def adds_up():
    import json
    words = ["--query-gpu=memory.total,memory.reserved,memory.used,memory.free", "--format=json"]
    for gpu in json.loads(ask([ULLAGE, "query"], words)[1])["gpus"]:
        total, *parts = (gpu["memory." + part] for part in ("total", "reserved", "used", "free"))
        check("reserved + used + free = total", sum(parts) == total, str(gpu))


def jobs():
    """What a job holds by its account against nvidia-smi's figure for its process."""
    words = [ULLAGE, "run", "-q", "-m", "8GiB", "--name", "held", "--", ULLAGE, "replay", TRACE,
             "--preallocate", "--hold", "300"]
    job = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    query = ["--query-compute-apps=used_memory,ullage.held,ullage.job", CSV + ",noheader,nounits"]
    found = []
    for _ in range(200):
        rows = [row.split(b", ") for row in ask([ULLAGE, "query"], query)[1].splitlines()]
        found = [row for row in rows if row[2] == b"held"]
        if found and float(found[0][1]) > 2000:
            break
        time.sleep(0.1)
    time.sleep(1)
    rows = [row.split(b", ") for row in ask([ULLAGE, "query"], query)[1].splitlines()]
    found = [row for row in rows if row[2] == b"held"]
    check("a job's account agrees with the driver's figure to 16 MiB",
          len(found) == 1 and abs(float(found[0][0]) - float(found[0][1])) <= 16, str(rows))
    for condition, code in (("held>1GiB", 1), ("held>99%", 0)):
        got = subprocess.run([ULLAGE, "ps", "--check", condition], stderr=subprocess.DEVNULL).returncode
        check(f"ps --check '{condition}' exits {code}", got == code, f"got {got}")
    words = [ULLAGE, "run", "-q", "-m", "8GiB", "--"]
    query = ["--query-gpu=memory.total,memory.used,memory.free", CSV]
    check("inside a job both see the budget", ask([*words, *SMI], query) == ask([*words, ULLAGE, "query"], query),
          str(ask([*words, *SMI], query)), str(ask([*words, ULLAGE, "query"], query)))
    job.terminate()
    job.wait()


def odd_names():
    """For people: what nvidia-smi makes of names that ullage treats in its own way."""
    for name in (b"two\nlines", b"y" * 3000, b"z" * 20000, b""):
        child = hold(name)
        words = ["--query-compute-apps=pid,process_name", CSV + ",noheader"]
        mine = [[row for row in ask(program, words)[1].split(b"\n") if str(child.pid).encode() in row]
                for program in (SMI, [ULLAGE, "query"])]
        print(f"info: a process called {name[:20]!r} of {len(name)} bytes:", "equal" if mine[0] == mine[1] else
              [[row[:60] + b"..." + str(len(row)).encode() for row in rows] for rows in mine])
        child.kill()
        child.wait()


equal("no process", "--query-compute-apps=pid,used_memory,process_name", CSV)
cards = len(ask(SMI, ["--query-gpu=index", CSV + ",noheader"])[1].split())
children = [hold(b"/opt/plain"), hold(b'/tmp/a,b "c\' \xc3\xa9\xff\tz'), hold(b"last", cards - 1)]
try:
    wait_until_steady()
    compare_cards()
    compare_processes()
    compare_words()
    compare_rounds()
    makes_no_context()
    adds_up()
    jobs()
    odd_names()
finally:
    for held in children:
        held.kill()
        held.wait()
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
