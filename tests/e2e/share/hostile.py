#!/usr/bin/env python3
"""A client that means no good: hostile.py SOCKET. Prints what became of it, one word a line."""

import os
import random
import socket
import struct
import sys
import time

path, rng = sys.argv[1], random.Random(7)


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    return s


def message(kind, job=b"", number=1):
    field = bytes([1, 0]) + struct.pack("<H", len(job)) + job if job else b""
    return b"UL" + bytes([1, kind]) + struct.pack("<II", number, len(field)) + field


def alive():
    s = connect()
    s.sendall(message(1))
    good = s.recv(64)[:4] == b"UL\x01\x40"
    s.close()
    return good


def malformed(count):
    good = message(2, b"0123abcd")
    for i in range(count):
        s = connect()
        data = bytearray(good * rng.randint(1, 3))
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if i % 3 == 0:
            data = bytearray(rng.randbytes(rng.randint(1, 4000)))
        try:
            s.sendall(data)
            if i % 50 == 0:
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
        except (BrokenPipeError, ConnectionResetError):
            pass
        s.close()


def slow_reader():
    """Asks and asks and never reads: it is held back or cut off, and nobody else waits for it."""
    s = connect()
    s.setblocking(False)
    sent = 0
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            sent += s.send(message(9) * 50)
        except BlockingIOError:
            began = time.monotonic()
            assert alive()
            assert time.monotonic() - began < 3
            time.sleep(0.2)
        except (BrokenPipeError, ConnectionResetError):
            break
    return sent


def many():
    """More connections than a user may have: the rest are closed, and those that are there work."""
    held = []
    try:
        for _ in range(700):
            held.append(connect())
    except OSError:
        pass
    time.sleep(0.5)
    for s in held:
        s.close()
    return len(held) > 100


malformed(int(os.environ.get("MALFORMED", "10000")))
print("malformed", "alive" if alive() else "dead")
slow_reader()
print("slow", "alive" if alive() else "dead")
many()
time.sleep(0.5)
print("many", "alive" if alive() else "dead")
