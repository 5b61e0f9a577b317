/* windows.c: see windows.h. */
#include "windows.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

uint64_t ull__windows_count(const struct ull__sequence *sequence, enum ull__data_part part,
                            int64_t window)
{
    uint64_t t = (uint64_t)window, length = sequence->length;
    if (part == ULL_DATA_EVAL)
        return length < 2 ? 0 : (length - 2) / t + 1;
    if (length < t + 1)
        return 0;
    uint64_t count = (length - t) / t; /* leaves room to begin up to t - 1 later */
    return count ? count : 1;
}

/* The first token of a window. */
static uint64_t start(const struct ull__sequence *sequence, int64_t window, uint64_t index,
                      const struct ull__turn *turn)
{
    uint64_t t = (uint64_t)window, shift = 0;
    if (turn->part == ULL_DATA_TRAIN && turn->shuffle) {
        uint64_t count = ull__windows_count(sequence, turn->part, window);
        uint64_t room = sequence->length - 1 - count * t;
        struct ull__draws draws = {ull__mix(ull__mix(turn->seed, turn->epoch), 0x736869667473u)};
        shift = ull__draw_below(&draws, (room < t ? room + 1 : t));
    }
    return index * t + shift;
}

/* In place: `count` tokens of `width` bytes at the end of out become int32_t. */
static void widen(int32_t *out, size_t count, int width)
{
    const unsigned char *from = (const unsigned char *)(out + count) - count * (size_t)width;
    for (size_t i = 0; i < count; i++) {
        uint32_t value = 0;
        memcpy(&value, from + i * (size_t)width, (size_t)width); /* little-endian, as the machine */
        out[i] = (int32_t)value;
    }
}

ull_status ull__sequence_fetch(const struct ull__sequence *sequence, uint64_t at, size_t count,
                               int32_t *out, struct ull_error *err)
{
    size_t width = (size_t)sequence->width, size = count * width, done = 0;
    char *end = (char *)(out + count) - size;
    uint64_t offset = (sequence->begin + at) * width;
    if (sequence->ids) {
        memcpy(end, (const char *)sequence->ids + offset, size);
        done = size;
    }
    while (done < size) {
        ssize_t got = pread(sequence->fd, end + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ull__fail(err, ULL_E_SYSTEM, "cannot read tokens at byte %llu: %s",
                             (unsigned long long)(offset + done),
                             got ? strerror(errno) : "the file got shorter");
        done += (size_t)got;
    }
    widen(out, count, sequence->width);
    return ULL_OK;
}

ull_status ull__windows_sample(const struct ull__sequence *sequence, int64_t window, int64_t ignore,
                               uint64_t index, const struct ull__turn *turn, int32_t *x,
                               int32_t *targets, struct ull_error *err)
{
    uint64_t at = start(sequence, window, index, turn);
    uint64_t left = sequence->length - 1 - at;
    size_t t = (size_t)window, count = left < t ? (size_t)left : t;
    ull_status status = ull__sequence_fetch(sequence, at, count, x, err);
    if (status == ULL_OK)
        status = ull__sequence_fetch(sequence, at + 1, count, targets, err);
    if (status != ULL_OK)
        return status;
    for (size_t i = 0; ignore >= 0 && i < count; i++)
        if (targets[i] == ignore)
            targets[i] = ULL_DATA_IGNORED;
    for (size_t i = count; i < t; i++) {
        x[i] = 0;
        targets[i] = ULL_DATA_IGNORED;
    }
    return ULL_OK;
}

uint64_t ull__windows_valid(const struct ull__sequence *sequence, int64_t window, int64_t ignore,
                            uint64_t index, const struct ull__turn *turn)
{
    uint64_t at = start(sequence, window, index, turn) + 1;
    uint64_t left = sequence->length - at;
    uint64_t count = left < (uint64_t)window ? left : (uint64_t)window;
    return ignore < 0 ? count : ull__sequence_valid(sequence, ignore, at, count);
}

uint64_t ull__sequence_valid(const struct ull__sequence *sequence, int64_t ignore, uint64_t at,
                             uint64_t count)
{
    uint64_t valid = 0;
    while (count) {
        int32_t some[512];
        size_t now = count < 512 ? (size_t)count : 512;
        if (ull__sequence_fetch(sequence, at, now, some, NULL) != ULL_OK)
            return valid; /* reading the batch will say so */
        for (size_t i = 0; i < now; i++)
            valid += some[i] != ignore;
        at += now;
        count -= now;
    }
    return valid;
}

void ull__windows_split(double share, struct ull__sequence parts[ULL_DATA_PARTS])
{
    struct ull__sequence *train = &parts[ULL_DATA_TRAIN], *eval = &parts[ULL_DATA_EVAL];
    uint64_t held = (uint64_t)llround((double)train->length * share);
    *eval = *train;
    train->length -= held;
    eval->begin += train->length;
    eval->length = held;
}

ull_status ull__windows_info(struct ull__data *data, const struct ull__data_want *want,
                             const struct ull__sequence parts[ULL_DATA_PARTS], struct ull_error *err)
{
    for (int p = 0; p < ULL_DATA_PARTS; p++)
        data->info.samples[p] = ull__windows_count(&parts[p], (enum ull__data_part)p, want->window);
    const struct ull__sequence *train = &parts[ULL_DATA_TRAIN];
    if (data->info.samples[ULL_DATA_TRAIN])
        return ULL_OK;
    return ull__fail(
        err, ULL_E_FORMAT,
        "'%.200s' has %llu tokens to train on: a window of %lld needs one more than that",
        data->spec.path, (unsigned long long)train->length, (long long)want->window);
}
