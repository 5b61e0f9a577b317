/*
 * fuzz_trace.c: recorded traces (apps/ullage/trace.c). An input that does not begin like gzip is the text of
 * one, and is packed first. What is accepted is played: every event must be possible, and the figures right.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "trace.h"

const char *const fuzz_tokens[] = {"time_us,action,id,size,stream\n",
                                   ",a,",
                                   ",f,",
                                   ",",
                                   "\n",
                                   "\r\n",
                                   "0,a,1,512,0\n",
                                   "0,f,1,512,0\n",
                                   "\x1f\x8b",
                                   NULL};

static void check_trace(const struct trace *trace)
{
    uint64_t *live = calloc(trace->slots ? trace->slots : 1, sizeof *live), sum = 0, peak = 0;
    FUZZ_EXPECT(live && trace->count > 0);
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];
        FUZZ_EXPECT(event->slot < trace->slots && event->size > 0);
        FUZZ_EXPECT(live[event->slot] == (event->allocates ? 0 : event->size));
        live[event->slot] = event->allocates ? event->size : 0;
        sum = event->allocates ? sum + event->size : sum - event->size;
        if (sum > peak) {
            peak = sum;
            FUZZ_EXPECT(peak < trace->peak_bytes || i == trace->peak_event);
        }
    }
    FUZZ_EXPECT(peak == trace->peak_bytes);
    free(live);
}

/* The file's contents: the input, or the input packed. */
static void write_file(int fd, const uint8_t *data, size_t size)
{
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b) {
        FUZZ_EXPECT(write(fd, data, size) == (ssize_t)size);
        return;
    }
    gzFile file = gzdopen(dup(fd), "wb1");
    FUZZ_EXPECT(file && (size == 0 || gzwrite(file, data, (unsigned int)size) == (int)size));
    FUZZ_EXPECT(gzclose(file) == Z_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    struct trace trace = {.count = 77};
    struct ull_error error = {.message = ""};
    int fd = memfd_create("trace", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    write_file(fd, data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ull_status status = trace_load(path, &trace, &error);
    close(fd);
    if (status == ULL_OK) {
        check_trace(&trace);
        trace_free(&trace);
    } else {
        FUZZ_EXPECT(status == ULL_E_FORMAT && trace.count == 77);
        FUZZ_EXPECT(memchr(error.message, 0, sizeof error.message) != NULL && error.message[0]);
    }
    return 0;
}
