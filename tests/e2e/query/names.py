"""Starts processes with random bytes in their names and looks at them in every form of output.

JSON must parse and have each process, with its name as well as UTF-8 can tell it; CSV must have one line
for each process and as many fields as were asked for. The seed is printed; ULLAGE_SEED repeats it.
"""
import json
import os
import random
import subprocess
import sys
import time

ULLAGE, GUEST, T = (os.environ[name] for name in ("ULLAGE", "GUEST", "T"))
SEED = int(os.environ.get("ULLAGE_SEED", random.SystemRandom().randrange(1 << 32)))
HARD = [
    b'"', b"\\", b"\\u0000", b'","pid":1', b"\n", b"\r\n", b"\t\x01\x1f\x7f", b"a,b,c",
    b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8",
    b"x" * 61 + b"\xe2\x82\xac", b"x" * 62 + b"\xf0\x9f\x98\x80", b"\xc3" * 70, b"\x80" * 300, b" ", b"-",
    b"</script>", b"\x1b[31m", b"%s%n%d", b"y" * 3000,
]
rng = random.Random(SEED)


def name():
    if rng.random() < 0.3:
        return rng.choice(HARD)
    return bytes(rng.randrange(1, 256) for _ in range(rng.randrange(1, 90)))


def out(*words):
    done = subprocess.run([ULLAGE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
    if done.returncode:
        raise SystemExit(f"{words}: exit {done.returncode}: {done.stderr!r}")
    return done.stdout


def wait_until_listed(pids):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        listed = {int(pid) for pid in out("query", "--query-compute-apps=pid", "--format=csv,noheader").split()}
        if set(pids) == listed:  # the dead are listed for a moment
            return
        time.sleep(0.02)
    raise SystemExit("the processes, and no others, were never listed")


def look(names):
    """All forms of output, while processes with these names (by pid) run."""
    fields = "pid,process_name,used_memory,ullage.command,ullage.job"
    for form in ("json", "ndjson"):
        text = out("query", "--query-compute-apps=" + fields, "--format=" + form)
        rows = {row["pid"]: row for row in json.loads(text.decode("utf-8"))["processes"]}
        for pid, wanted in names.items():
            # Python replaces a bad sequence as a whole, the writer each byte of it.
            good = wanted.decode("utf-8", "ignore")
            told = rows[pid]["process_name"].replace("\ufffd", "")
            assert told == good, (pid, wanted, rows[pid]["process_name"])
    lines = out("query", "--query-compute-apps=" + fields, "--format=csv,noheader").split(b"\n")[:-1]
    assert len(lines) == len(rows), lines
    assert all(line.count(b", ") == 4 for line in lines), lines
    listed = json.loads(out("ps", "-o", "json").decode("utf-8"))
    held = {p["pid"] for job in listed["jobs"] for p in job["processes"]}
    assert set(names) <= held, (names, held)
    out("ps", "-o", "csv")
    out("ps", "--tree")


def main():
    print("seed", SEED, flush=True)
    looked = 0
    for _ in range(3):
        children = {}
        for _ in range(10):
            argv0 = name()
            words = [argv0, b"ctx", b"alloc", b"1MiB", b"hold"]
            children[subprocess.Popen(words, executable=GUEST, stdout=subprocess.DEVNULL)] = argv0
        names = {child.pid: argv0 for child, argv0 in children.items()}
        try:
            wait_until_listed(names)
            look(names)
        finally:
            for child in children:
                child.kill()
                child.wait()
        looked += len(names)
    print(looked, "names")


if len(sys.argv) == 1:
    # The names are given inside a job, so that ps has them too.
    os.execv(ULLAGE, [ULLAGE, "run", "-q", "-m", "4GiB", "--", sys.executable, sys.argv[0], "inside"])
main()
