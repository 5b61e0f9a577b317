/*
 * synthetic.c: made-up pictures and tokens of any shape that can be learned, from a seed alone.
 *
 * A class of pictures is a sum of three waves per channel; a picture is that of its class and noise of
 * twice its deviation. Classes take turns, so that each is as frequent as the others. Tokens follow a
 * row of their own: after a token comes, three times out of four, the one that the seed says, and any
 * other way one at random, so a model can reach -(p ln p + (V - 1) q ln q) nats a token with
 * q = 0.25 / V and p = 0.75 + q, and no less.
 */
#include <math.h>
#include <stdlib.h>

#include "data_private.h"

enum { WAVES = 3 };

struct synthetic {
    uint64_t seed;
};

static ull_status open_synthetic(struct ull__data *data, const struct ull__data_want *want,
                                 struct ull_error *err)
{
    static const int64_t given[3] = {1, 28, 28};
    struct synthetic *own = data->own = calloc(1, sizeof *own);
    if (!own)
        return ull__data_no_memory(err, sizeof *own, "the data");
    own->seed = ull__mix(want->seed, 0x6d6164652075u);
    int64_t known = json_integer_value(json_object_get(data->like, "classes"));
    int64_t asked = want->window ? data->spec.vocab : data->spec.classes;
    data->info.classes = asked           ? asked
                         : want->classes ? want->classes
                         : known         ? known
                         : want->window  ? 256
                                         : 10;
    if (want->classes && data->info.classes > want->classes)
        return ull__fail(err, ULL_E_INVALID, "'%s=%lld': the model tells %lld apart",
                         want->window ? "vocab" : "classes", (long long)asked,
                         (long long)want->classes);
    ull_status status = want->window ? ULL_OK : ull__data_shape(data, want, given, err);
    uint64_t train = data->spec.samples ? (uint64_t)data->spec.samples : 60000;
    double share = data->spec.split < 0 ? 1.0 / 6 : data->spec.split;
    uint64_t eval = share > 0 ? (uint64_t)ceil((double)train * share) : 0;
    data->info.samples[ULL_DATA_TRAIN] = train;
    data->info.samples[ULL_DATA_EVAL] = eval;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        uint64_t hash = ull__mix(own->seed, (uint64_t)p);
        hash = ull__mix(hash, data->info.samples[p]);
        data->info.identity[p] = ull__mix(hash, (uint64_t)data->info.classes);
    }
    return status;
}

static void close_synthetic(struct ull__data *data)
{
    free(data->own);
}

/* A number of about the given deviation around 0, the same row for the same state. */
static inline float noise(uint64_t *state, float spread)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = (uint32_t)((*state ^ *state >> 22) >> 29);
    return (float)(int32_t)bits * (spread * 0x1p-31f);
}

/* cos at every step along one side. */
static void wave(struct ull__draws *draws, float *line, int64_t length)
{
    double turns = 0.5 + 2.5 * ull__draw_unit(draws), phase = ull__draw_unit(draws);
    for (int64_t i = 0; i < length; i++)
        line[i] = (float)cos(6.283185307179586 * (turns * (double)i / (double)length + phase));
}

static ull_status make_picture(const struct ull__data *data, uint64_t label, uint64_t state,
                               struct ull__scratch *scratch, float *x)
{
    const struct synthetic *own = data->own;
    const int64_t height = data->info.shape[1], width = data->info.shape[2];
    size_t need = (size_t)(WAVES * (height + width));
    if (need > scratch->line_size) {
        free(scratch->line);
        scratch->line = malloc(need * sizeof *scratch->line);
        scratch->line_size = scratch->line ? need : 0;
        if (!scratch->line)
            return ull__fail(&scratch->error, ULL_E_NO_MEMORY, "no memory for a made-up picture");
    }
    float *down = scratch->line, *along = down + WAVES * height;
    struct ull__draws draws = {ull__mix(own->seed, label)};
    for (int64_t c = 0; c < data->info.shape[0]; c++) {
        for (int w = 0; w < WAVES; w++) {
            wave(&draws, down + w * height, height);
            wave(&draws, along + w * width, width);
        }
        for (int64_t i = 0; i < height; i++) {
            const float a = down[i], b = down[height + i], d = down[2 * height + i];
            for (int64_t j = 0; j < width; j++)
                *x++ = 0.5f * (a * along[j] + b * along[width + j] + d * along[2 * width + j]) +
                       noise(&state, 1.5f);
        }
    }
    return ULL_OK;
}

static void make_tokens(const struct ull__data *data, struct ull__draws *draws, int32_t *x,
                        int32_t *targets)
{
    const struct synthetic *own = data->own;
    const uint64_t vocabulary = (uint64_t)data->info.classes;
    uint64_t token = ull__draw_below(draws, vocabulary);
    for (int64_t i = 0; i < data->info.window; i++) {
        x[i] = (int32_t)token;
        uint64_t drawn = ull__draw(draws);
        if (drawn >> 62)
            token = ull__mix(own->seed, token) % vocabulary;
        else
            token = drawn % vocabulary;
        targets[i] = (int32_t)token;
    }
}

static ull_status sample_synthetic(const struct ull__data *data, uint64_t index,
                                   const struct ull__turn *turn, struct ull__scratch *scratch,
                                   void *x, int32_t *targets)
{
    const struct synthetic *own = data->own;
    uint64_t key = ull__mix(ull__mix(own->seed, (uint64_t)turn->part + 1), index);
    if (data->info.tokens) {
        struct ull__draws draws = {key};
        make_tokens(data, &draws, x, targets);
        return ULL_OK;
    }
    uint64_t label = index % (uint64_t)data->info.classes;
    targets[0] = (int32_t)label;
    return make_picture(data, label, key, scratch, x);
}

const struct ull__source ull__source_synthetic = {
    .open = open_synthetic,
    .close = close_synthetic,
    .sample = sample_synthetic,
};
