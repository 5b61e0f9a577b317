"""What goes wrong, by type."""


class UllageError(RuntimeError):
    """Something that ullage cannot do; the text says why and what to do."""


class StartedError(UllageError):
    """A setting that must come before the first use of CUDA memory came after it."""


class OutOfMemory(UllageError, MemoryError):
    """Memory that was to be reserved is not there. Tensors raise torch.cuda.OutOfMemoryError."""
