"""What contexts take, by the card, by the driver's figures of processes, and by our account: after every step of two
jobs the account must have what the card has, to the byte. Needs a card that nobody else uses, real or fake.

usage: contexts.py [ULLAGE]        prints a table and the checks; exit 0 if all passed
       contexts.py --program       the program in a job: reads steps, answers each
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def program():
    cuda = ctypes.CDLL("libcuda.so.1")
    contexts = []
    for line in sys.stdin:
        word = line.split()[0]
        context = ctypes.c_void_p()
        if word == "init":
            code = cuda.cuInit(0)
        elif word == "primary":
            code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            code = code or cuda.cuCtxSetCurrent(context)
        elif word == "create":
            code = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
            contexts.append(context)
        elif word == "alloc":
            code = cuda.cuMemAlloc_v2(ctypes.byref(context), ctypes.c_size_t(int(line.split()[1])))
        elif word == "destroy":
            code = cuda.cuCtxDestroy_v2(contexts.pop())
        elif word == "release":
            code = cuda.cuDevicePrimaryCtxRelease_v2(0)
        print(code, flush=True)


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Card:
    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        assert self.nvml.nvmlInit_v2() == 0
        self.handle = ctypes.c_void_p()
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0

    def used(self):
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        assert self.nvml.nvmlDeviceGetMemoryInfo_v2(self.handle, ctypes.byref(memory)) == 0
        return memory.used

    def processes(self):
        count, rows = ctypes.c_uint(64), (Process * 64)()
        assert self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), rows) == 0
        return sum(row.used for row in rows[: count.value])


class Job:
    def __init__(self, ullage, name, *options):
        self.process = subprocess.Popen(
            [ullage, "run", "-q", "--name", name, *options, "--", sys.executable, __file__, "--program"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def ask(self, step):
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()

    def answer(self):
        return int(self.process.stdout.readline())

    def do(self, step):
        self.ask(step)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


failed = 0


def check(name, good, told=""):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {name} {told}".rstrip(), flush=True)


def books(ullage):
    jobs = json.loads(subprocess.run([ullage, "ps", "-o", "json"], capture_output=True, text=True).stdout)["jobs"]
    devices = [device for job in jobs for device in job["devices"]]
    return sum(d["held_bytes"] for d in devices), sum(d["unlisted_bytes"] for d in devices)


def compare(ullage, card, base, what):
    """What is charged a moment later (code) has until then."""
    for _ in range(20):
        held, unlisted = books(ullage)
        used, named = card.used(), card.processes()
        if held == used - base and held - unlisted == named:
            break
        time.sleep(0.1)
    print(f"{what:36}{used / MIB:12.4f}{named / MIB:12.4f}{held / MIB:12.4f}{unlisted / MIB:10.4f}")
    check(f"{what}: the account is the card's", held == used - base, f"({held} of {used} - {base})")
    check(f"{what}: and the figures' with what is listed for nobody", held - unlisted == named)
    return held


def at_once(ullage, card):
    """Two jobs that know nothing yet make their contexts at the same moment: each may see both. A second one, made when
    nobody else makes any, puts that right."""
    jobs = [Job(ullage, name, "-m", "8GiB") for name in ("c", "d")]
    check("cuInit of two", all(job.do("init") == 0 for job in jobs))
    base = card.used()
    for job in jobs:
        job.ask("primary")
    check("two contexts at once", all(job.answer() == 0 for job in jobs))
    held, unlisted = books(ullage)
    print(f"account {held / MIB:.4f} MiB, {unlisted / MIB:.4f} of it unlisted; the card has {(card.used() - base) / MIB:.4f}")
    check("charged at least what NVML shows", held - unlisted == card.processes())
    check("their second contexts", all(job.do("create") == 0 for job in jobs))
    compare(ullage, card, base, "two contexts each")
    check("they end well", all(job.end() == 0 for job in jobs))


def main():
    ullage = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ULLAGE", "ullage")
    card = Card()
    for _ in range(50): # those before may just be ending
        if card.used() == 0:
            break
        time.sleep(0.1)
    if card.used() != 0:
        sys.exit(f"the card is in use ({card.used() / MIB} MiB)")
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        print(f"{'step':36}{'card MiB':>12}{'processes':>12}{'account':>12}{'unlisted':>10}")
        first = Job(ullage, "a", "-m", "8GiB")
        check("cuInit", first.do("init") == 0)
        base = card.used()
        print(f"cuInit alone takes {base / MIB:.4f} MiB, which is nobody's")
        check("a context", first.do("primary") == 0)
        one = compare(ullage, card, base, "A: primary context")
        check("1 MiB", first.do(f"alloc {MIB}") == 0)
        compare(ullage, card, base, "A: an allocation")
        for number in ("second", "third"):
            check(f"a {number} context", first.do("create") == 0)
            compare(ullage, card, base, f"A: a {number} context")
        other = Job(ullage, "b", "-m", "8GiB")
        check("another job", other.do("init") == 0 and other.do("primary") == 0)
        compare(ullage, card, base, "B: primary context")
        check("a context and its end", other.do("create") == 0 and other.do("destroy") == 0)
        compare(ullage, card, base, "B: a second, destroyed again")
        check("the others' end", first.do("destroy") == 0 and first.do("destroy") == 0)
        compare(ullage, card, base, "A: two contexts destroyed")
        check("both jobs end well", first.end() == 0 and other.end() == 0)
        for _ in range(50):
            if card.used() == 0:
                break
            time.sleep(0.1)
        check("nothing is left on the card", card.used() == 0, f"({card.used()})")
        with open(os.path.join(state, "ullage", "contexts")) as file:
            print("remembered:", file.read().strip())
        # A job that knows what a context takes is held to its line from the first one on.
        tight = Job(ullage, "tight", "-m", str(one - MIB))
        check("a budget 1 MiB below a context: refused", tight.do("init") == 0 and tight.do("primary") == 2)
        tight.end()
        exact = Job(ullage, "exact", "-m", str(one))
        check("a budget of just a context: made", exact.do("init") == 0 and exact.do("primary") == 0)
        check("and nothing beyond it", exact.do(f"alloc {2 * MIB}") == 2)
        exact.end()
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        at_once(ullage, card)
    sys.exit(failed > 0)


if __name__ == "__main__":
    program() if "--program" in sys.argv else main()
