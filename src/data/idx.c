/*
 * idx.c: IDX files as MNIST and Fashion-MNIST come in: pictures and labels, gzipped or not.
 *
 * A folder has one file of pictures and one of labels for training (its name has "train"), and may have
 * the same for evaluation ("t10k", "test" or "val"). Pictures are [n, h, w] or [n, c, h, w] of bytes or
 * of 32-bit floats, labels bytes or 32-bit integers. Everything is loaded and checked. Bytes are read as
 * 0 to 1, floats as they are; both are normalized with mean and deviation of the training part unless
 * something else is said. Pictures of bytes are resized where the model takes another shape.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_private.h"
#include "idx_file.h"

struct part {
    char pictures_path[ULL_DATA_PATH], labels_path[ULL_DATA_PATH];
    int type; /* ULL_IDX_U8 or ULL_IDX_F32 */
    uint64_t count;
    int64_t shape[3];
    void *pixels;
    int32_t *labels;
    const uint32_t *index; /* of a held-out share: which pictures are of this part; NULL: all */
};

struct idx {
    struct part parts[ULL_DATA_PARTS];
    bool shared;       /* both parts are of one pair of files, owned by the first */
    uint32_t *indices; /* of both parts */
    float table[ULL_DATA_CHANNELS][256]; /* a byte's value, normalized */
};

static ull_status check_floats(const struct part *part, struct ull_error *err)
{
    const float *values = part->pixels;
    uint64_t size = (uint64_t)(part->shape[0] * part->shape[1] * part->shape[2]);
    for (uint64_t i = 0; i < size * part->count; i++)
        if (!isfinite(values[i]))
            return ull__fail(err, ULL_E_FORMAT, "'%.300s': picture %llu has %s at value %llu",
                             part->pictures_path, (unsigned long long)(i / size),
                             isnan(values[i]) ? "NaN" : "an infinity",
                             (unsigned long long)(i % size));
    return ULL_OK;
}

static ull_status read_pictures(struct part *part, struct ull_error *err)
{
    struct ull__idx file;
    ull_status status = ull__idx_open(part->pictures_path, &file, err);
    if (status != ULL_OK)
        return status;
    int d = file.dimensions;
    bool sound = (file.type == ULL_IDX_U8 || file.type == ULL_IDX_F32) && d >= 3;
    part->shape[0] = d == 4 ? (int64_t)file.size[1] : 1;
    for (int i = 1; i < 3 && d >= 3; i++)
        part->shape[i] = (int64_t)file.size[d - 3 + i];
    for (int i = 0; i < 3; i++)
        sound = sound && part->shape[i] >= 1 && part->shape[i] <= (i ? 16384 : ULL_DATA_CHANNELS);
    part->count = file.size[0];
    if (!sound || part->count < 1 || part->count > UINT32_MAX / 2)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "'%.250s' has %d dimensions (%llu, %llu, %llu …) of type 0x%02x: expected "
                      "n x h x w or n x c x h x w of bytes (0x08) or floats (0x0d), c at most %d",
                      part->pictures_path, d, (unsigned long long)file.size[0],
                      (unsigned long long)file.size[1], (unsigned long long)file.size[2], file.type,
                      ULL_DATA_CHANNELS);
    part->type = file.type;
    uint64_t values = sound ? (uint64_t)(part->shape[0] * part->shape[1] * part->shape[2]) : 0;
    if (status == ULL_OK)
        status = ull__idx_read(&file, part->count, values * (file.type == ULL_IDX_U8 ? 1 : 4),
                               "pictures", &part->pixels, err);
    ull__idx_close(&file);
    if (status != ULL_OK || part->type == ULL_IDX_U8)
        return status;
    ull__idx_swap(part->pixels, values * part->count);
    return check_floats(part, err);
}

static ull_status read_labels(struct part *part, struct ull_error *err)
{
    struct ull__idx file;
    ull_status status = ull__idx_open(part->labels_path, &file, err);
    if (status != ULL_OK)
        return status;
    void *bytes = NULL;
    if ((file.type != ULL_IDX_U8 && file.type != ULL_IDX_I32) || file.dimensions != 1)
        status = ull__fail(err, ULL_E_FORMAT,
                           "'%.300s' has %d dimensions of type 0x%02x: labels have one, of bytes "
                           "(0x08) or 32-bit integers (0x0c)",
                           file.path, file.dimensions, file.type);
    else if (file.size[0] != part->count)
        status = ull__fail(err, ULL_E_FORMAT, "'%.200s' has %llu labels, '%.200s' has %llu pictures",
                           file.path, (unsigned long long)file.size[0], part->pictures_path,
                           (unsigned long long)part->count);
    else
        status = ull__idx_read(&file, part->count, file.type == ULL_IDX_U8 ? 1 : 4, "labels",
                               &bytes, err);
    ull__idx_close(&file);
    if (status != ULL_OK)
        return status;
    if (file.type == ULL_IDX_I32) {
        ull__idx_swap(bytes, part->count);
        part->labels = bytes;
        return ULL_OK;
    }
    part->labels = malloc(part->count * sizeof *part->labels);
    if (!part->labels)
        status = ull__data_no_memory(err, part->count * sizeof *part->labels, "labels");
    else
        for (uint64_t i = 0; i < part->count; i++)
            part->labels[i] = ((unsigned char *)bytes)[i];
    free(bytes);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static bool is_for_evaluation(const char *name)
{
    return strstr(name, "t10k") || strstr(name, "test") || strstr(name, "val");
}

/* Finds the pair of each part. A file beside the same one gzipped is taken for both. */
static ull_status find_files(const char *folder, struct idx *idx, struct ull_error *err)
{
    char **names;
    size_t count;
    ull_status status = ull__data_list(folder, &names, &count, err);
    if (status != ULL_OK)
        return status;
    for (size_t i = 0; i < count && status == ULL_OK; i++) {
        const char *name = names[i];
        if (!ull__data_is_idx(name))
            continue;
        struct part *part = &idx->parts[is_for_evaluation(name) ? ULL_DATA_EVAL : ULL_DATA_TRAIN];
        bool labels = strstr(name, "label") != NULL;
        char path[ULL_DATA_PATH], *place = labels ? part->labels_path : part->pictures_path;
        if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
            status = ull__fail(err, ULL_E_INVALID, "the path of '%.200s' is too long", name);
        else if (!place[0])
            memcpy(place, path, sizeof path);
        else if (strncmp(place, path, strlen(place)) != 0 || strcmp(path + strlen(place), ".gz") != 0)
            status = ull__fail(err, ULL_E_FORMAT,
                               "'%.200s' and '%.200s' are both %s of one part: keep one", place,
                               name, labels ? "labels" : "pictures");
    }
    ull__data_list_free(names, count);
    return status;
}

static ull_status load_part(struct part *part, const char *folder, struct ull_error *err)
{
    bool pictures = part->pictures_path[0], labels = part->labels_path[0];
    if (!pictures && !labels)
        return ULL_OK;
    if (!pictures || !labels)
        return ull__fail(err, ULL_E_FORMAT, "'%.200s' has no %s beside '%.200s'", folder,
                         pictures ? "labels" : "pictures",
                         pictures ? part->pictures_path : part->labels_path);
    ull_status status = read_pictures(part, err);
    return status == ULL_OK ? read_labels(part, err) : status;
}

/* Labels are below the classes that the model has, or that training has. */
static ull_status check_labels(struct ull__data *data, const struct ull__data_want *want,
                               struct ull_error *err)
{
    struct idx *idx = data->own;
    int64_t classes = want->classes;
    if (!classes)
        classes = json_integer_value(json_object_get(data->like, "classes"));
    const char *whose = classes ? "the model has" : "the training part has";
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        struct part *part = &idx->parts[p];
        int32_t highest = -1;
        for (uint64_t i = 0; i < part->count; i++) {
            int32_t label = part->labels[i];
            highest = label > highest ? label : highest;
            if (label >= 0 && (!classes || label < classes) && label < (1 << 20))
                continue;
            return ull__fail(
                err, ULL_E_FORMAT,
                "'%.250s': label %d of picture %llu is out of range: %s classes 0 to %lld",
                part->labels_path, label, (unsigned long long)i, whose,
                (long long)(classes ? classes : 1 << 20) - 1);
        }
        if (!classes)
            classes = highest + 1;
    }
    data->info.classes = classes;
    return ULL_OK;
}

/* Splits the one pair that there is into two parts by the hash of a picture's number. */
static ull_status hold_out(struct ull__data *data, double share, struct ull_error *err)
{
    struct idx *idx = data->own;
    struct part *train = &idx->parts[ULL_DATA_TRAIN], *eval = &idx->parts[ULL_DATA_EVAL];
    uint64_t count = train->count, kept = 0, held = 0;
    idx->indices = malloc(count * sizeof *idx->indices);
    if (!idx->indices)
        return ull__data_no_memory(err, count * sizeof *idx->indices, "a list of pictures");
    for (uint64_t i = 0; i < count; i++) {
        if (ull__data_held_out(share, i))
            idx->indices[count - ++held] = (uint32_t)i;
        else
            idx->indices[kept++] = (uint32_t)i;
    }
    *eval = *train;
    idx->shared = true;
    train->index = idx->indices;
    eval->index = idx->indices + kept;
    data->info.samples[ULL_DATA_TRAIN] = kept;
    data->info.samples[ULL_DATA_EVAL] = held;
    data->info.resident_bytes += count * sizeof *idx->indices;
    if (kept && held)
        return ULL_OK;
    return ull__fail(err, ULL_E_INVALID, "'split=%g' of %llu pictures leaves nothing for %s", share,
                     (unsigned long long)count, kept ? "evaluation" : "training");
}

/* Mean and deviation of each channel; of bytes as 0 to 1. Sums are whole numbers where values are. */
static void measure(struct ull__data *data)
{
    struct idx *idx = data->own;
    struct part *part =
        &idx->parts[idx->parts[ULL_DATA_TRAIN].count ? ULL_DATA_TRAIN : ULL_DATA_EVAL];
    uint64_t samples = part->index ? data->info.samples[ULL_DATA_TRAIN] : part->count;
    uint64_t plane = (uint64_t)(part->shape[1] * part->shape[2]);
    data->colours = (int)part->shape[0];
    for (int c = 0; c < data->colours; c++) {
        double sum = 0, squares = 0;
        uint64_t total = 0, squared = 0;
        for (uint64_t s = 0; s < samples; s++) {
            uint64_t at =
                ((part->index ? part->index[s] : s) * (uint64_t)part->shape[0] + (uint64_t)c) * plane;
            for (uint64_t i = 0; i < plane; i++) {
                if (part->type == ULL_IDX_U8) {
                    uint32_t value = ((const uint8_t *)part->pixels)[at + i];
                    total += value;
                    squared += (uint64_t)value * value;
                } else {
                    double value = (double)((const float *)part->pixels)[at + i];
                    sum += value;
                    squares += value * value;
                }
            }
        }
        if (part->type == ULL_IDX_U8) {
            sum = (double)total / 255;
            squares = (double)squared / (255.0 * 255.0);
        }
        double n = (double)(samples * plane), mean = sum / n, variance = squares / n - mean * mean;
        data->mean[c] = (float)mean;
        data->deviation[c] = variance > 1e-12 ? (float)sqrt(variance) : 1;
    }
}

/* The model's channels from the pictures': the same, or gray repeated. */
static ull_status check_shapes(struct ull__data *data, struct ull_error *err)
{
    struct idx *idx = data->own;
    const int64_t *shape = data->info.shape;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        struct part *part = &idx->parts[p];
        if (!part->count)
            continue;
        bool same = part->shape[1] == shape[1] && part->shape[2] == shape[2];
        if ((part->shape[0] == shape[0] || part->shape[0] == 1) && (same || part->type == ULL_IDX_U8))
            continue;
        return ull__fail(err, ULL_E_INVALID,
                         "'%.200s' has pictures of %lldx%lldx%lld%s, which cannot be made into "
                         "%lldx%lldx%lld",
                         part->pictures_path, (long long)part->shape[0], (long long)part->shape[1],
                         (long long)part->shape[2], part->type == ULL_IDX_U8 ? "" : " floats",
                         (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    }
    if (data->colours != 1 && data->colours != shape[0])
        return ull__fail(err, ULL_E_INVALID,
                         "%d numbers for mean and std: pictures have %lld channels", data->colours,
                         (long long)shape[0]);
    for (int c = 0; c < shape[0]; c++) {
        int colour = data->colours == 1 ? 0 : c;
        for (int value = 0; value < 256; value++)
            idx->table[c][value] =
                ((float)value / 255 - data->mean[colour]) / data->deviation[colour];
    }
    return ULL_OK;
}

static void identify(struct ull__data *data)
{
    struct idx *idx = data->own;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        struct part *part = &idx->parts[p];
        uint64_t values = (uint64_t)(part->shape[0] * part->shape[1] * part->shape[2]);
        uint64_t hash = ull__mix(part->count, values), width = part->type == ULL_IDX_U8 ? 1 : 4;
        if (part->count) {
            hash = ull__data_hash(hash, part->pixels, part->count * values * width);
            hash = ull__data_hash(hash, part->labels, part->count * sizeof *part->labels);
        }
        if (part->index)
            hash = ull__mix(hash, data->info.samples[p]);
        data->info.identity[p] = hash;
        if (p == ULL_DATA_TRAIN || !idx->shared)
            data->info.resident_bytes += part->count * (values * width + sizeof *part->labels);
    }
}

static ull_status open_idx(struct ull__data *data, const struct ull__data_want *want,
                           struct ull_error *err)
{
    struct idx *idx = data->own = calloc(1, sizeof *idx);
    if (!idx)
        return ull__data_no_memory(err, sizeof *idx, "the data");
    struct part *train = &idx->parts[ULL_DATA_TRAIN], *eval = &idx->parts[ULL_DATA_EVAL];
    ull_status status = find_files(data->spec.path, idx, err);
    if (status != ULL_OK || (status = load_part(train, data->spec.path, err)) != ULL_OK ||
        (status = load_part(eval, data->spec.path, err)) != ULL_OK)
        return status;
    if (!train->count && !eval->count)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' has no IDX files: expected names as "
                         "train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz",
                         data->spec.path);
    if ((status = check_labels(data, want, err)) != ULL_OK)
        return status;
    data->info.samples[ULL_DATA_TRAIN] = train->count;
    data->info.samples[ULL_DATA_EVAL] = eval->count;
    double share = data->spec.split < 0 ? 0.1 : data->spec.split;
    if (eval->count && data->spec.split > 0)
        return ull__fail(err, ULL_E_INVALID,
                         "'split=' is nothing for '%.300s', which has a part for evaluation",
                         data->spec.path);
    if (!eval->count && share > 0 && (status = hold_out(data, share, err)) != ULL_OK)
        return status;
    const int64_t *given = train->count ? train->shape : eval->shape;
    if ((status = ull__data_shape(data, want, given, err)) != ULL_OK)
        return status;
    if (!ull__data_normalization(data))
        measure(data);
    identify(data);
    return check_shapes(data, err);
}

static void close_idx(struct ull__data *data)
{
    struct idx *idx = data->own;
    for (int p = 0; idx && p < (idx->shared ? 1 : ULL_DATA_PARTS); p++) {
        free(idx->parts[p].pixels);
        free(idx->parts[p].labels);
    }
    if (idx)
        free(idx->indices);
    free(idx);
}

/* ---- samples ----------------------------------------------------------------------------------- */

/* What a crop and a flip do to a picture of the same size. */
struct move {
    int down, right;
    bool mirrored;
};

static struct move draw_move(const struct ull__data *data, uint64_t index,
                             const struct ull__turn *turn)
{
    struct move move = {0, 0, false};
    int augment = data->spec.augment < 0 ? 0 : data->spec.augment;
    if (!turn->augment || !augment)
        return move;
    struct ull__draws draws = {ull__mix(ull__mix(turn->seed, turn->epoch), index)};
    if (augment & ULL_DATA_CROP) {
        int pad = data->spec.pad ? data->spec.pad : 2;
        move.down = (int)ull__draw_below(&draws, (uint64_t)(2 * pad + 1)) - pad;
        move.right = (int)ull__draw_below(&draws, (uint64_t)(2 * pad + 1)) - pad;
    }
    if (augment & ULL_DATA_FLIP)
        move.mirrored = ull__draw(&draws) >> 63;
    return move;
}

/* One plane of bytes, shifted and mirrored; what comes from outside is a zero of the picture. */
static void move_bytes(const uint8_t *from, int height, int width, const float *table,
                       struct move move, float *to)
{
    for (int y = 0; y < height; y++, to += width) {
        int row = y + move.down;
        if (row < 0 || row >= height) {
            for (int x = 0; x < width; x++)
                to[x] = table[0];
            continue;
        }
        const uint8_t *line = from + (size_t)row * (size_t)width;
        if (!move.mirrored && !move.right) {
            for (int x = 0; x < width; x++)
                to[x] = table[line[x]];
            continue;
        }
        for (int x = 0; x < width; x++) {
            int column = (move.mirrored ? width - 1 - x : x) + move.right;
            to[x] = table[column < 0 || column >= width ? 0 : line[column]];
        }
    }
}

static void move_floats(const float *from, int height, int width, float mean, float deviation,
                        struct move move, float *to)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int row = y + move.down, column = (move.mirrored ? width - 1 - x : x) + move.right;
            bool inside = row >= 0 && row < height && column >= 0 && column < width;
            float value = inside ? from[(size_t)row * (size_t)width + (size_t)column] : 0;
            *to++ = (value - mean) / deviation;
        }
}

static ull_status sample_idx(const struct ull__data *data, uint64_t index,
                             const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                             int32_t *targets)
{
    const struct idx *idx = data->own;
    const struct part *part = &idx->parts[turn->part];
    const int64_t *shape = data->info.shape;
    struct move move = draw_move(data, index, turn);
    uint64_t at = part->index ? part->index[index] : index;
    size_t plane = (size_t)(part->shape[1] * part->shape[2]);
    int height = (int)part->shape[1], width = (int)part->shape[2];
    bool same = shape[1] == height && shape[2] == width;
    for (int c = 0; c < shape[0]; c++) {
        float *to = (float *)x + (size_t)c * (size_t)(shape[1] * shape[2]);
        size_t from =
            (at * (uint64_t)part->shape[0] + (uint64_t)(part->shape[0] == 1 ? 0 : c)) * plane;
        int colour = data->colours == 1 ? 0 : c;
        if (part->type == ULL_IDX_F32) {
            move_floats((const float *)part->pixels + from, height, width, data->mean[colour],
                        data->deviation[colour], move, to);
            continue;
        }
        if (c > 0 && part->shape[0] == 1 && data->colours == 1) { /* gray repeated */
            memcpy(to, x, (size_t)(shape[1] * shape[2]) * sizeof *to);
            continue;
        }
        const uint8_t *bytes = (const uint8_t *)part->pixels + from;
        if (same) {
            move_bytes(bytes, height, width, idx->table[c], move, to);
            continue;
        }
        /* Resized: a shift moves the part that is cut out as far as it stays inside. */
        struct ull__box box = {0, 0, width - abs(move.right), height - abs(move.down)};
        if (box.width < 1 || box.height < 1)
            box = (struct ull__box){0, 0, width, height};
        else
            box.x = move.right > 0 ? move.right : 0, box.y = move.down > 0 ? move.down : 0;
        float scale = 1 / (255 * data->deviation[colour]);
        float offset = -data->mean[colour] / data->deviation[colour];
        if (ull__resize(&scratch->resize, bytes, width, 1, box, move.mirrored, &scale, &offset,
                        (int)shape[2], (int)shape[1], to) != ULL_OK)
            return ull__fail(&scratch->error, ULL_E_NO_MEMORY, "no memory to resize a picture");
    }
    targets[0] = part->labels[at];
    return ULL_OK;
}

const struct ull__source ull__source_idx = {
    .open = open_idx,
    .close = close_idx,
    .sample = sample_idx,
};
