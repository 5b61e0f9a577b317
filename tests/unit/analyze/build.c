/* build.c: see build.h. */
#include "build.h"

#include <stdio.h>
#include <stdlib.h>

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "build: %s\n", what);
        abort();
    }
}

struct ull__history *build_history(void)
{
    struct ull__history *history = ull__history_create();
    struct ull__history_process process = {.pid = 100, .exit_code = -1};
    struct ull__history_device device = {.logical = 0, .physical = 0, .total_bytes = 16ull << 30};
    must(history && ull__history_process(history, &process) == 0 &&
             ull__history_device(history, &device) == 0,
         "no history");
    return history;
}

struct ull__event *build_event(struct ull__history *history, uint64_t time_ns,
                               enum ull__event_kind kind, uint64_t address, uint64_t size)
{
    struct ull__event event = {.time_ns = time_ns,
                               .address = address,
                               .size = size,
                               .charged = (int64_t)size,
                               .class = ULL_CLASS_DATA,
                               .kind = (uint8_t)kind};
    must(ull__history_add(history, &event), "no memory");
    return &history->events[history->event_count - 1];
}

struct ull__facts *build_facts(struct ull__history *history)
{
    struct ull_error err = {""};
    must(ull__history_finish(history, 0, &err) == ULL_OK, err.message);
    struct ull__facts *facts = ull__facts_create(history);
    must(facts != NULL, "no facts");
    return facts;
}

void build_free(struct ull__facts *facts)
{
    struct ull__history *history = (struct ull__history *)facts->history;
    ull__facts_destroy(facts);
    ull__history_destroy(history);
}
