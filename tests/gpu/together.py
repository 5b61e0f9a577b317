"""Threads that free small blocks of one page at the same moment, while another takes all that the budget has left: what the
card holds, sampled all the time, is never above the budget. Needs a card that nobody else uses, real or fake.

usage: together.py [ULLAGE [BUDGET_MIB]]     prints what was seen; exit 0 if the check passed
       together.py --program ROUNDS          the program in a job
"""
import ctypes
import subprocess
import sys
import threading

from contexts import MIB, Card

THREADS, SMALL, PAGE, OUT_OF_MEMORY = 4, 256 << 10, 2 * MIB, 2


def program(rounds):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()

    def ok(code):
        if code:
            sys.exit(f"a call gave {code}")

    def take(size):
        at = ctypes.c_void_p()
        code = cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size))
        if code != OUT_OF_MEMORY:
            ok(code)
        return None if code else at

    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    everything = free.value // PAGE * PAGE
    left, lock, together = [0], threading.Lock(), threading.Barrier(THREADS + 1)
    granted = refused = 0

    def hold():
        ok(cuda.cuCtxSetCurrent(context))
        for _ in range(rounds):
            with lock:
                at = take(SMALL)
            together.wait()
            ok(cuda.cuMemFree_v2(at))
            with lock:
                left[0] -= 1
            together.wait()

    threads = [threading.Thread(target=hold) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        left[0] = THREADS
        together.wait()
        while left[0]:
            at = take(everything)
            granted, refused = granted + (at is not None), refused + (at is None)
            if at is not None:
                ok(cuda.cuMemFree_v2(at))
        together.wait()
    for thread in threads:
        thread.join()
    at = take(everything)
    print(f"{rounds} rounds, all of {everything >> 20} MiB granted {granted} times, refused {refused} times")
    if at is None:
        sys.exit("what nobody holds was refused at the end")


def main(ullage="ullage", budget_mib="1024"):
    card, most = Card(), 0
    if ctypes.CDLL("libcuda.so.1").cuInit(0):  # what the first one takes on a card that nobody uses is nobody's
        sys.exit("no card")
    before = card.used()
    job = subprocess.Popen([ullage, "run", "-q", "-m", budget_mib + "MiB", "--", sys.executable, __file__, "--program", "300"])
    samples = 0
    while job.poll() is None:
        most, samples = max(most, card.used() - before), samples + 1
    print(f"the card's peak {most / MIB:.2f} MiB of a budget of {budget_mib} MiB, {samples} samples")
    return job.returncode != 0 or most > int(budget_mib) * MIB


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        sys.exit(program(int(sys.argv[2])))
    sys.exit(main(*sys.argv[1:]))
