/*
 * format.c: see format.h. The checksum is zlib's CRC-32, computed here because this goes into programs that
 * must not find a library of ours in their address space.
 */
#include "format.h"

#include <stdatomic.h>
#include <string.h>

/* --- checksum ------------------------------------------------------------------------------------------- */

static uint32_t crc_table[8][256];
static _Atomic int crc_ready;

/* Two threads may do this at once: both write the same. */
static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        __atomic_store_n(&crc_table[0][i], value, __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc_table[k - 1][i];
            __atomic_store_n(&crc_table[k][i], before >> 8 ^ crc_table[0][before & 0xff],
                             __ATOMIC_RELAXED);
        }
    atomic_store_explicit(&crc_ready, 1, memory_order_release);
}

static uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t load64(const uint8_t *at)
{
    return load32(at) | (uint64_t)load32(at + 4) << 32;
}

uint32_t ull__crc(uint32_t before, const void *data, size_t size)
{
    const uint8_t *at = data;
    uint32_t crc = ~before;
    if (!atomic_load_explicit(&crc_ready, memory_order_acquire))
        make_table();
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t a = crc ^ load32(at), b = load32(at + 4);
        crc = crc_table[7][a & 0xff] ^ crc_table[6][a >> 8 & 0xff] ^ crc_table[5][a >> 16 & 0xff] ^
              crc_table[4][a >> 24] ^ crc_table[3][b & 0xff] ^ crc_table[2][b >> 8 & 0xff] ^
              crc_table[1][b >> 16 & 0xff] ^ crc_table[0][b >> 24];
    }
    for (; size > 0; size--, at++)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xff];
    return ~crc;
}

/* --- heads ----------------------------------------------------------------------------------------------- */

static void store(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

void ull__head_put(uint8_t bytes[ULL_BLOCK_HEAD], const struct ull__block_head *head)
{
    memcpy(bytes, ULL_RECORD_MAGIC, 8);
    store(bytes + 8, head->version, 2);
    store(bytes + 10, head->type, 2);
    store(bytes + 12, head->payload, 4);
    store(bytes + 16, head->check, 4);
    store(bytes + 20, head->pid, 4);
    store(bytes + 24, head->started, 8);
    store(bytes + 32, head->sequence, 8);
    store(bytes + 40, head->base, 8);
    store(bytes + 48, head->dropped, 8);
    store(bytes + 56, head->events, 4);
    store(bytes + 60, ull__crc(0, bytes, 60), 4);
}

bool ull__head_get(const uint8_t bytes[ULL_BLOCK_HEAD], struct ull__block_head *head)
{
    if (memcmp(bytes, ULL_RECORD_MAGIC, 8) != 0 || ull__crc(0, bytes, 60) != load32(bytes + 60))
        return false;
    *head = (struct ull__block_head){.version = (uint16_t)(bytes[8] | bytes[9] << 8),
                                     .type = (uint16_t)(bytes[10] | bytes[11] << 8),
                                     .payload = load32(bytes + 12),
                                     .check = load32(bytes + 16),
                                     .pid = load32(bytes + 20),
                                     .started = load64(bytes + 24),
                                     .sequence = load64(bytes + 32),
                                     .base = load64(bytes + 40),
                                     .dropped = load64(bytes + 48),
                                     .events = load32(bytes + 56)};
    return true;
}

/* --- numbers --------------------------------------------------------------------------------------------- */

uint8_t *ull__put_number(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

uint8_t *ull__put_signed(uint8_t *at, int64_t value)
{
    return ull__put_number(at, zigzag(value));
}

/* number * 2 + flag as a varint of up to 65 bits. */
static uint8_t *put_flagged(uint8_t *at, uint64_t number, bool flag)
{
    uint8_t low = (uint8_t)((number & 0x3f) << 1 | flag);
    if (number < 0x40) {
        *at++ = low;
        return at;
    }
    *at++ = low | 0x80;
    return ull__put_number(at, number >> 6);
}

/* Nine bits of a size or an address are mostly 0. */
static uint8_t *put_round(uint8_t *at, uint64_t value)
{
    bool whole = value % 512 == 0;
    return put_flagged(at, whole ? value / 512 : value, whole);
}

static uint8_t *put_signed_round(uint8_t *at, int64_t value)
{
    bool whole = value % 512 == 0;
    return put_flagged(at, zigzag(whole ? value / 512 : value), whole);
}

uint64_t ull__get_number(struct ull__cursor *cursor)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (cursor->at >= cursor->end)
            break;
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    cursor->failed = true;
    cursor->at = cursor->end;
    return 0;
}

int64_t ull__get_signed(struct ull__cursor *cursor)
{
    return unzigzag(ull__get_number(cursor));
}

uint32_t ull__get_number32(struct ull__cursor *cursor)
{
    uint64_t value = ull__get_number(cursor);
    if (value <= UINT32_MAX)
        return (uint32_t)value;
    cursor->failed = true;
    cursor->at = cursor->end;
    return 0;
}

static uint8_t get_byte(struct ull__cursor *cursor)
{
    if (cursor->at < cursor->end)
        return *cursor->at++;
    cursor->failed = true;
    return 0;
}

static uint64_t get_flagged(struct ull__cursor *cursor, bool *flag)
{
    uint8_t low = get_byte(cursor);
    uint64_t number = low >> 1 & 0x3f;
    *flag = low & 1;
    if (low & 0x80) {
        uint64_t rest = ull__get_number(cursor);
        cursor->failed |= rest >> 58 != 0;
        number |= rest << 6;
    }
    return number;
}

static uint64_t get_round(struct ull__cursor *cursor)
{
    bool whole;
    uint64_t number = get_flagged(cursor, &whole);
    cursor->failed |= whole && number >> 55 != 0;
    return whole ? number * 512 : number;
}

static int64_t get_signed_round(struct ull__cursor *cursor)
{
    bool whole;
    int64_t number = unzigzag(get_flagged(cursor, &whole));
    if (whole && (number > INT64_MAX / 512 || number < INT64_MIN / 512)) {
        cursor->failed = true;
        return 0;
    }
    return whole ? number * 512 : number;
}

/* --- events ---------------------------------------------------------------------------------------------- */

enum {
    HAS_THREAD = 1,
    HAS_STREAM = 2,
    HAS_DEVICE = 4,
    HAS_PROCESS = 8,
    HAS_RESULT = 16,
    HAS_WAIT = 32,
    HAS_STACK = 64,
    HAS_TAG = 128,
};

static uint8_t what_differs(const struct ull__event *event, const struct ull__deltas *last)
{
    return (uint8_t)((event->thread != last->thread ? HAS_THREAD : 0) |
                     (event->stream != last->stream ? HAS_STREAM : 0) |
                     (event->device != last->device || event->class != last->class ? HAS_DEVICE : 0) |
                     (event->process != last->process ? HAS_PROCESS : 0) |
                     (event->result ? HAS_RESULT : 0) | (event->wait ? HAS_WAIT : 0) |
                     (event->stack ? HAS_STACK : 0) | (event->tag ? HAS_TAG : 0));
}

static uint8_t *put_charged(uint8_t *at, const struct ull__event *event)
{
    if (event->charged == (int64_t)event->size)
        return ull__put_number(at, 0);
    if (event->charged == 0)
        return ull__put_number(at, 1);
    at = ull__put_number(at, 2);
    return put_signed_round(at, event->charged);
}

static uint8_t *put_what_differs(uint8_t *at, const struct ull__event *event, uint8_t differs)
{
    if (differs & HAS_THREAD)
        at = ull__put_number(at, event->thread);
    if (differs & HAS_STREAM)
        at = ull__put_number(at, event->stream);
    if (differs & HAS_DEVICE) {
        *at++ = event->device;
        *at++ = event->class;
    }
    if (differs & HAS_PROCESS)
        at = ull__put_number(at, event->process);
    if (differs & HAS_RESULT)
        at = ull__put_signed(at, event->result);
    if (differs & HAS_WAIT)
        *at++ = event->wait;
    if (differs & HAS_STACK)
        at = ull__put_number(at, event->stack);
    if (differs & HAS_TAG)
        at = ull__put_number(at, event->tag);
    return at;
}

static void remember(struct ull__deltas *last, const struct ull__event *event)
{
    *last = (struct ull__deltas){.time_ns = event->time_ns,
                                 .address = event->address,
                                 .stream = event->stream,
                                 .thread = event->thread,
                                 .process = event->process,
                                 .device = event->device,
                                 .class = event->class};
}

uint8_t *ull__put_event(uint8_t *at, const struct ull__event *event, struct ull__deltas *last)
{
    uint8_t differs = what_differs(event, last);
    *at++ = event->kind;
    *at++ = differs;
    at = ull__put_signed(at, (int64_t)(event->time_ns - last->time_ns));
    at = put_signed_round(at, (int64_t)(event->address - last->address));
    at = put_round(at, event->size);
    at = put_charged(at, event);
    at = ull__put_number(at, event->latency_ns);
    at = put_what_differs(at, event, differs);
    remember(last, event);
    return at;
}

static int64_t get_charged(struct ull__cursor *cursor, uint64_t size)
{
    uint64_t how = ull__get_number(cursor);
    if (how == 0)
        return (int64_t)size;
    if (how == 1)
        return 0;
    if (how != 2)
        cursor->failed = true;
    return get_signed_round(cursor);
}

static void get_what_differs(struct ull__cursor *cursor, struct ull__event *event, uint8_t differs)
{
    if (differs & HAS_THREAD)
        event->thread = ull__get_number32(cursor);
    if (differs & HAS_STREAM)
        event->stream = ull__get_number(cursor);
    if (differs & HAS_DEVICE) {
        event->device = get_byte(cursor);
        event->class = get_byte(cursor);
    }
    if (differs & HAS_PROCESS) {
        uint32_t process = ull__get_number32(cursor);
        cursor->failed |= process > UINT16_MAX;
        event->process = (uint16_t)process;
    }
    if (differs & HAS_RESULT) {
        int64_t result = ull__get_signed(cursor);
        cursor->failed |= result > INT16_MAX || result < INT16_MIN;
        event->result = (int16_t)result;
    }
    if (differs & HAS_WAIT)
        event->wait = get_byte(cursor);
    if (differs & HAS_STACK)
        event->stack = ull__get_number32(cursor);
    if (differs & HAS_TAG)
        event->tag = ull__get_number32(cursor);
}

bool ull__get_event(struct ull__cursor *cursor, struct ull__event *event, struct ull__deltas *last)
{
    *event = (struct ull__event){.stream = last->stream,
                                 .thread = last->thread,
                                 .process = last->process,
                                 .device = last->device,
                                 .class = last->class};
    event->kind = get_byte(cursor);
    uint8_t differs = get_byte(cursor);
    event->time_ns = last->time_ns + (uint64_t)ull__get_signed(cursor);
    event->address = last->address + (uint64_t)get_signed_round(cursor);
    event->size = get_round(cursor);
    event->charged = get_charged(cursor, event->size);
    event->latency_ns = ull__get_number32(cursor);
    get_what_differs(cursor, event, differs);
    remember(last, event);
    return !cursor->failed && event->kind > ULL_EVENT_NONE && event->kind < ULL_EVENT_KINDS &&
           event->class < ULL_CLASSES;
}
