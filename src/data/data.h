/*
 * data.h: where samples come from: IDX files, folders of pictures, text, token files, made-up ones.
 *
 * A sample is a picture [c, h, w] of f32 with one label, or a window of t token ids of i32 with t
 * targets, each the token that follows; or a document of its own length, filled up to the window with
 * targets that count for nothing. ull__data_open looks at everything once (labels, NaN, sizes,
 * vocabulary) so that what is wrong is said before the first step. A reader then gives any batch by
 * its position alone: the order of an epoch is a permutation that is computed from (seed, epoch) and
 * never stored, and what augmentation draws is drawn by (seed, epoch, sample). So a training that is
 * resumed at a position sees exactly what it would have seen, with any number of threads.
 *
 * docs/data.md has the formats and their options. What is loaded (IDX, text, lists of files) stays in
 * memory; pictures and token files are read as they are needed. Nothing is decompressed twice or kept
 * decoded between epochs. No distributed reading: who shares a training takes other positions.
 */
#ifndef ULLAGE_DATA_DATA_H
#define ULLAGE_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

#define ULL_DATA_FORMAT_MAP(X)                                                                     \
    X(AUTO, "auto") /* found out from what is there */                                             \
    X(IDX, "idx")                                                                                  \
    X(IMAGES, "images")                                                                            \
    X(TEXT, "text")                                                                                \
    X(TOKENS, "tokens")                                                                            \
    X(SYNTHETIC, "synthetic")

enum ull__data_format {
#define X(name, text) ULL_DATA_##name,
    ULL_DATA_FORMAT_MAP(X)
#undef X
        ULL_DATA_FORMATS
};

enum ull__data_part { ULL_DATA_TRAIN, ULL_DATA_EVAL, ULL_DATA_PARTS };

/* What text is cut into: characters where it is UTF-8, bytes where it is not. */
enum ull__data_unit { ULL_DATA_UNIT_AUTO, ULL_DATA_CHARACTERS, ULL_DATA_BYTES };

/* What a sample of text or tokens is: a window of one long row, or a document of its own length. */
#define ULL_DATA_DOCUMENTS_MAP(X)                                                                  \
    X(AUTO, "auto") /* as `like` says, else windows */                                             \
    X(NONE, "none")                                                                                \
    X(FILES, "files")                                                                              \
    X(LINES, "lines")                                                                              \
    X(PARAGRAPHS, "paragraphs") /* lines without an empty one between */                           \
    X(AT, "at:")                /* what is between two marks */

enum ull__data_documents {
#define X(name, text) ULL_DOCUMENTS_##name,
    ULL_DATA_DOCUMENTS_MAP(X)
#undef X
        ULL_DOCUMENTS_KINDS
};

/* The target that counts for nothing. */
enum { ULL_DATA_IGNORED = -100 };

/* What is done to training pictures, by (seed, epoch, sample). */
enum { ULL_DATA_FLIP = 1, ULL_DATA_CROP = 2 };

enum { ULL_DATA_CHANNELS = 4, ULL_DATA_PATH = 4096, ULL_DATA_MARK = 64 };

/* PATH[,OPTION=VALUE]… as a user writes it. */
struct ull__data_spec {
    char path[ULL_DATA_PATH]; /* empty: synthetic */
    enum ull__data_format format;
    double split; /* the share held out for evaluation; negative: as the format does */
    enum ull__data_unit unit;
    enum ull__data_documents documents;
    char mark[ULL_DATA_MARK]; /* between documents: a text, or the number of a token; "" if not AT */
    int token_bytes;          /* of a token in a file: 2 or 4; 0: by its name */
    int64_t vocab; /* of token files and made-up tokens; 0: what is there, or what the model has */
    int64_t classes;    /* of made-up pictures; 0: as the model */
    int64_t samples;    /* made-up ones for training; 0: 60,000 */
    int64_t shape[3];   /* of made-up pictures, and what pictures are made into; 0: as the model */
    int64_t ignore;     /* a token id that is no target (padding); -1: none */
    unsigned int given; /* which options were, a bit each */
    int augment;        /* bits; -1: as the format does */
    int pad;            /* IDX: a crop is a shift by at most so many pixels */
    int colours;        /* of mean and deviation below; 0: as the format does */
    float mean[ULL_DATA_CHANNELS], deviation[ULL_DATA_CHANNELS]; /* of values from 0 to 1 */
};

/* ULL_E_INVALID with the options that there are. Looks at the disk only if a part may be of the path. */
ull_status ull__data_spec_parse(const char *text, struct ull__data_spec *spec, struct ull_error *err);

/* What the model takes. Zeroed: whatever the data are. */
struct ull__data_want {
    int64_t shape[3]; /* c, h, w; 0: as the data (pictures of any size: 3, 224, 224) */
    int64_t window;   /* tokens of a sample; 0: the model takes pictures */
    int64_t classes;  /* that it tells apart, or its vocabulary: more are refused; 0: any number */
    const char *like; /* what ull__data_describe said of the data of a training: the same names of
                         classes, vocabulary, shape and normalisation; NULL: from these data */
    uint64_t seed;    /* of made-up data */
    uint64_t host_bytes; /* what may stay in memory after opening; 0: no limit */
    void (*warn)(void *context, const char *message); /* NULL: nothing is told */
    void *context;
};

struct ull__data_info {
    enum ull__data_format format;
    bool tokens;
    int64_t shape[3];                  /* of a picture */
    int64_t window;                    /* of a sample of tokens */
    int64_t classes;                   /* or the size of the vocabulary */
    size_t sample_bytes;               /* of x: c*h*w or window values of 4 bytes */
    int64_t sample_targets;            /* 1, or window */
    bool documents;                    /* samples have their own lengths, up to the window */
    int64_t mark;                      /* the token at both ends of a document; -1: there is none */
    int64_t longest[ULL_DATA_PARTS];   /* document, in tokens, the mark at its end among them */
    uint64_t samples[ULL_DATA_PARTS];  /* of an epoch; 0: there is no such part */
    uint64_t identity[ULL_DATA_PARTS]; /* differs where the data differ: contents of IDX, text and
                                          tokens, names and sizes of pictures, options */
    uint64_t resident_bytes;           /* kept in memory */
};

struct ull__data;

/*
 * Opens and checks. ULL_E_NOT_FOUND: nothing there. ULL_E_FORMAT: something wrong with it; the message
 * names the file, the place in it and what was expected. ULL_E_INVALID: not what the model takes.
 * ULL_E_NO_MEMORY: more than host_bytes. The data are only read afterwards: any number of readers, in
 * any threads. Caller closes after them.
 */
ull_status ull__data_open(const struct ull__data_spec *spec, const struct ull__data_want *want,
                          struct ull__data **data, struct ull_error *err);
void ull__data_close(struct ull__data *data);
const struct ull__data_info *ull__data_info(const struct ull__data *data);

/*
 * One line of JSON that has what `like` above needs: kept with a training's state, so that it is
 * evaluated on other data in its own terms. Caller frees. ULL_E_NO_MEMORY.
 */
ull_status ull__data_describe(const struct ull__data *data, char **json, struct ull_error *err);

/* The name of a class, as its folder's; NULL where classes have only numbers. */
const char *ull__data_class_name(const struct ull__data *data, int64_t label);

/*
 * Text to token ids and back, for data of format text. Encoding stops at `capacity` ids; ULL_E_INVALID
 * names a character that is not in the vocabulary. Decoding writes at most 4 bytes and returns how
 * many; 0 for ids that are none, and for data that have no text. The mark between documents becomes a line's end,
 * or two where documents are more than lines.
 */
ull_status ull__data_encode(const struct ull__data *data, const char *text, size_t size,
                            int32_t *tokens, size_t capacity, size_t *count, struct ull_error *err);
size_t ull__data_decode(const struct ull__data *data, int32_t token, char bytes[4]);

/*
 * Which samples a reader is asked for: of each `of` positions, `count` from `first` on, as a rank's of each batch. It reads
 * ahead those alone; others are read when they are asked for. of 0: all.
 */
struct ull__data_share {
    uint64_t first, count, of;
};

/* How a part is read. Zeroed: training data, in order, as they are, in the calling thread. */
struct ull__reader_options {
    enum ull__data_part part;
    uint64_t seed;
    bool shuffle;   /* a new order each epoch; windows of text also begin elsewhere each epoch */
    bool augment;   /* as the data's options say */
    uint64_t batch; /* of documents: samples that are read together, of like lengths; 0: any order */
    uint64_t most;  /* the first samples of the part alone; 0: all */
    struct ull__data_share share;
    uint64_t until; /* the position from which on nothing is read ahead, a run's end; 0: none */
    int threads;    /* that read ahead; 0: none */
    void *buffer;   /* what was read ahead, buffer_bytes of it; NULL: the reader's own */
    size_t buffer_bytes;                              /* below one sample: nothing is read ahead */
    void (*warn)(void *context, const char *message); /* each broken picture, once; from within
                                                         ull__data_batch only */
    void *context;
};

struct ull__reader;

/* ULL_E_INVALID (no such part, a share that is more than its row), ULL_E_NO_MEMORY, ULL_E_SYSTEM (no thread). */
ull_status ull__reader_create(const struct ull__data *data, const struct ull__reader_options *options,
                              struct ull__reader **reader, struct ull_error *err);
void ull__reader_destroy(struct ull__reader *reader);

/*
 * The samples at position, position + 1 … of an endless row of epochs (position / samples is the epoch)
 * into x (float, or int32_t for tokens; count * sample_bytes) and targets (count * sample_targets).
 * Fastest where it goes on at the position after the last one, or at the next of the reader's share; any other
 * is right too.
 *
 * A picture that cannot be read is told once through warn. In training the next good one of the list
 * takes its place, in evaluation its target is ULL_DATA_IGNORED. ULL_E_FORMAT: none can be read.
 * Allocates nothing after the first batch but what the picture libraries do. One thread at a time for
 * one reader.
 */
ull_status ull__data_batch(struct ull__reader *reader, uint64_t position, size_t count, void *x,
                           int32_t *targets, struct ull_error *err);

/*
 * How many targets of that batch count: what its loss is divided by, known before the first micro-batch.
 * Exact, and at no cost but for pictures to evaluate that nobody has read yet: they are read for it.
 * For the thread that reads batches.
 */
uint64_t ull__data_valid(struct ull__reader *reader, uint64_t position, size_t count);
uint64_t ull__data_count_valid(const int32_t *targets, size_t count);

/* Tokens of the longest of these samples; the window where all have that. For the thread that reads batches. */
int64_t ull__data_longest(struct ull__reader *reader, uint64_t position, size_t count);

/*
 * Lengths to which the documents of a part are best filled up, at most `most` of them, ascending, multiples of 8 up to
 * the window; the last holds the longest of both parts. The fewest tokens in all, as if each document went to the shortest that holds
 * it. Returns how many; 1, the window, where samples are no documents.
 */
int ull__data_buckets(const struct ull__data *data, enum ull__data_part part, int most,
                      int64_t *lengths);

/*
 * Rows of documents get shorter: info's window becomes `length`, which must hold the longest of both parts. Before there
 * are readers.
 */
void ull__data_narrow(struct ull__data *data, int64_t length);

const char *ull__data_format_text(enum ull__data_format format);

#endif
