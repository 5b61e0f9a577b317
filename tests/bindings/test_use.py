"""ullage.torch.use on a stand-in for PyTorch that keeps what it is told."""

import os
import sys
import types
import unittest
import warnings

import ullage
from ullage import _library

SETTERS = [
    "set_record_stream_fn",
    "set_reset_fn",
    "set_memory_fraction_fn",
    "set_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn",
    "set_release_pool",
]


def fake_torch(setters=SETTERS):
    """As much of PyTorch as use() touches, before the first use of CUDA."""
    torch = types.ModuleType("torch")
    torch.__version__ = "2.0.fake"
    torch.version = types.SimpleNamespace(cuda="13.0", hip=None)
    torch.told, torch.started, torch.held, torch.forked, torch.current = {}, False, 0, False, None
    torch.backend = "native"

    class Native:
        pass

    for setter in setters:

        def keep(self, address, setter=setter):
            torch.told[setter] = address

        setattr(Native, setter, keep)

    class CUDAPluggableAllocator:
        def __init__(self, path, allocate, free):
            torch.told["path"], torch.told["names"] = path, (allocate, free)
            self.native = Native()

        def allocator(self):
            return self.native

    def change_current_allocator(allocator):
        torch.current = allocator

    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: torch.started,
        memory_allocated=lambda device: torch.held * device,
        device_count=lambda: 2,
        get_allocator_backend=lambda: torch.backend,
        _is_in_bad_fork=lambda: torch.forked,
        memory=types.SimpleNamespace(
            CUDAPluggableAllocator=CUDAPluggableAllocator,
            change_current_allocator=change_current_allocator,
        ),
    )
    return torch


class Use(unittest.TestCase):
    """In order of names: the last one changes the process for good."""

    def setUp(self):
        self.torch = sys.modules["torch"] = fake_torch()

    def tearDown(self):
        del sys.modules["torch"]

    def refused(self, kind, pattern, **settings):
        with self.assertRaisesRegex(kind, pattern):
            ullage.torch.use(**settings)
        self.assertIsNone(self.torch.current)
        self.assertFalse(ullage.torch.in_use())

    def test_a_too_late(self):
        self.torch.started = True
        self.refused(ullage.StartedError, "has started CUDA already")
        self.torch.held = 512
        self.refused(ullage.StartedError, r"CUDA memory is in use already \(512 bytes")
        self.torch.backend = "pluggable"
        self.refused(ullage.StartedError, "another allocator")
        self.torch.started, self.torch.forked = False, True
        self.refused(ullage.StartedError, "forked")

    def test_a_other_builds(self):
        self.torch.version.cuda = None
        self.refused(ullage.StartedError, "not built for CUDA")

    def test_b_bad_settings(self):
        self.refused(ValueError, "'4 GiB'", memory="4 GiB")
        self.refused(ValueError, "wait=-1", wait=-1)

    def test_b_bad_environment(self):
        for name, value in (
            ("ULLAGE_MEMORY", "much"),
            ("ULLAGE_GROWTH", "perhaps"),
            ("ULLAGE_CONFIG", "none of ours"),
            ("TF_FORCE_GPU_ALLOW_GROWTH", "1"),
        ):
            os.environ[name] = value
            try:
                self.refused(ValueError, value)
            finally:
                del os.environ[name]

    def test_b_old_pytorch(self):
        self.torch = sys.modules["torch"] = fake_torch(SETTERS[1:])
        self.refused(ullage.UllageError, "record_stream")

    def test_z_use(self):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ullage.torch.use(memory="4GiB")
        self.assertIn("expandable_segments", str(said[0].message))
        self.assertTrue(ullage.torch.in_use())
        self.assertIsNotNone(self.torch.current)
        self.assertEqual(self.torch.told["names"], ("ullage_torch_alloc", "ullage_torch_free"))
        self.assertEqual(self.torch.told["path"], _library.path())
        addresses = [self.torch.told[setter] for setter in SETTERS]
        self.assertTrue(all(addresses))
        self.assertEqual(len(set(addresses)), len(SETTERS))
        ullage.torch.use(memory="4GiB")  # the same again is nothing new
        with self.assertRaisesRegex(ullage.StartedError, "memory='4GiB'"):
            ullage.torch.use(memory="5GiB")


class Library(unittest.TestCase):
    def test_a_missing_library_is_named(self):
        before = os.environ.pop("ULLAGE_TORCH_LIBRARY")
        try:
            if not any(os.path.exists(p + "/lib/" + _library.NAME) for p in ("/usr", "/usr/local")):
                with self.assertRaisesRegex(ullage.UllageError, "ULLAGE_TORCH_LIBRARY"):
                    _library.path()
        finally:
            os.environ["ULLAGE_TORCH_LIBRARY"] = before


if __name__ == "__main__":
    if not os.environ.get("ULLAGE_TORCH_LIBRARY"):
        print("no library that Python can load")
        raise SystemExit(77)
    unittest.main()
