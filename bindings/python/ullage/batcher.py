"""A batch size that follows the memory there is."""

import sys
import time

from ullage import _library
from ullage._errors import OutOfMemory
from ullage.memory import current_device, memory_info, reset_memory_stats

HIGH, LOW, WAIT = 0.9, 0.7, 5.0


def decide(batch, min_batch, max_batch, use, predicted, since_change):
    """The next batch size; a pure function, which is all that decides.

    use: the share of what the device can give now that the present size takes at its peak;
    predicted: the same for the size that growing would lead to; since_change: seconds since the
    last change.

    Above 0.9 it is halved. Below 0.7 it is doubled, but only if the prediction stays below 0.9:
    else the next step would halve it again, or fail. Within 5 s of a change nothing is changed.
    """
    if since_change < WAIT:
        return batch
    if use > HIGH:
        return max(min_batch, batch // 2)
    if use < LOW and predicted < HIGH:
        return min(max_batch, batch * 2)
    return batch


def predict(batch, used, new_batch, measured):
    """Bytes that new_batch will take, from `used` at batch and what other sizes took (measured).

    A part of memory does not grow with the batch (weights, states of the optimizer). With a second
    size measured, the line through both says which; otherwise all of it is taken to grow, which
    errs on the safe side. The line is not followed above that, nor below what is used now.
    """
    most = used * new_batch / batch
    others = [size for size in measured if size != batch]
    if not others:
        return most
    other = min(others, key=lambda size: abs(size - batch))
    slope = (used - measured[other]) / (batch - other)
    return min(most, max(used, used + slope * (new_batch - batch)))


class DynamicBatcher:
    """Chooses a batch size between min_batch and max_batch by halving and doubling.

    Tell it after each step what was used at most and what could have been (update), or let a
    MemoryCallback do that; it answers with the size for the next step, which is `size` too. After
    an out-of-memory error call out_of_memory, which halves at once.
    """

    def __init__(self, min_batch, max_batch, start=None, clock=time.monotonic):
        start = min_batch if start is None else start
        if not 1 <= min_batch <= start <= max_batch:
            raise ValueError(
                "expected 1 <= min_batch <= start <= max_batch, and not {}, {}, {}".format(
                    min_batch, start, max_batch
                )
            )
        self.min_batch, self.max_batch, self.size = min_batch, max_batch, start
        self._clock = clock
        self._changed = None
        self._measured = {}  # size: bytes at its peak

    def update(self, used, available):
        """The size for the next step.

        used: bytes at the peak of steps of the present size; available: bytes that the program
        could use at most as things are now.
        """
        if used < 0 or available <= 0:
            raise ValueError(
                "expected used >= 0 and available > 0, and not {}, {}".format(used, available)
            )
        now = self._clock()
        grown = min(self.max_batch, self.size * 2)
        predicted = predict(self.size, used, grown, self._measured)
        self._measured[self.size] = used
        since = float("inf") if self._changed is None else now - self._changed
        self._change(
            decide(
                self.size,
                self.min_batch,
                self.max_batch,
                used / available,
                predicted / available,
                since,
            ),
            now,
        )
        return self.size

    def out_of_memory(self):
        """Halves at once. OutOfMemory if the size is the smallest already."""
        if self.size == self.min_batch:
            raise OutOfMemory("not even the smallest batch, {}, fits".format(self.min_batch))
        self._change(max(self.min_batch, self.size // 2), self._clock())
        return self.size

    def _change(self, size, now):
        if size != self.size:
            self.size, self._changed = size, now


def usage(device=None):
    """(used, available): the most bytes in use since the peaks were last reset, and the most that
    could be in use as things are now. Of ullage's pool, or of PyTorch's allocator if that is
    used."""
    device = current_device(device)
    if _library.read_stats(device):
        info = memory_info(device)
        return info["peak"], max(info["available"], 1)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0, 1
    free, _ = torch.cuda.mem_get_info(device)
    return torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device) + free


def reset_usage(device=None):
    """Peaks begin anew."""
    device = current_device(device)
    if _library.read_stats(device):
        reset_memory_stats(device)
        return
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats(device)


class MemoryCallback:
    """Keeps a batcher informed from a training loop, whoever wrote that.

        callback = ullage.MemoryCallback(ullage.DynamicBatcher(8, 256))
        for step in range(steps):
            train_step(next_batch(callback.batcher.size))
            callback.on_step_end()

    The methods take and ignore whatever a framework hands to its callbacks: on_step_end
    (Transformers), on_train_batch_end (Lightning, Keras). on_change, if given, is called with the
    new size. A change resets the peaks of the pool (ullage.reset_memory_stats), since the old ones
    belong to the old size. In `with callback.attempt():` an out-of-memory error of the step is
    swallowed, the size halved and callback.failed set, so that the loop can try again with a
    smaller batch.
    """

    def __init__(self, batcher, on_change=None, device=None, usage=usage, reset=reset_usage):
        self.batcher, self._on_change, self._device = batcher, on_change, device
        self._usage, self._reset = usage, reset
        self.failed = False

    def on_step_end(self, *args, **kwargs):
        """After each step; returns the size for the next one."""
        before = self.batcher.size
        used, available = self._usage(self._device)
        self.batcher.update(used, available)
        return self._changed_from(before)

    on_train_batch_end = on_step_end

    def on_out_of_memory(self):
        """After a step that failed for want of memory; returns the smaller size."""
        before = self.batcher.size
        self.batcher.out_of_memory()
        return self._changed_from(before)

    def attempt(self):
        """A context for one step."""
        return _Attempt(self)

    def _changed_from(self, before):
        if self.batcher.size != before:
            self._reset(self._device)
            if self._on_change:
                self._on_change(self.batcher.size)
        return self.batcher.size


class _Attempt:
    def __init__(self, callback):
        self._callback = callback

    def __enter__(self):
        self._callback.failed = False
        return self._callback

    def __exit__(self, kind, error, traceback):
        if kind is None or not _is_out_of_memory(error):
            return False
        self._callback.failed = True
        self._callback.on_out_of_memory()
        return True


def _is_out_of_memory(error):
    torch = sys.modules.get("torch")
    kinds = (MemoryError,)
    if torch is not None and hasattr(torch.cuda, "OutOfMemoryError"):
        kinds += (torch.cuda.OutOfMemoryError,)
    return isinstance(error, kinds)
