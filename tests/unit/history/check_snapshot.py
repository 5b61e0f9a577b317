#!/usr/bin/env python3
"""Does a file keep to what PyTorch's viewers rely on in a memory snapshot?

usage: check_snapshot.py SNAPSHOT       prints figures of it, or what is wrong (exit 1)

The rules are those of PyTorch's torch/utils/viz/MemoryViz.js and torch/cuda/_memory_viz.py: opcodes that the viewer
knows; blocks that fill their segment; every entry of a trace can be played forwards, and what is there at its end
is what the segments say, so that the viewer, which plays backwards, never looks for what is not there.
"""
import bisect
import pickle
import pickletools
import sys

OPCODES = set("""MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
EMPTY_LIST APPEND APPENDS LIST EMPTY_DICT SETITEM SETITEMS DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT
LONG_BINPUT BINGET LONG_BINGET MEMOIZE FRAME PROTO""".split())
ENTRY = {"action", "size", "stream", "time_us", "frames", "compile_context", "user_metadata"}
SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
           "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}
BLOCK = {"address", "size", "requested_size", "state", "frames"}


class Wrong(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Wrong(" ".join(map(str, what)))


class Ranges:
    """Ranges that must not overlap."""

    def __init__(self):
        self.begins, self.of = [], {}

    def add(self, begin, size, value, what):
        check(size > 0, what, "is empty", begin)
        at = bisect.bisect_right(self.begins, begin)
        if at > 0:
            before = self.begins[at - 1]
            check(before + self.of[before][0] <= begin, what, hex(begin), "overlaps", hex(before))
        if at < len(self.begins):
            check(begin + size <= self.begins[at], what, hex(begin), "overlaps", hex(self.begins[at]))
        self.begins.insert(at, begin)
        self.of[begin] = (size, value)

    def remove(self, begin, what):
        check(begin in self.of, what, hex(begin), "is not there")
        self.begins.pop(bisect.bisect_left(self.begins, begin))
        return self.of.pop(begin)

    def around(self, address):
        at = bisect.bisect_right(self.begins, address)
        if at == 0:
            return None
        begin = self.begins[at - 1]
        return begin if address < begin + self.of[begin][0] else None


    def covers(self, begin, end):
        """Is all of it in ranges, and which is the first?"""
        at = begin
        first = self.around(begin)
        while at < end:
            home = self.around(at)
            if home is None:
                return None
            at = home + self.of[home][0]
        return first

    def joined(self, streams):
        """Ranges that adjoin and are of one stream, as one: begin to size."""
        result, last = {}, None
        for begin in self.begins:
            size = self.of[begin][0]
            grows, stream = streams[begin]
            if last is not None and grows and streams[last] == (True, stream) and last + result[last] == begin:
                result[last] += size
            else:
                last = begin
                result[last] = size
        return result


def check_frames(frames):
    check(isinstance(frames, list), "frames are no list")
    for frame in frames:
        check(isinstance(frame["name"], str) and isinstance(frame["filename"], str)
              and isinstance(frame["line"], int), "a frame is", frame)


def check_opcodes(raw):
    for opcode, argument, offset in pickletools.genops(raw):
        check(opcode.name in OPCODES, "opcode", opcode.name, "at", offset)
        if opcode.name == "PROTO":
            check(2 <= argument <= 4, "protocol", argument)


def check_segment(segment):
    check(SEGMENT <= set(segment), "a segment lacks", SEGMENT - set(segment))
    check(segment["segment_type"] in ("large", "small"), segment["segment_type"])
    check_frames(segment["frames"])
    address = segment["address"]
    sums = {"active": 0, "requested": 0}
    for block in segment["blocks"]:
        check(BLOCK <= set(block), "a block lacks", BLOCK - set(block))
        check_frames(block["frames"])
        check(block["address"] == address, "a gap or overlap at", hex(address), block)
        check(block["size"] > 0 and 0 <= block["requested_size"] <= block["size"], "sizes of", block)
        check(block["state"] in ("active_allocated", "active_pending_free", "inactive"), block["state"])
        address += block["size"]
        if block["state"] != "inactive":
            sums["active"] += block["size"]
            sums["requested"] += block["requested_size"]
    check(address == segment["address"] + segment["total_size"], "blocks do not fill", hex(segment["address"]))
    check(segment["allocated_size"] == segment["active_size"] == sums["active"], "active_size of", segment["address"])
    check(segment["requested_size"] == sums["requested"], "requested_size of", segment["address"])


def check_entry(entry, categories):
    check(ENTRY <= set(entry), "an entry lacks", ENTRY - set(entry))
    check(("device_free" if entry["action"] == "oom" else "addr") in entry, "no address in", entry)
    check(not categories or "category" in entry, "an entry without a category among others")
    check_frames(entry["frames"])


def play(trace, segments):
    """Forwards from what was there before to what is there at the end; figures."""
    spaces, blocks = Ranges(), Ranges()
    live = held = 0
    figures = {"peak_held": 0, "peak_live": 0, "oom": 0}
    streams = {}  # of segments, and whether they are mapped in pieces
    categories = {entry.get("category") for entry in trace} - {None}
    check(not categories or "unknown" in categories, "no category is 'unknown': older viewers stop")
    last = 0
    for entry in trace:
        check_entry(entry, categories)
        check(entry["time_us"] >= last, "time runs backwards at", entry["time_us"])
        last = entry["time_us"]
        action, size = entry["action"], entry["size"]
        address = entry.get("addr")
        if action in ("segment_alloc", "segment_map"):
            spaces.add(address, size, 0, "segment")
            streams[address] = (action == "segment_map", entry["stream"])
            held += size
        elif action in ("segment_free", "segment_unmap"):
            check(streams.get(address, (None,))[0] == (action == "segment_unmap"), "segment", hex(address), "ends by", action)
            had, users = spaces.remove(address, "segment")
            check(had == size and users == 0, "segment", hex(address), "ends with", users, "blocks and", had, size)
            held -= size
        elif action == "alloc":
            home = spaces.covers(address, address + size)
            check(home is not None and (streams[home][0] or spaces.around(address + size - 1) == home),
                  "no segment for", hex(address), size)
            blocks.add(address, size, home, "block")
            spaces.of[home] = (spaces.of[home][0], spaces.of[home][1] + 1)
            live += size
        elif action == "free_completed":
            had, home = blocks.remove(address, "block")
            check(had == size, "a block of", had, "ends with", size)
            spaces.of[home] = (spaces.of[home][0], spaces.of[home][1] - 1)
            live -= size
        elif action == "free_requested":
            check(address in blocks.of, "no block", hex(address), "to free")
        elif action == "oom":
            figures["oom"] += 1
        else:
            check(action == "snapshot", "action", action)
        figures["peak_held"], figures["peak_live"] = max(figures["peak_held"], held), max(figures["peak_live"], live)
    check({s["address"]: s["total_size"] for s in segments} == spaces.joined(streams),
          "the segments are not those that the trace left")
    check({b["address"]: b["requested_size"] for s in segments for b in s["blocks"] if b["state"] != "inactive"}
          == {b: blocks.of[b][0] for b in blocks.begins}, "the blocks are not those that the trace left")
    figures.update(held=held, live=live, entries=len(trace), segments=len(segments))
    return figures


def check_snapshot(raw):
    """The figures of each device."""
    check_opcodes(raw)
    snapshot = pickle.loads(raw)
    check({"segments", "device_traces", "allocator_settings", "external_annotations"} <= set(snapshot), "keys")
    for note in snapshot["external_annotations"]:
        check(isinstance(note["name"], str) and note["stage"] in ("START", "END") and note["device"] >= 0
              and note["time_us"] >= 0, "annotation", note)
    spaces = {}
    for segment in snapshot["segments"]:
        check(0 <= segment["device"] < len(snapshot["device_traces"]), "device", segment["device"])
        spaces.setdefault(segment["device"], Ranges()).add(segment["address"], segment["total_size"], 0, "segment")
        check_segment(segment)
    return [play(trace, [s for s in snapshot["segments"] if s["device"] == device])
            for device, trace in enumerate(snapshot["device_traces"])]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], "rb") as file:
            for number, figure in enumerate(check_snapshot(file.read())):
                print(f"device {number}:", ", ".join(f"{key} {value}" for key, value in figure.items()))
    except Wrong as wrong:
        sys.exit(f"{sys.argv[1]}: {wrong}")
