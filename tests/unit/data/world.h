/*
 * world.h: data made by a test, and opening and reading them in one line.
 */
#ifndef ULLAGE_TESTS_DATA_WORLD_H
#define ULLAGE_TESTS_DATA_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data.h"

#include "folder.h"

extern char world_folder[256];
extern int world_warnings;
extern char world_warning[600]; /* the last one */

/* A setup and a teardown: a new empty folder. */
int world_begin(void **state);
int world_end(void **state);
void world_warn(void *context, const char *message);

/* A path in the folder; the next four calls leave it. */
const char *world_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
void world_mkdir(const char *name);
void world_text(const char *name, const char *text);

/* Opens "PATH-IN-THE-FOLDER,OPTIONS"; fails the test if it cannot. */
struct ull__data *world_open(const char *spec, const struct ull__data_want *want);
/* Opens what must not open: with this status and a message that has the word. */
void world_bad(const char *spec, const struct ull__data_want *want, ull_status status,
               const char *word);
struct ull__reader *world_reader(const struct ull__data *data,
                                 const struct ull__reader_options *options);
/* A batch that must be read. */
void world_batch(struct ull__reader *reader, uint64_t position, size_t count, void *x,
                 int32_t *targets);

/* IDX: bytes as they come, gzipped if the name ends in .gz. */
void world_idx(const char *name, int type, int dimensions, const uint32_t *sizes, const void *items,
               size_t bytes);
/* Pictures [count][h][w] of bytes, and labels, as NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte. */
void world_pair(const char *part, const char *ending, uint32_t count, uint32_t h, uint32_t w,
                const uint8_t *pixels, const uint8_t *labels);

/* channels: 1, 3, and for JPEG 4 (CMYK). */
void world_jpeg(const char *name, int width, int height, int channels, const uint8_t *pixels);
/* type: PNG_COLOR_TYPE_…; pixels as that has them, of 8 or 16 bits. */
void world_png(const char *name, int width, int height, int type, int depth, bool interlaced,
               const uint8_t *pixels);
/* A picture of one colour. */
void world_plain(const char *name, int width, int height, uint8_t r, uint8_t g, uint8_t b);

#endif
