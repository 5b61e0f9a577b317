"""Memory, reports and guards of a real pool, over memory of this machine or over the fake driver.

usage: test_memory.py       ULLAGE_TORCH_LIBRARY is the library, ULLAGE_TEST_DEVICE what its pools
are over
"""

import ctypes
import os
import re
import subprocess
import sys
import threading
import unittest

import ullage
from ullage import _library

GiB, MiB = 1 << 30, 1 << 20
DEVICE = os.environ.get("ULLAGE_TEST_DEVICE", "host:6GiB")
LIMIT = 2 * GiB


def allocate(size, device=0):
    address, message = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    status = _library.load().ullage_torch_try_alloc(
        size, device, None, ctypes.byref(address), message, len(message)
    )
    _library.check(status, message.value.decode())
    return address


def free(address):
    _library.load().ullage_torch_free(address, 0, 0, None)


class Memory(unittest.TestCase):
    def test_before_and_after(self):
        # The names and the order of the C struct.
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
        with open(os.path.join(root, "include", "ullage", "stats.h")) as header:
            fields = re.findall(r"X\((uint64_t|double), (\w+),", header.read())
        ctype = {"uint64_t": ctypes.c_uint64, "double": ctypes.c_double}
        self.assertEqual(tuple((name, ctype[kind]) for kind, name in fields), _library.STATS)

        address = allocate(100 * MiB)
        info = ullage.memory_info()
        self.assertEqual((info["current"], info["requested"]), (100 * MiB, 100 * MiB))
        self.assertGreaterEqual(info["held"], 100 * MiB)
        self.assertEqual((info["limit"], info["available"]), (LIMIT, LIMIT))
        self.assertEqual(info["device_total"], 6 * GiB)
        self.assertEqual(ullage.memory_info("cuda:0"), info)
        self.assertEqual(ullage.memory_info(7)["current"], 0)
        self.assertEqual(ullage.stats(7), {})
        self.assertEqual(ullage.stats()["count"], 1)
        free(address)
        self.assertEqual(ullage.memory_info()["current"], 0)
        self.assertGreaterEqual(ullage.memory_info()["peak"], 100 * MiB)
        ullage.reset_memory_stats()
        self.assertEqual(ullage.memory_info()["peak"], 0)
        for device in ("gpu", "cuda:x", "cpu"):
            with self.assertRaises(ValueError):
                ullage.memory_info(device)

    def test_report(self):
        held = allocate(1500 * MiB)
        with self.assertRaisesRegex(
            ullage.OutOfMemory, r"CUDA out of memory\. Tried to allocate 600\.0 MiB on GPU 0\."
        ):
            allocate(600 * MiB)
        report = ullage.report()
        self.assertIn("Tried to allocate 600.0 MiB", report)
        self.assertIn("device 0: in use 1.5 GiB in 1 piece", report)
        free(held)
        self.assertIn("in use 0 B in 0 pieces", ullage.report())

    def test_limit(self):
        ullage.set_memory("50%")
        self.assertEqual(ullage.memory_info()["limit"], 3 * GiB)
        ullage.set_memory("1GiB")
        with self.assertRaises(ullage.OutOfMemory):
            allocate(GiB + 1)
        with self.assertRaises(ValueError):
            ullage.set_memory("a lot")
        ullage.set_memory(LIMIT)

    def test_settings_come_too_late(self):
        allocate(0)
        _library.open_pool(0)
        with self.assertRaises(ullage.StartedError):
            _library.configure("1GiB")
        with self.assertRaisesRegex(ValueError, "'1 GiB'"):
            _library.configure("1 GiB")


class Shortage(unittest.TestCase):
    def test_callbacks(self):
        held, wanted = [allocate(1500 * MiB)], []

        def useless(size):
            wanted.append(size)

        def broken(size):
            raise KeyError("a cache that cannot be emptied")

        def empty_cache(_):
            if held:
                free(held.pop())

        for callback in (useless, broken, empty_cache):
            ullage.add_callback(callback)
        with self.assertRaises(ValueError):
            ullage.add_callback(useless)
        with self.assertRaises(TypeError):
            ullage.add_callback("empty_cache")
        said, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            free(allocate(600 * MiB))
            self.assertEqual((held, wanted), ([], [600 * MiB]))
            held.append(allocate(100 * MiB))
            with self.assertRaisesRegex(ullage.OutOfMemory, "empty_cache': 100.0 MiB given back"):
                allocate(LIMIT + 1)
        finally:
            sys.unraisablehook = said
            for callback in (useless, broken, empty_cache):
                ullage.remove_callback(callback)
        with self.assertRaises(ValueError):
            ullage.remove_callback(useless)
        with self.assertRaises(ullage.OutOfMemory):
            allocate(LIMIT + 1)
        self.assertEqual(len(wanted), 2)

    def test_from_many_threads(self):
        """Callbacks and frees meet: nobody hangs, and nothing is lost."""
        cache, lock = [], threading.Lock()

        def empty_cache(_):
            with lock:
                taken, cache[:] = cache[:], []
            for address in taken:
                free(address)

        def work():
            for _ in range(50):
                try:
                    address = allocate(700 * MiB)
                except ullage.OutOfMemory:
                    continue
                with lock:
                    cache.append(address)

        ullage.add_callback(empty_cache)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ullage.remove_callback(empty_cache)
        empty_cache(0)
        self.assertEqual(ullage.memory_info()["current"], 0)


class Children(unittest.TestCase):
    def test_a_spawned_one_has_the_same(self):
        """Not the whole card, though its call says nothing."""
        script = (
            "import os; from ullage import _library, memory_info; "
            "_library.configure(device=os.environ['DEVICE']); _library.open_pool(0); "
            "print(memory_info()['limit'])"
        )
        environment = {**os.environ, "DEVICE": DEVICE}
        limits = []
        before = os.environ.get("ULLAGE_CONFIG")
        for exports in (False, True):
            if exports:
                ullage.torch.export_to_children()
                environment["ULLAGE_CONFIG"] = os.environ.pop("ULLAGE_CONFIG")
            child = subprocess.run(
                [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, check=True
            )
            limits.append(int(child.stdout))
        self.assertIsNone(before)
        self.assertEqual(limits, [6 * GiB, LIMIT])


class Guards(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(ullage.memory_info()["current"], 0)

    def test_sets_aside(self):
        with ullage.guard(max_memory="1500MiB"):
            self.assertGreaterEqual(ullage.memory_info()["held"], 1500 * MiB)
            address = allocate(1400 * MiB)
            free(address)
            free(allocate(1900 * MiB))  # beyond it: an ordinary request for the rest
        free(allocate(1900 * MiB))

    def test_shortage(self):
        held = [allocate(1500 * MiB)]
        calls = []

        def useless():
            calls.append("useless")

        def useful():
            calls.append("useful")
            free(held.pop())

        with self.assertRaisesRegex(ullage.OutOfMemory, "1.0 GiB could not be set aside"):
            with ullage.guard(max_memory="1GiB"):
                self.fail("the block must not run")
        with self.assertRaisesRegex(ullage.OutOfMemory, "after 1 fallbacks"):
            with ullage.guard(max_memory="1GiB", fallback=[useless, useful], max_fallbacks=1):
                self.fail("the block must not run")
        self.assertEqual(calls, ["useless"])
        with ullage.guard(max_memory="1GiB", fallback=[useless, useful]):
            free(allocate(1000 * MiB))
        self.assertEqual(calls, ["useless", "useless", "useful"])

    def test_nests(self):
        outer, inner = ullage.guard(max_memory="1GiB"), ullage.guard(max_memory="512MiB")
        with outer:
            held = ullage.memory_info()["held"]
            with inner:
                self.assertLessEqual(ullage.memory_info()["held"], held + 4 * MiB)
                free(allocate(500 * MiB))
            with self.assertRaisesRegex(ullage.UllageError, "open already"):
                outer.__enter__()
        with inner:  # again
            pass
        first, second = ullage.guard(max_memory="1MiB"), ullage.guard(max_memory="1MiB")
        first.__enter__()
        second.__enter__()
        with self.assertRaisesRegex(ullage.UllageError, "innermost"):
            first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        first.__exit__(None, None, None)

    def test_max_request(self):
        with ullage.guard(max_request="10MiB"):
            free(allocate(10 * MiB))
            with self.assertRaisesRegex(ullage.OutOfMemory, "CUDA out of memory"):
                allocate(11 * MiB)
            with ullage.guard(max_memory="100MiB"):
                free(allocate(10 * MiB))
        free(allocate(11 * MiB))

    def test_other_threads_are_served(self):
        got = []
        with ullage.guard(max_memory="1900MiB"):
            thread = threading.Thread(target=lambda: got.append(allocate(1800 * MiB)))
            thread.start()
            thread.join()
            free(got[0])
        self.assertEqual(len(got), 1)

    def test_an_error_in_the_block_passes(self):
        with self.assertRaises(KeyError):
            with ullage.guard(max_memory="1GiB"):
                raise KeyError
        free(allocate(1900 * MiB))

    def test_arguments(self):
        with self.assertRaises(ValueError):
            ullage.guard()
        with self.assertRaises(ValueError):
            ullage.guard(max_memory="much")
        with self.assertRaises(TypeError):
            ullage.guard(max_memory="1GiB", fallback="empty_cache")
        with self.assertRaises(ullage.OutOfMemory):
            with ullage.guard(max_memory="100%"):
                pass


if __name__ == "__main__":
    if not os.environ.get("ULLAGE_TORCH_LIBRARY"):
        print("no library that Python can load")
        raise SystemExit(77)
    assert ullage.report() == "" and ullage.memory_info()["peak"] == 0
    _library.configure(LIMIT, device=DEVICE)
    unittest.main()
