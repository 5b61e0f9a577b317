/* buckets.c: to which lengths documents are filled up. */
#include <stdlib.h>
#include <string.h>

#include "data_private.h"

enum { UNIT = 8, MOST_PLACES = 257, MOST_BUCKETS = 32 };

/* Another bucket is another plan: it must save so much of all tokens. */
#define WORTH 0.03

struct places {
    int count;
    int64_t length[MOST_PLACES];
    uint64_t samples[MOST_PLACES]; /* that are no longer, and longer than the place before */
};

/* Possible lengths: multiples of a unit, as coarse as the window is long. */
static void count_samples(const struct ull__data *data, enum ull__data_part part,
                          struct places *places)
{
    const struct ull__data_info *info = &data->info;
    uint64_t counts[MOST_PLACES] = {0};
    int64_t unit = UNIT;
    while ((info->window + unit - 1) / unit >= MOST_PLACES)
        unit *= 2;
    for (uint64_t i = 0; i < info->samples[part]; i++)
        counts[(data->source->length(data, part, i) + unit - 1) / unit]++;
    for (int i = 0; i < MOST_PLACES; i++) {
        if (!counts[i])
            continue;
        places->length[places->count] = i * unit < info->window ? i * unit : info->window;
        places->samples[places->count++] = counts[i];
    }
}

int ull__data_buckets(const struct ull__data *data, enum ull__data_part part, int most,
                      int64_t *lengths)
{
    struct places places = {.count = 0};
    lengths[0] = data->info.window;
    if (!data->info.documents || !data->info.samples[part])
        return 1;
    count_samples(data, part, &places);
    most = most < MOST_BUCKETS ? most : MOST_BUCKETS;
    most = most < places.count ? most : places.count;
    /* tokens[k][j]: the fewest with k + 1 buckets, the last one at place j; before[k][j]: the one before. */
    double tokens[MOST_BUCKETS][MOST_PLACES];
    int before[MOST_BUCKETS][MOST_PLACES], last = places.count - 1, buckets = 1;
    for (int k = 0; k < most; k++) {
        for (int j = 0; j <= last; j++) {
            uint64_t samples = 0;
            tokens[k][j] = -1;
            before[k][j] = -1;
            for (int i = j; i >= 0; i--) {
                samples += places.samples[i];
                double here = (double)samples * (double)places.length[j];
                if (k == 0 ? i > 0 : i == 0)
                    continue;
                double all = here + (k > 0 ? tokens[k - 1][i - 1] : 0);
                if ((k > 0 && tokens[k - 1][i - 1] < 0) || (tokens[k][j] >= 0 && all >= tokens[k][j]))
                    continue;
                tokens[k][j] = all;
                before[k][j] = i - 1;
            }
        }
        if (k > 0 && tokens[k][last] > (1 - WORTH) * tokens[k - 1][last])
            break;
        buckets = k + 1;
    }
    for (int k = buckets - 1, j = last; k >= 0; j = before[k][j], k--)
        lengths[k] = places.length[j];
    /* The last one holds the other part's too. */
    int64_t longest = data->info.longest[part == ULL_DATA_TRAIN ? ULL_DATA_EVAL : ULL_DATA_TRAIN];
    longest = (longest + UNIT - 1) / UNIT * UNIT;
    longest = longest < data->info.window ? longest : data->info.window;
    if (longest > lengths[buckets - 1])
        lengths[buckets - 1] = longest;
    return buckets;
}

void ull__data_narrow(struct ull__data *data, int64_t length)
{
    struct ull__data_info *info = &data->info;
    if (!info->documents || length > info->window || length < info->longest[ULL_DATA_TRAIN] ||
        length < info->longest[ULL_DATA_EVAL])
        return;
    info->window = info->sample_targets = length;
    info->sample_bytes = 4 * (size_t)length;
}
