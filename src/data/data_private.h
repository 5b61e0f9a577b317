/*
 * data_private.h: what the formats share.
 *
 * A format is a row of functions (struct ull__source). It opens what the spec names, fills info, and
 * makes any sample of a part by its index. Samples are made by several threads at once, each with a
 * scratch of its own; the data are not changed by that.
 */
#ifndef ULLAGE_DATA_PRIVATE_H
#define ULLAGE_DATA_PRIVATE_H

#include <jansson.h>

#include "data.h"
#include "error.h"
#include "grouping.h"
#include "json.h"
#include "order.h"
#include "resize.h"

/* What a sample may depend on besides its index. */
struct ull__turn {
    enum ull__data_part part;
    uint64_t seed, epoch;
    bool shuffle, augment;
};

struct ull__picture_reader;

/* Memory of one thread that makes samples; it grows to what the largest picture needs. */
struct ull__scratch {
    struct ull__picture_reader *pictures; /* NULL until the first */
    struct ull__resize resize;
    struct ull__group_pool pool; /* empty where samples come in no order of their lengths */
    float *line;                 /* made-up pictures */
    size_t line_size;
    struct ull_error error; /* of the last sample that failed */
};

void ull__scratch_finish(struct ull__scratch *scratch);

struct ull__source {
    ull_status (*open)(struct ull__data *data, const struct ull__data_want *want,
                       struct ull_error *err);
    void (*close)(struct ull__data *data);
    /* ULL_E_FORMAT: this one is broken, others may be good; the message is in scratch->error. Whatever
       else is not ULL_OK ends the batch. */
    ull_status (*sample)(const struct ull__data *data, uint64_t index, const struct ull__turn *turn,
                         struct ull__scratch *scratch, void *x, int32_t *targets);
    /* How many targets of it count; NULL: all of them. */
    uint64_t (*valid)(const struct ull__data *data, uint64_t index, const struct ull__turn *turn);
    /* Adds members to an object; NULL: nothing more to say. */
    void (*describe)(const struct ull__data *data, struct ull_json *json);
    const char *(*class_name)(const struct ull__data *data, int64_t label); /* NULL: numbers */
    /* Of a document, in tokens. Only called where info.documents. */
    int64_t (*length)(const struct ull__data *data, enum ull__data_part part, uint64_t index);
};

extern const struct ull__source ull__source_idx, ull__source_images, ull__source_text,
    ull__source_tokens, ull__source_synthetic;

struct ull__data {
    struct ull__data_spec spec;
    struct ull__data_info info;
    const struct ull__source *source;
    void *own;    /* the source's */
    json_t *like; /* what want->like says; NULL: nothing. Only while opening */
    int colours;  /* numbers in the next two */
    float mean[ULL_DATA_CHANNELS], deviation[ULL_DATA_CHANNELS];
    /* What is known of each picture (enum ull__known), set by whoever reads it; NULL: none is broken. */
    _Atomic unsigned char *known[ULL_DATA_PARTS];
};

enum ull__known { ULL_KNOWN_NOT, ULL_KNOWN_GOOD, ULL_KNOWN_BROKEN };

/* spec.c: which options a format has; ULL_E_INVALID names one that it has not. */
ull_status ull__data_spec_check(const struct ull__data_spec *spec, struct ull_error *err);

/* "lines", "at:<|endoftext|>" and back. False: not one of these. */
bool ull__data_documents_parse(const char *text, struct ull__data_spec *spec);
void ull__data_documents_text(const struct ull__data_spec *spec, char text[ULL_DATA_MARK + 16]);

/* recognize.c: the format of what is at the path. */
ull_status ull__data_recognize(const char *path, enum ull__data_format *format,
                               struct ull_error *err);
/* A name's ending, in any case: is_named("a.JPG", ".jpg"). */
bool ull__data_is_named(const char *name, const char *ending);
bool ull__data_is_picture(const char *name);
bool ull__data_is_idx(const char *name);
/* 1: a folder, 0: something else, -1: nothing. Links are followed. */
int ull__data_is_folder(const char *path);
/* The names in a folder without those that begin with a dot, sorted. Caller frees the list and each. */
ull_status ull__data_list(const char *folder, char ***names, size_t *count, struct ull_error *err);
void ull__data_list_free(char **names, size_t count);

/* data.c: what is told while opening. */
void ull__data_tell(const struct ull__data_want *want, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The shape of a sample of pictures: as the spec says, else as the model, else as `like`, else as given. */
ull_status ull__data_shape(struct ull__data *data, const struct ull__data_want *want,
                           const int64_t given[3], struct ull_error *err);
/* mean and deviation from the spec or from `like`; false: neither says. */
bool ull__data_normalization(struct ull__data *data);
/* ULL_E_NO_MEMORY where resident_bytes passes what may stay in memory. */
ull_status ull__data_resident(const struct ull__data *data, const struct ull__data_want *want,
                              struct ull_error *err);
ull_status ull__data_no_memory(struct ull_error *err, uint64_t bytes, const char *what);
/* Whether the item of this number or name (hashed) is held out of training. */
bool ull__data_held_out(double share, uint64_t hash);
uint64_t ull__data_hash(uint64_t hash, const void *bytes, size_t size);

#endif
