/*
 * images.c: a folder with a folder of JPEG and PNG files for each class.
 *
 * FOLDER/CLASS/FILE, or FOLDER/train/CLASS/FILE and FOLDER/val/CLASS/FILE (also test, eval, validation).
 * Classes are numbered by their names in order. Without a folder for evaluation, a share of the files
 * is held out by the hash of their names, so that files which come or go do not move the others. Only
 * names and sizes are looked at when it is opened; a picture that cannot be decoded is found when its
 * turn comes.
 *
 * Training cuts out a random part (a third of the area to all of it, a little stretched) and mirrors
 * half of them; evaluation, and training with augment=none, takes the middle 7/8.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data_private.h"
#include "images.h"
#include "picture.h"

struct picture {
    uint64_t name; /* where in names: CLASS/FILE */
    int32_t label;
};

struct part {
    char root[ULL_DATA_PATH];
    struct picture *pictures;
    size_t count, capacity;
};

struct images {
    struct part parts[ULL_DATA_PARTS];
    char **classes;
    size_t class_count;
    char *names;
    size_t names_used, names_size;
    float scale[ULL_DATA_CHANNELS], offset[ULL_DATA_CHANNELS];
};

/* What most pictures that were photographed have, by channel (the usual figures, of ImageNet). */
static const float usual_mean[3] = {0.485f, 0.456f, 0.406f};
static const float usual_deviation[3] = {0.229f, 0.224f, 0.225f};

static bool push(struct part *part, struct picture picture)
{
    if (part->count == part->capacity) {
        size_t capacity = part->capacity ? 2 * part->capacity : 256;
        struct picture *grown = realloc(part->pictures, capacity * sizeof *grown);
        if (!grown)
            return false;
        part->pictures = grown;
        part->capacity = capacity;
    }
    part->pictures[part->count++] = picture;
    return true;
}

static bool add_picture(struct images *images, struct part *part, const char *class,
                        const char *file, int32_t label)
{
    size_t need = strlen(class) + strlen(file) + 2;
    if (images->names_used + need > images->names_size) {
        size_t size = 2 * images->names_size + need + 4096;
        char *grown = realloc(images->names, size);
        if (!grown)
            return false;
        images->names = grown;
        images->names_size = size;
    }
    if (!push(part, (struct picture){images->names_used, label}))
        return false;
    snprintf(images->names + images->names_used, need, "%s/%s", class, file);
    images->names_used += need;
    return true;
}

/* A small class whose pictures would all be held out: the first from `held` on is trained on. */
static bool train_on_one(struct images *images, size_t held)
{
    struct part *eval = &images->parts[ULL_DATA_EVAL];
    struct picture moved = eval->pictures[held];
    memmove(&eval->pictures[held], &eval->pictures[held + 1],
            (eval->count - held - 1) * sizeof moved);
    eval->count--;
    return push(&images->parts[ULL_DATA_TRAIN], moved);
}

static int64_t class_of(const struct images *images, const char *name)
{
    for (size_t i = 0; i < images->class_count; i++)
        if (strcmp(images->classes[i], name) == 0)
            return (int64_t)i;
    return -1;
}

/* The files of one class to one part, or by their hash to both. */
static ull_status scan_class(struct ull__data *data, const struct ull__data_want *want,
                             enum ull__data_part to, const char *class, int32_t label, double share,
                             struct ull_error *err)
{
    struct images *images = data->own;
    struct part *part = &images->parts[to];
    char folder[ULL_DATA_PATH + 256], **names;
    snprintf(folder, sizeof folder, "%s/%s", part->root, class);
    size_t count, left_out = 0, found = 0, kept = 0;
    ull_status status = ull__data_list(folder, &names, &count, err);
    if (status != ULL_OK)
        return status;
    size_t first_held = images->parts[ULL_DATA_EVAL].count;
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        if (!ull__data_is_picture(names[i])) {
            left_out++;
            continue;
        }
        found++;
        uint64_t hash =
            ull__data_hash(ull__data_hash(1, class, strlen(class)), names[i], strlen(names[i]));
        bool held = to == ULL_DATA_TRAIN && ull__data_held_out(share, hash);
        kept += !held; /* all of those of an own part for evaluation */
        good =
            add_picture(images, held ? &images->parts[ULL_DATA_EVAL] : part, class, names[i], label);
    }
    if (good && found && !kept)
        good = train_on_one(images, first_held);
    if (!good)
        status = ull__data_no_memory(err, images->names_size, "a list of pictures");
    else if (!found && to == ULL_DATA_TRAIN)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "the class '%.300s' has no picture: expected .jpg, .jpeg or .png files in "
                      "it (or remove the folder)",
                      folder);
    else if (!found)
        ull__data_tell(want, "the class '%.300s' has no picture to evaluate", folder);
    if (left_out && status == ULL_OK)
        ull__data_tell(want,
                       "%zu of the names in '%.300s' are no .jpg, .jpeg or .png and are left out",
                       left_out, folder);
    ull__data_list_free(names, count);
    return status;
}

/* Training decides which classes there are, unless the model was trained on some already. */
static ull_status name_classes(struct ull__data *data, char **names, size_t count,
                               struct ull_error *err)
{
    struct images *images = data->own;
    json_t *known = json_object_get(data->like, "class_names");
    size_t classes = known ? json_array_size(known) : count;
    images->classes = calloc(classes ? classes : 1, sizeof *images->classes);
    for (size_t i = 0; images->classes && i < classes; i++) {
        const char *name = known ? json_string_value(json_array_get(known, i)) : names[i];
        images->classes[i] = strdup(name ? name : "");
        if (!images->classes[i])
            return ull__data_no_memory(err, 64, "names of classes");
        images->class_count++;
    }
    return images->classes ? ULL_OK : ull__data_no_memory(err, classes, "names of classes");
}

/* Folders only; a picture beside them cannot belong to a class. Returns what is no folder as NULL. */
static ull_status keep_folders(const char *root, char **names, size_t *count, struct ull_error *err)
{
    size_t kept = 0;
    ull_status status = ULL_OK;
    for (size_t i = 0; i < *count; i++) {
        char path[ULL_DATA_PATH + 256];
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        if (ull__data_is_folder(path) == 1) {
            names[kept++] = names[i];
            continue;
        }
        if (ull__data_is_picture(names[i]) && status == ULL_OK)
            status = ull__fail(err, ULL_E_FORMAT,
                               "'%.200s/%.100s' is in no class: expected every picture in a folder "
                               "that has the name of its class",
                               root, names[i]);
        free(names[i]);
    }
    *count = kept;
    return status;
}

static ull_status scan_part(struct ull__data *data, const struct ull__data_want *want,
                            enum ull__data_part to, double share, struct ull_error *err)
{
    struct images *images = data->own;
    const char *root = images->parts[to].root;
    char **names;
    size_t count;
    ull_status status = ull__data_list(root, &names, &count, err);
    if (status != ULL_OK)
        return status;
    status = keep_folders(root, names, &count, err);
    if (status == ULL_OK && !count)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "'%.300s' has no folders: expected one for each class, with .jpg, .jpeg or "
                      ".png files in it",
                      root);
    if (status == ULL_OK && !images->classes)
        status = name_classes(data, names, count, err);
    for (size_t i = 0; i < count && status == ULL_OK; i++) {
        int64_t label = class_of(images, names[i]);
        if (label < 0)
            status = ull__fail(err, ULL_E_FORMAT,
                               "'%.200s/%.100s' is a class that the training has not: it has %zu, "
                               "'%.60s' to '%.60s'",
                               root, names[i], images->class_count, images->classes[0],
                               images->classes[images->class_count - 1]);
        else
            status = scan_class(data, want, to, names[i], (int32_t)label, share, err);
    }
    ull__data_list_free(names, count);
    return status;
}

/* The roots of the two parts; without an own one for evaluation it stays empty. */
static void find_roots(struct ull__data *data)
{
    static const char *const evaluations[] = {"val", "validation", "eval", "test"};
    struct images *images = data->own;
    char path[ULL_DATA_PATH + 16];
    struct part *train = &images->parts[ULL_DATA_TRAIN], *eval = &images->parts[ULL_DATA_EVAL];
    memcpy(train->root, data->spec.path, sizeof train->root);
    snprintf(path, sizeof path, "%s/train", data->spec.path);
    if (ull__data_is_folder(path) != 1 || strlen(path) >= sizeof train->root)
        return;
    memcpy(train->root, path, strlen(path) + 1);
    for (size_t i = 0; i < sizeof evaluations / sizeof *evaluations; i++) {
        snprintf(path, sizeof path, "%s/%s", data->spec.path, evaluations[i]);
        if (ull__data_is_folder(path) != 1 || strlen(path) >= sizeof eval->root)
            continue;
        memcpy(eval->root, path, strlen(path) + 1);
        return;
    }
}

static void path_of(const struct images *images, const struct part *part, uint64_t index,
                    char path[2 * ULL_DATA_PATH])
{
    snprintf(path, 2 * ULL_DATA_PATH, "%s/%s", part->root,
             images->names + part->pictures[index].name);
}

static void identify(struct ull__data *data)
{
    struct images *images = data->own;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        struct part *part = &images->parts[p];
        uint64_t hash = part->count;
        for (size_t i = 0; i < part->count; i++) {
            char path[2 * ULL_DATA_PATH];
            struct stat info = {.st_size = 0};
            path_of(images, part, i, path);
            const char *name = images->names + part->pictures[i].name;
            hash = ull__data_hash(hash, name, strlen(name));
            if (stat(path, &info) == 0)
                hash = ull__mix(hash, (uint64_t)info.st_size);
        }
        data->info.identity[p] = hash;
        data->info.resident_bytes += part->capacity * sizeof *part->pictures;
    }
    data->info.resident_bytes += images->names_size;
}

static ull_status normalize(struct ull__data *data, struct ull_error *err)
{
    struct images *images = data->own;
    const int64_t channels = data->info.shape[0];
    if (channels != 1 && channels != 3)
        return ull__fail(err, ULL_E_INVALID,
                         "JPEG and PNG files give pictures of 1 or 3 channels: %lld were asked for",
                         (long long)channels);
    if (!ull__data_normalization(data)) {
        data->colours = (int)channels;
        for (int c = 0; c < channels; c++) {
            data->mean[c] = channels == 1 ? 0.449f : usual_mean[c];
            data->deviation[c] = channels == 1 ? 0.226f : usual_deviation[c];
        }
    }
    if (data->colours != 1 && data->colours != channels)
        return ull__fail(err, ULL_E_INVALID,
                         "%d numbers for mean and std: pictures have %lld channels", data->colours,
                         (long long)channels);
    for (int c = 0; c < channels; c++) {
        int colour = data->colours == 1 ? 0 : c;
        images->scale[c] = 1 / (255 * data->deviation[colour]);
        images->offset[c] = -data->mean[colour] / data->deviation[colour];
    }
    return ULL_OK;
}

static ull_status open_images(struct ull__data *data, const struct ull__data_want *want,
                              struct ull_error *err)
{
    static const int64_t given[3] = {3, 224, 224};
    struct images *images = data->own = calloc(1, sizeof *images);
    if (!images)
        return ull__data_no_memory(err, sizeof *images, "the data");
    find_roots(data);
    struct part *train = &images->parts[ULL_DATA_TRAIN], *eval = &images->parts[ULL_DATA_EVAL];
    bool own = eval->root[0];
    if (own && data->spec.split > 0)
        return ull__fail(err, ULL_E_INVALID, "'split=' is nothing for '%.300s', which has '%.100s'",
                         data->spec.path, eval->root);
    double share = own ? 0 : data->spec.split < 0 ? 0.1 : data->spec.split;
    if (!own)
        memcpy(eval->root, train->root, sizeof eval->root);
    ull_status status = scan_part(data, want, ULL_DATA_TRAIN, share, err);
    if (status == ULL_OK && own)
        status = scan_part(data, want, ULL_DATA_EVAL, 0, err);
    if (status != ULL_OK || (status = ull__data_shape(data, want, given, err)) != ULL_OK ||
        (status = normalize(data, err)) != ULL_OK)
        return status;
    data->info.classes = (int64_t)images->class_count;
    if (want->classes && want->classes < data->info.classes)
        return ull__fail(err, ULL_E_INVALID, "'%.300s' has %lld classes, the model tells %lld apart",
                         train->root, (long long)data->info.classes, (long long)want->classes);
    data->info.samples[ULL_DATA_TRAIN] = train->count;
    data->info.samples[ULL_DATA_EVAL] = eval->count;
    identify(data);
    return ULL_OK;
}

static void close_images(struct ull__data *data)
{
    struct images *images = data->own;
    if (!images)
        return;
    for (int p = 0; p < ULL_DATA_PARTS; p++)
        free(images->parts[p].pictures);
    ull__data_list_free(images->classes, images->class_count);
    free(images->names);
    free(images);
}

static const char *class_name(const struct ull__data *data, int64_t label)
{
    return ((const struct images *)data->own)->classes[label];
}

static void describe(const struct ull__data *data, struct ull_json *json)
{
    const struct images *images = data->own;
    ull__json_key(json, "class_names");
    ull__json_array(json);
    for (size_t i = 0; i < images->class_count; i++)
        ull__json_string(json, images->classes[i]);
    ull__json_array_end(json);
}

/* ---- samples ----------------------------------------------------------------------------------- */

/* The largest part of this ratio (width / height) in the middle, times share in each direction. */
static struct ull__box middle(int width, int height, double ratio, double share)
{
    double w = width, h = height;
    if (w > h * ratio)
        w = h * ratio;
    else
        h = w / ratio;
    struct ull__box box = {.width = (int)lround(w * share), .height = (int)lround(h * share)};
    box.width = box.width < 1 ? 1 : box.width;
    box.height = box.height < 1 ? 1 : box.height;
    box.x = (width - box.width) / 2;
    box.y = (height - box.height) / 2;
    return box;
}

static struct ull__box draw_box(int width, int height, double ratio, struct ull__draws *draws)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (0.35 + 0.65 * ull__draw_unit(draws)) * width * height;
        double stretch = ratio * exp((2 * ull__draw_unit(draws) - 1) * log(4.0 / 3.0));
        struct ull__box box = {.width = (int)lround(sqrt(area * stretch)),
                               .height = (int)lround(sqrt(area / stretch))};
        if (box.width < 1 || box.height < 1 || box.width > width || box.height > height)
            continue;
        box.x = (int)ull__draw_below(draws, (uint64_t)(width - box.width + 1));
        box.y = (int)ull__draw_below(draws, (uint64_t)(height - box.height + 1));
        return box;
    }
    return middle(width, height, ratio, 1);
}

/* How far a JPEG may be reduced so that the part is still no smaller than what is made of it. */
static int reduction(struct ull__box box, int width, int height)
{
    int reduce = 1;
    while (reduce < 8 && box.width >= 2 * reduce * width && box.height >= 2 * reduce * height)
        reduce *= 2;
    return reduce;
}

/* The same part in a picture that was reduced. */
static struct ull__box shrink(struct ull__box box, int reduce, int width, int height)
{
    struct ull__box small = {box.x / reduce, box.y / reduce, (box.width + reduce - 1) / reduce,
                             (box.height + reduce - 1) / reduce};
    if (small.x + small.width > width)
        small.width = width - small.x;
    if (small.y + small.height > height)
        small.height = height - small.y;
    return small;
}

static ull_status make_sample(const struct ull__data *data, const char *path, uint64_t index,
                              const struct ull__turn *turn, struct ull__scratch *scratch, float *x)
{
    const struct images *images = data->own;
    const int64_t *shape = data->info.shape;
    const int width = (int)shape[2], height = (int)shape[1], channels = (int)shape[0];
    struct ull__picture picture;
    ull_status status = ull__picture_head(scratch->pictures, path, &picture, &scratch->error);
    if (status != ULL_OK)
        return status;
    int augment = data->spec.augment < 0 ? ULL_DATA_CROP | ULL_DATA_FLIP : data->spec.augment;
    augment = turn->augment ? augment : 0;
    struct ull__draws draws = {ull__mix(ull__mix(turn->seed, turn->epoch), index)};
    const double ratio = (double)width / height;
    struct ull__box box = augment & ULL_DATA_CROP
                              ? draw_box(picture.width, picture.height, ratio, &draws)
                              : middle(picture.width, picture.height, ratio, 0.875);
    bool mirrored = augment & ULL_DATA_FLIP && ull__draw(&draws) >> 63;
    int reduce = reduction(box, width, height), full = picture.width;
    status = ull__picture_pixels(scratch->pictures, channels, reduce, &picture, &scratch->error);
    if (status != ULL_OK)
        return status;
    if (picture.width != full)
        box = shrink(box, reduce, picture.width, picture.height);
    status = ull__resize(&scratch->resize, picture.pixels, picture.width, channels, box, mirrored,
                         images->scale, images->offset, width, height, x);
    if (status != ULL_OK)
        ull__fail(&scratch->error, status, "no memory to resize a picture");
    return status;
}

static enum ull__known known(const struct ull__data *data, enum ull__data_part part, uint64_t index)
{
    return (enum ull__known)atomic_load_explicit(&data->known[part][index], memory_order_relaxed);
}

/* Whatever is no fault of the picture, as no memory, says nothing of it. */
static void learn(const struct ull__data *data, enum ull__data_part part, uint64_t index,
                  ull_status status)
{
    if (status == ULL_OK || status == ULL_E_FORMAT)
        atomic_store_explicit(&data->known[part][index],
                              status == ULL_OK ? ULL_KNOWN_GOOD : ULL_KNOWN_BROKEN,
                              memory_order_relaxed);
}

static bool has_reader(struct ull__scratch *scratch)
{
    if (!scratch->pictures)
        scratch->pictures = ull__picture_reader_create();
    return scratch->pictures;
}

static ull_status sample_images(const struct ull__data *data, uint64_t index,
                                const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                                int32_t *targets)
{
    const struct images *images = data->own;
    const struct part *part = &images->parts[turn->part];
    if (known(data, turn->part, index) == ULL_KNOWN_BROKEN)
        return ULL_E_FORMAT;
    if (!has_reader(scratch))
        return ull__fail(&scratch->error, ULL_E_NO_MEMORY, "no memory for a reader of pictures");
    char path[2 * ULL_DATA_PATH];
    path_of(images, part, index, path);
    ull_status status = make_sample(data, path, index, turn, scratch, x);
    learn(data, turn->part, index, status);
    targets[0] = part->pictures[index].label;
    return status;
}

/* Decodes it, and nothing else; why it cannot be is in err. */
static ull_status try(const struct ull__data *data, const char *path, struct ull__scratch *scratch,
                      struct ull_error *err)
{
    struct ull__picture picture;
    if (!has_reader(scratch))
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory");
    ull_status status = ull__picture_head(scratch->pictures, path, &picture, err);
    if (status == ULL_OK)
        status = ull__picture_pixels(scratch->pictures, (int)data->info.shape[0], 1, &picture, err);
    return status;
}

bool ull__images_is_good(const struct ull__data *data, enum ull__data_part part, uint64_t index,
                         struct ull__scratch *scratch)
{
    const struct images *images = data->own;
    if (known(data, part, index) == ULL_KNOWN_NOT) {
        char path[2 * ULL_DATA_PATH];
        path_of(images, &images->parts[part], index, path);
        learn(data, part, index, try(data, path, scratch, NULL));
    }
    return known(data, part, index) != ULL_KNOWN_BROKEN;
}

void ull__images_why(const struct ull__data *data, enum ull__data_part part, uint64_t index,
                     struct ull__scratch *scratch, char *text, size_t size)
{
    const struct images *images = data->own;
    char path[2 * ULL_DATA_PATH];
    path_of(images, &images->parts[part], index, path);
    struct ull_error why = {"it can be read now"};
    try(data, path, scratch, &why);
    snprintf(text, size, "'%.300s' cannot be read: %.150s", path, why.message);
}

const struct ull__source ull__source_images = {
    .open = open_images,
    .close = close_images,
    .sample = sample_images,
    .describe = describe,
    .class_name = class_name,
};
