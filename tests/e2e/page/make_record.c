/*
 * make_record.c: records without a GPU, for the tests of the page and of traces for viewers.
 *
 *   make_record training FILE        two processes on two devices, with all kinds of events, stacks and tags
 *   make_record hostile FILE         the same with names, tags and stacks that want to be markup
 *   make_record driver FILE          one process, the driver's calls alone, no stacks, no tags
 *   make_record nothing FILE         a process that never asked for memory
 *   make_record many EVENTS FILE     steps of a training with that many events
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "writer.h"

#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)

static struct ull__writer *writer;
static uint64_t now, random_state = 88172645463325252u;
static const char *const *names;

enum {
    COMMAND,
    PROCESS,
    WORKER,
    WEIGHTS,
    ACTIVATIONS,
    GRADIENTS,
    OUTER,
    MIDDLE,
    INNER,
    SCRIPT,
    MARK
};
static const char *const plain_names[] = {"python3 train.py --epochs 2",
                                          "python3",
                                          "loader",
                                          "weights",
                                          "activations",
                                          "gradients",
                                          "main",
                                          "forward",
                                          "conv2d",
                                          "/home/someone/train.py",
                                          "epoch 2"};
static const char *const hostile_names[] = {"</script><script>window.hacked=1</script>",
                                            "<img src=x onerror=window.hacked=2>",
                                            "\"><svg onload=window.hacked=3>",
                                            "</title><b>weights</b>&amp;",
                                            "<!--<script>",
                                            "'\"`${window.hacked=4}\xe2\x80\xa8{{script}}",
                                            "]]></script>",
                                            "\xff\xfe bad bytes \x01\x1b[31m",
                                            "<plaintext>",
                                            "javascript:window.hacked=5",
                                            "</style><script>window.hacked=6</script>"};

static uint64_t random_below(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static void put(struct ull__event event)
{
    event.time_ns = now;
    ull__writer_event(writer, &event);
}

static void alloc(enum ull__event_kind kind, uint64_t address, uint64_t size, struct ull__event with)
{
    with.kind = (uint8_t)kind;
    with.address = address;
    with.size = size;
    with.charged = with.result ? 0 : (int64_t)((size + 511) / 512 * 512);
    with.latency_ns = with.latency_ns ? with.latency_ns : 2000 + (uint32_t)random_below(3000);
    put(with);
}

static void release(enum ull__event_kind kind, uint64_t address, uint64_t size, struct ull__event with)
{
    with.kind = (uint8_t)kind;
    with.address = address;
    with.size = size;
    with.charged = (int64_t)((size + 511) / 512 * 512);
    put(with);
}

static uint32_t stack(int depth, int variant)
{
    struct ull__record_frame frames[16];
    uint32_t script = ull__writer_text(writer, names[SCRIPT]);
    char layer[300];
    snprintf(layer, sizeof layer, "%s.%d", names[INNER], variant);
    frames[0] =
        (struct ull__record_frame){ull__writer_text(writer, layer), script, 40 + (uint32_t)variant};
    for (int i = 1; i < depth - 1; i++)
        frames[i] = (struct ull__record_frame){ull__writer_text(writer, names[MIDDLE]), script,
                                               100 + (uint32_t)i};
    frames[depth - 1] =
        (struct ull__record_frame){ull__writer_text(writer, names[OUTER]), script, 300};
    return ull__writer_stack(writer, frames, (uint32_t)depth);
}

static void begin(const char *path)
{
    char id[ULL_RECORD_ID];
    struct ull_error err;
    if (ull__record_create(path, id, &err) != ULL_OK ||
        ull__writer_open(path, id, &writer, &err) != ULL_OK) {
        fprintf(stderr, "make_record: %s\n", err.message);
        exit(1);
    }
    now = ull__record_now();
    ull__writer_job(writer, "training", names[COMMAND], "0");
    for (int d = 0; d < 2; d++) {
        char uuid[32];
        snprintf(uuid, sizeof uuid, "GPU-%d", d);
        ull__writer_device(writer, &(struct ull__record_device){.uuid = uuid,
                                                                .name = "Made-up card",
                                                                .logical = d,
                                                                .physical = d,
                                                                .total_bytes = 16384 * MIB,
                                                                .budget_bytes = 4096 * MIB});
    }
    for (uint32_t p = 0; p < 2; p++)
        ull__writer_process(writer, p,
                            &(struct ull__record_process){.pid = 4000 + p,
                                                          .parent = p ? 4000 : 0,
                                                          .start_ticks = 1,
                                                          .begin_ns = now,
                                                          .name = names[PROCESS + p]});
}

static int end(void)
{
    ull__writer_over(writer, now, 0);
    bool good = ull__writer_flush(writer, 0);
    ull__writer_close(writer);
    return good ? 0 : 1;
}

/* Weights, then steps of growing activations and gradients, on two devices; a refusal, waits, marks. */
static int training(const char *path)
{
    enum { LAYERS = 6, STEPS = 12 };
    begin(path);
    uint32_t stacks[LAYERS], weights = ull__writer_text(writer, names[WEIGHTS]);
    uint32_t activations = ull__writer_text(writer, names[ACTIVATIONS]);
    uint32_t gradients = ull__writer_text(writer, names[GRADIENTS]);
    for (int i = 0; i < LAYERS; i++)
        stacks[i] = stack(3 + i, i);
    for (uint16_t p = 0; p < 2; p++) {
        struct ull__event who = {.process = p, .device = (uint8_t)p, .class = ULL_CLASS_DATA};
        put((struct ull__event){.kind = ULL_EVENT_START, .process = p, .device = ULL_EVENT_NO_DEVICE});
        put((struct ull__event){.kind = ULL_EVENT_CHARGE,
                                .process = p,
                                .device = (uint8_t)p,
                                .class = ULL_CLASS_CONTEXT,
                                .charged = 300 * MIB});
        for (uint64_t i = 0; i < LAYERS; i++) {
            now += 20 * MS;
            who.tag = weights;
            who.stack = stacks[i];
            alloc(ULL_EVENT_ALLOC, (i + 1) << 32, (40 + 8 * i) * MIB / (p + 1u), who);
        }
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint16_t p = 0; p < 2; p++) {
            struct ull__event who = {.process = p, .device = (uint8_t)p, .class = ULL_CLASS_DATA};
            uint64_t size = (120 + 10 * (step == 7)) * MIB / (p + 1u);
            for (uint64_t i = 0; i < LAYERS; i++) {
                now += 7 * MS;
                who.tag = activations;
                who.stack = stacks[i];
                who.wait = step == 7 && i == 3 ? ULL_WAIT_TRIM : 0;
                who.latency_ns = who.wait ? 40 * MS : 0;
                alloc(ULL_EVENT_ALLOC, (0x100 + i) << 32, size, who);
            }
            who = (struct ull__event){.process = p, .device = (uint8_t)p, .tag = gradients};
            who.class = ULL_CLASS_POOL;
            who.stack = stacks[LAYERS - 1];
            alloc(ULL_EVENT_ALLOC, UINT64_C(0x200) << 32, 96 * MIB, who);
            if (step == 7 && p == 0) {
                struct ull__event refused = who;
                refused.result = 2;
                alloc(ULL_EVENT_ALLOC, 0, 4000 * MIB, refused);
            }
            now += 9 * MS;
            release(ULL_EVENT_FREE, UINT64_C(0x200) << 32, 96 * MIB, who);
            for (uint64_t i = LAYERS; i-- > 0;) {
                now += 5 * MS;
                who.class = ULL_CLASS_DATA;
                release(ULL_EVENT_FREE, (0x100 + i) << 32, size, who);
            }
            put((struct ull__event){.kind = ULL_EVENT_HOST,
                                    .process = p,
                                    .device = ULL_EVENT_NO_DEVICE,
                                    .size = (800 + 3 * step + 200 * p) * MIB});
        }
        if (step == 5)
            put((struct ull__event){.kind = ULL_EVENT_MARK,
                                    .device = ULL_EVENT_NO_DEVICE,
                                    .tag = ull__writer_text(writer, names[MARK])});
        if (step == 9)
            put((struct ull__event){.kind = ULL_EVENT_BUDGET, .device = 0, .size = 3072 * MIB});
    }
    now += 30 * MS;
    put((struct ull__event){.kind = ULL_EVENT_END, .process = 1, .device = ULL_EVENT_NO_DEVICE});
    return end();
}

static int driver(const char *path)
{
    struct ull__event who = {.class = ULL_CLASS_DATA};
    begin(path);
    for (uint64_t i = 0; i < 30; i++) {
        now += 13 * MS;
        alloc(ULL_EVENT_ALLOC, (i + 1) << 32, (i % 5 + 1) * 64 * MIB, who);
        now += 11 * MS;
        if (i % 3 != 0)
            release(ULL_EVENT_FREE, (i + 1) << 32, (i % 5 + 1) * 64 * MIB, who);
    }
    return end();
}

static int nothing(const char *path)
{
    begin(path);
    put((struct ull__event){.kind = ULL_EVENT_START, .device = ULL_EVENT_NO_DEVICE});
    now += 1500 * MS;
    return end();
}

/* Short-lived blocks of many sizes over long-lived ones, as chunks in segments. */
static int many(uint64_t events, const char *path)
{
    enum { SLOTS = 256, STACKS = 400 };
    uint64_t sizes[SLOTS] = {0};
    uint32_t stacks[STACKS], tags[8];
    begin(path);
    for (int i = 0; i < STACKS; i++)
        stacks[i] = stack(4 + i % 12, i);
    for (int i = 0; i < 8; i++) {
        char tag[300];
        snprintf(tag, sizeof tag, "%s %d", names[ACTIVATIONS], i);
        tags[i] = ull__writer_text(writer, tag);
    }
    struct ull__event who = {.class = ULL_CLASS_DATA};
    for (uint64_t i = 0; i < 16; i++, events--)
        alloc(ULL_EVENT_ALLOC, (i + 1) << 40, 256 * MIB, who);
    for (; events > 0; events--) {
        uint64_t phase = events / 400 % 16, slot = random_below(SLOTS);
        uint64_t address = (UINT64_C(1) << 40) + slot * 16 * MIB;
        now += 20000 + random_below(30000);
        if (sizes[slot]) {
            release(ULL_EVENT_CHUNK_FREE, address, sizes[slot], who);
            sizes[slot] = 0;
            continue;
        }
        sizes[slot] =
            (UINT64_C(1) << (8 + random_below(13 + phase / 8))) + random_below(4096) * phase;
        who.tag = tags[slot % 8];
        who.stack = stacks[random_below(STACKS)];
        who.latency_ns = 200 + (uint32_t)random_below(400);
        alloc(ULL_EVENT_CHUNK_ALLOC, address, sizes[slot], who);
    }
    return end();
}

int main(int argc, char **argv)
{
    names = plain_names;
    if (argc == 3 && strcmp(argv[1], "training") == 0)
        return training(argv[2]);
    if (argc == 3 && strcmp(argv[1], "hostile") == 0) {
        names = hostile_names;
        return training(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "driver") == 0)
        return driver(argv[2]);
    if (argc == 3 && strcmp(argv[1], "nothing") == 0)
        return nothing(argv[2]);
    if (argc == 4 && strcmp(argv[1], "many") == 0)
        return many(strtoull(argv[2], NULL, 10), argv[3]);
    fprintf(stderr, "usage: make_record training|hostile|driver|nothing FILE | many EVENTS FILE\n");
    return 2;
}
