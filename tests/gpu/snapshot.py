#!/usr/bin/env python3
"""PyTorch's memory snapshots on a card: what `ullage report` says of them against what PyTorch says of itself, and
what is written for PyTorch's viewers in PyTorch's own viewer.

usage: snapshot.py OUT            all checks; snapshots and figures are left in the folder OUT; exit 1 if one fails
       snapshot.py --train MODE FILE...   (what it starts) trains a little, writes a snapshot and PyTorch's statistics

ULLAGE names the binary; without it build/gpu/ullage or build/release/ullage is taken. Needs PyTorch and a card.
"""
import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/unit/history"))
MODES = {  # name: (allocator settings, entries of the trace, frames)
    "plain": ("", 1_000_000, "python"),
    "expandable": ("expandable_segments:True", 1_000_000, "python"),
    "ring": ("", 300, "python"),
    "native": ("", 1_000_000, "all"),
    "rounded": ("roundup_power2_divisions:4", 1_000_000, "python"),
}
passed = failed = 0


def check(name, good, *lines):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok: " if good else "FAILED: ") + name, *(() if good else lines), sep="\n    ", flush=True)


# --- what is recorded ----------------------------------------------------------------------------------------


def train(torch, steps):
    """Layers, a second stream, a batch size that changes, a refusal, memory that is given back."""
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(8)])
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    side = torch.cuda.Stream()
    for step in range(steps):
        batch = torch.randn(256 + 64 * (step % 3), 1024, device="cuda")
        with torch.cuda.stream(side):
            other = batch * 2
        batch.record_stream(side)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        del batch, other, loss
        if step == steps // 2:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
    return model, optimizer


def record(mode, snapshot_file, stats_file, segments_file):
    import torch

    _, entries, stacks = MODES[mode]
    torch.cuda.memory._record_memory_history(max_entries=entries, stacks=stacks)
    kept = train(torch, 12)
    torch.cuda.synchronize()
    stats = dict(torch.cuda.memory_stats())
    torch.cuda.memory._dump_snapshot(snapshot_file)
    with open(segments_file, "wb") as file:
        pickle.dump(torch.cuda.memory_snapshot(), file)
    with open(stats_file, "w") as file:
        json.dump(stats, file)
    del kept


# --- what is checked -----------------------------------------------------------------------------------------


def ullage_binary():
    for path in (os.environ.get("ULLAGE"), f"{ROOT}/build/gpu/ullage", f"{ROOT}/build/release/ullage"):
        if path and os.access(path, os.X_OK):
            return path
    sys.exit("no ullage: build it (cmake --preset release && cmake --build --preset release) or set ULLAGE")


def report(ullage, *arguments):
    done = subprocess.run([ullage, "report", *arguments], capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def check_figures(name, ullage, snapshot, stats, exact):
    code, out, err = report(ullage, snapshot, "-f", "json")
    if code != 0:
        check(f"{name}: the snapshot is read", False, err)
        return {}
    told = json.loads(out)
    wanted = {"peak_bytes": stats["reserved_bytes.all.peak"], "live_peak_bytes": stats["requested_bytes.all.peak"]}
    for key, value in wanted.items():
        good = told[key] == value if exact else told[key] <= value
        check(f"{name}: {key} {told[key]:,} {'is' if exact else 'is at most'} PyTorch's {value:,}", good)
    if exact:
        check(f"{name}: the refusal is there", told["pressure"]["refusals"] >= 1, told["pressure"])
    return {"events": told["events"], "peak_bytes": told["peak_bytes"], "live_peak_bytes": told["live_peak_bytes"],
            "allocated_peak": stats["allocated_bytes.all.peak"], "active_peak": stats["active_bytes.all.peak"],
            "verdict": told["verdict"]}


def viewer_text(data):
    """The flame graphs' lines that PyTorch makes of a snapshot, and its other texts."""
    from torch.cuda import _memory_viz as viz

    def plain(text, *_):
        return text

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        viz.trace_plot(data)
        viz.trace_plot(data, plot_segments=True)
        if hasattr(viz, "segment_plot"):
            viz.segment_plot(data)
        viz.segsum(data)
        viz.trace(data)
        viz.segments(data, format_flamegraph=plain)
        viz.compare(data["segments"], data["segments"], format_flamegraph=plain)
        return viz.memory(data, format_flamegraph=plain)


def active(text):
    """Bytes of the lines of a flame graph, by all of their text but the bytes. A history does not tell a block that
    waits for another stream from one that is in use."""
    sums = {}
    for line in text.splitlines():
        stack, _, size = line.rpartition(" ")
        stack = stack.replace(";active_pending_free;", ";active_allocated;")
        if ";active_allocated;" in stack and not stack.endswith("<gaps>"):
            sums[stack] = sums.get(stack, 0) + int(size)
    return sums


def check_copy(name, ullage, source, copy):
    from check_snapshot import Wrong, check_snapshot

    code, _, err = report(ullage, source, "-f", "torch", "-o", copy)
    check(f"{name}: -f torch", code == 0, err)
    if code != 0:
        return
    with open(copy, "rb") as file:
        raw = file.read()
    try:
        check_snapshot(raw)
        check(f"{name}: keeps to the viewer's rules", True)
    except Wrong as wrong:
        check(f"{name}: keeps to the viewer's rules", False, str(wrong))
    try:
        text = viewer_text(pickle.loads(raw))
        check(f"{name}: PyTorch's viewer takes it", True)
    except Exception as error:  # whatever PyTorch's code raises
        check(f"{name}: PyTorch's viewer takes it", False, repr(error))
        return
    if source.endswith(".pickle"):
        with open(source, "rb") as file:
            wanted = active(viewer_text(pickle.load(file)))
        found = active(text)
        check(f"{name}: PyTorch's flame graph of what is live is the same ({len(wanted)} stacks)", found == wanted,
              *[f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in sorted(set(found) | set(wanted))
                if found.get(key) != wanted.get(key)][:5])


def check_mode(mode, ullage, out):
    files = [os.path.join(out, f"{mode}.{kind}") for kind in ("pickle", "stats.json", "segments.pickle")]
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=MODES[mode][0], PYTORCH_ALLOC_CONF=MODES[mode][0])
    done = subprocess.run([sys.executable, __file__, "--train", mode, *files], env=environment, check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        check(f"{mode}: PyTorch trains and writes a snapshot", False, done.stderr[-2000:])
        return {}
    with open(files[1]) as file:
        stats = json.load(file)
    figures = check_figures(mode, ullage, files[0], stats, mode != "ring")
    check_copy(mode, ullage, files[0], os.path.join(out, f"{mode}.copy.pickle"))
    code, text, err = report(ullage, files[2], "-f", "json")
    check(f"{mode}: torch.cuda.memory_snapshot() gives what is reserved now",
          code == 0 and json.loads(text)["peak_bytes"] == stats["reserved_bytes.all.current"], err)
    return figures


def check_record(ullage, out):
    """A record of the driver's calls, for PyTorch's viewer."""
    usage = subprocess.run([ullage, "run", "--help"], capture_output=True, text=True, check=False).stdout
    if "--record" not in usage:
        print("not checked: this ullage does not record")
        return
    record_file = os.path.join(out, "driver.record")
    files = [os.path.join(out, f"driver.{kind}") for kind in ("pickle", "stats.json", "segments.pickle")]
    done = subprocess.run([ullage, "run", "-m", "16GiB", "--record", record_file, "--", sys.executable, __file__,
                           "--train", "plain", *files], check=False, capture_output=True, text=True)
    check("PyTorch trains while it is recorded", done.returncode == 0, done.stderr[-2000:])
    if done.returncode == 0:
        check_copy("record", ullage, record_file, os.path.join(out, "driver.copy.pickle"))


def main(arguments):
    if len(arguments) == 5 and arguments[0] == "--train" and arguments[1] in MODES:
        record(*arguments[1:])
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    out = arguments[0]
    os.makedirs(out, exist_ok=True)
    import torch

    if not torch.cuda.is_available():
        sys.exit("no card that PyTorch can use")
    ullage = ullage_binary()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    figures = {mode: check_mode(mode, ullage, out) for mode in MODES}
    check_record(ullage, out)
    with open(os.path.join(out, "snapshot.json"), "w") as file:
        json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(0), "modes": figures}, file, indent=2)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
