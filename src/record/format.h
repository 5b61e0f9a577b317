/*
 * format.h: the file that a run is recorded in.
 *
 * Several processes append to one file, each block by one write(2) with O_APPEND, which the kernel does not
 * mix with others on a local file system (it may on NFS). A process that is killed while it writes leaves a
 * torn block; all other blocks stay good, and the reader goes on at the next one.
 *
 *   file  = block...
 *   block = head of 64 bytes, payload
 *
 * Head, little endian:
 *
 *    0  magic            89 'U' 'L' 'R' 'E' 'C' 0d 0a
 *    8  u16 version      1; a reader refuses what is newer
 *   10  u16 type         1: items; a reader skips others
 *   12  u32 payload      bytes, at most ULL_BLOCK_MOST
 *   16  u32 check        CRC-32 (as zlib's) of the payload
 *   20  u32 pid          of the writer, as it knows itself
 *   24  u64 started      CLOCK_MONOTONIC when the writer began: with its pid, who it is
 *   32  u64 sequence     1, 2, ... of this writer
 *   40  u64 base         nanoseconds; the times in the payload are counted from here
 *   48  u64 dropped      events that this writer has lost so far, its ring being full
 *   56  u32 events       in this block
 *   60  u32 head check   CRC-32 of bytes 0 to 59
 *
 * A payload is items one after another. Numbers are varints: seven bits a byte, low ones first, the top bit
 * says that more follow. "Signed" is zigzag: 0, -1, 1, -2, ... "Round" is for sizes and addresses, whose low bits
 * are mostly 0: number * 2 + 1 stands for number * 512, number * 2 for the number itself (65 bits at most); "signed
 * round" the same with a signed number. Item byte below 64: an event of that kind (event.h, whose numbers
 * never change):
 *
 *   u8 kind, u8 differs   bits of what follows in this order: 1 thread, 2 stream, 4 device and class, 8 process
 *                         (each if not as in the event before it in this block; all 0 before the first),
 *                         16 result, 32 wait, 64 stack, 128 tag (each if not 0)
 *   signed time           after the event before it, or after base
 *   signed round address  against the event before it
 *   round size
 *   charged               0: as size, 1: none, else 2 + signed round
 *   latency
 *   thread, stream, u8 device and u8 class, process, signed result, u8 wait, stack, tag: if their bit is set
 *
 * Item byte of 64 and more: a definition: byte, length of its body, body. A reader takes what it knows of a
 * body and skips the rest, and skips whole items that it does not know.
 *
 *   64 text     number, bytes to the end of the body
 *   65 stack    number, frames; for each function (text), file (text), line; innermost first
 *   66 device   number, uuid (text), name (text), signed logical, signed physical, total, budget
 *   67 process  number, pid, parent, start ticks (/proc/PID/stat), begin (nanoseconds), name (text)
 *   68 job      name (text), command (text), version (text), wall clock, monotonic clock of the same moment
 *   69 over     time, signed exit code: the run ended
 *
 * The numbers of texts, stacks, devices and processes are the writer's own and count up: texts and stacks from 1
 * (0 is none), devices and processes from 0. Defining a process again changes it. Process 0 of a writer is
 * the writer itself, other processes are ones that it watches. Texts end nowhere else than their body says and hold no
 * 0 byte.
 */
#ifndef ULLAGE_FORMAT_H
#define ULLAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event.h"

#define ULL_RECORD_MAGIC "\x89ULREC\r\n"

enum {
    ULL_RECORD_VERSION = 1,
    ULL_BLOCK_ITEMS = 1,
    ULL_BLOCK_HEAD = 64,
    ULL_BLOCK_MOST = 1 << 20, /* of a payload */
    ULL_EVENT_MOST = 128,     /* bytes that one event can take */
    ULL_TEXT_MOST = 8192,
    ULL_STACK_MOST = 64, /* frames */
};

enum ull__item_kind {
    ULL_ITEM_TEXT = 64,
    ULL_ITEM_STACK,
    ULL_ITEM_DEVICE,
    ULL_ITEM_PROCESS,
    ULL_ITEM_JOB,
    ULL_ITEM_OVER,
};

struct ull__block_head {
    uint16_t version, type;
    uint32_t payload, check;
    uint32_t pid;
    uint64_t started, sequence, base, dropped;
    uint32_t events;
};

/* Of a run of bytes; `before` is 0 or the sum of what came before them. */
uint32_t ull__crc(uint32_t before, const void *data, size_t size);

void ull__head_put(uint8_t bytes[ULL_BLOCK_HEAD], const struct ull__block_head *head);
/* False if this is no head: another magic, or its own check is wrong. The version may be any. */
bool ull__head_get(const uint8_t bytes[ULL_BLOCK_HEAD], struct ull__block_head *head);

/* --- writing: the caller has made sure of the room -------------------------------------------------- */

uint8_t *ull__put_number(uint8_t *at, uint64_t value); /* at most 10 bytes */
uint8_t *ull__put_signed(uint8_t *at, int64_t value);

/* What the next event is written against, and read against. */
struct ull__deltas {
    uint64_t time_ns, address, stream;
    uint32_t thread;
    uint16_t process;
    uint8_t device, class;
};

uint8_t *ull__put_event(uint8_t *at, const struct ull__event *event, struct ull__deltas *last);

/* --- reading: never past `end` -------------------------------------------------------------------------- */

struct ull__cursor {
    const uint8_t *at, *end;
    bool failed; /* the bytes ended early, or a number is too large: everything read since is 0 */
};

uint64_t ull__get_number(struct ull__cursor *cursor);
int64_t ull__get_signed(struct ull__cursor *cursor);
uint32_t ull__get_number32(struct ull__cursor *cursor);
/* At an item of a kind below 64. False when malformed. */
bool ull__get_event(struct ull__cursor *cursor, struct ull__event *event, struct ull__deltas *last);

#endif
