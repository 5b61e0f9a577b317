"""What the batcher decides, on sequences as training gives them, without a device or a clock."""

import unittest

from ullage import DynamicBatcher, MemoryCallback, OutOfMemory
from ullage.batcher import decide, predict

LONG = float("inf")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Decide(unittest.TestCase):
    def test_thresholds(self):
        for use, predicted, since, size in [
            (0.95, 9, LONG, 16),  # halved
            (0.901, 9, LONG, 16),
            (0.9, 9, LONG, 32),  # not above
            (0.8, 0.85, LONG, 32),  # between the two nothing changes
            (0.7, 0.85, LONG, 32),  # not below
            (0.69, 0.89, LONG, 64),  # doubled
            (0.69, 0.9, LONG, 32),  # the prediction is not under 0.9
            (0.1, 0.95, LONG, 32),
            (0.95, 9, 4.99, 32),  # too early
            (0.1, 0.2, 4.99, 32),
            (0.95, 9, 5.0, 16),
            (0.1, 0.2, 5.0, 64),
        ]:
            case = (use, predicted, since)
            self.assertEqual(decide(32, 8, 128, *case), size, case)

    def test_bounds(self):
        self.assertEqual(decide(12, 8, 128, 0.95, 9, LONG), 8)
        self.assertEqual(decide(8, 8, 128, 0.95, 9, LONG), 8)
        self.assertEqual(decide(100, 8, 128, 0.1, 0.2, LONG), 128)
        self.assertEqual(decide(128, 8, 128, 0.1, 0.2, LONG), 128)

    def test_prediction(self):
        self.assertEqual(predict(8, 100, 16, {}), 200)  # nothing is known: all of it grows
        self.assertEqual(predict(8, 100, 16, {4: 80}), 140)  # 60 + 5 a sample
        self.assertEqual(predict(8, 100, 16, {4: 80, 1: 10}), 140)  # by the nearest
        self.assertEqual(predict(8, 100, 16, {4: 10}), 200)  # never above all
        self.assertEqual(predict(8, 100, 16, {4: 120}), 100)  # never below what is used


class Batcher(unittest.TestCase):
    def run_model(self, batcher, clock, fixed, sample, available, steps, seconds=1.0):
        """Sizes that a model of so many bytes goes through."""
        sizes = []
        for step in range(steps):
            clock.now += seconds
            have = available(step) if callable(available) else available
            sizes.append(batcher.update(fixed + sample * batcher.size, have))
        return sizes

    def test_grows_to_what_fits(self):
        clock = Clock()
        batcher = DynamicBatcher(8, 256, clock=clock)
        sizes = self.run_model(batcher, clock, 100, 10, 1000, 40)
        # 180, 260 and 420 of 1000; 740 would follow, and lies between the marks.
        self.assertEqual(sizes[:6], [16, 16, 16, 16, 16, 32])
        self.assertEqual(sizes[10], 64)
        self.assertEqual(set(sizes[10:]), {64})

    def test_a_large_model_is_not_doubled_blindly(self):
        clock = Clock()
        batcher = DynamicBatcher(8, 256, clock=clock)
        # 640 of 1000 at once: twice that would not fit, and nothing says that most of it is fixed.
        self.assertEqual(set(self.run_model(batcher, clock, 600, 5, 1000, 20)), {8})

    def test_shrinks_when_others_take_memory(self):
        clock = Clock()
        batcher = DynamicBatcher(8, 256, start=64, clock=clock)
        sizes = self.run_model(batcher, clock, 100, 10, lambda step: 1000 if step < 5 else 500, 30)
        self.assertEqual(sizes[4], 64)
        self.assertEqual(sizes[5], 32)  # 740 of 500
        self.assertEqual(set(sizes[5:]), {32})  # 420 of 500: between the marks

    def test_waits_after_a_change(self):
        clock = Clock()
        batcher = DynamicBatcher(1, 1024, start=1024, clock=clock)
        changes = []
        for _ in range(60):
            clock.now += 0.5
            before = batcher.size
            if batcher.update(10**9, 1000) != before:
                changes.append(clock.now)
        self.assertEqual(batcher.size, 1024 >> 6)
        self.assertTrue(all(b - a >= 5 for a, b in zip(changes, changes[1:])))
        self.assertEqual(len(changes), 6)

    def test_out_of_memory_halves_at_once(self):
        clock = Clock()
        batcher = DynamicBatcher(8, 64, start=64, clock=clock)
        self.assertEqual([batcher.out_of_memory() for _ in range(3)], [32, 16, 8])
        with self.assertRaises(OutOfMemory):
            batcher.out_of_memory()
        self.assertEqual(batcher.update(1, 1000), 8)  # and does not grow back at once
        clock.now += 5
        self.assertEqual(batcher.update(1, 1000), 16)

    def test_arguments(self):
        for arguments in [(0, 8), (8, 4), (8, 16, 4), (8, 16, 32)]:
            with self.assertRaises(ValueError):
                DynamicBatcher(*arguments)
        for arguments in [(-1, 10), (1, 0)]:
            with self.assertRaises(ValueError):
                DynamicBatcher(1, 2).update(*arguments)


class Callback(unittest.TestCase):
    def setUp(self):
        self.clock, self.changes, self.resets = Clock(), [], 0
        self.use = (100, 1000)

        def reset(_):
            self.resets += 1

        self.callback = MemoryCallback(
            DynamicBatcher(8, 64, clock=self.clock),
            on_change=self.changes.append,
            usage=lambda _: self.use,
            reset=reset,
        )

    def test_steps(self):
        self.assertEqual(self.callback.on_step_end("args", state=None), 16)
        self.assertEqual(self.callback.on_train_batch_end(1, 2, 3), 16)
        self.clock.now += 5
        self.use = (950, 1000)
        self.assertEqual(self.callback.on_step_end(), 8)
        self.assertEqual((self.changes, self.resets), ([16, 8], 2))

    def test_attempt(self):
        self.callback.on_step_end()
        with self.callback.attempt():
            raise MemoryError("no room")
        self.assertTrue(self.callback.failed)
        self.assertEqual(self.changes, [16, 8])
        with self.assertRaises(OutOfMemory):  # at the smallest size there is no way out
            with self.callback.attempt():
                raise MemoryError("no room")
        with self.assertRaises(KeyError):
            with self.callback.attempt():
                raise KeyError("other errors pass")
        with self.callback.attempt():
            pass
        self.assertFalse(self.callback.failed)


if __name__ == "__main__":
    unittest.main()
