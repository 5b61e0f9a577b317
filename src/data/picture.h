/*
 * picture.h: JPEG and PNG files to bytes, by libjpeg-turbo and libpng.
 *
 * In two steps, so that the caller can decide from the size what part it needs: the head, then the
 * pixels. A JPEG that is much larger than needed is decoded at a half, a quarter or an eighth, which
 * its transform gives for less work. Which of the two a file is, its first bytes say, not its name.
 *
 * A file that is cut off or damaged fails; what libjpeg only mends and warns of (bytes between markers)
 * does not. Transparency is dropped, 16 bits become 8, CMYK becomes RGB without colour profiles, the
 * orientation that a camera notes is not looked at. At most 2^27 pixels.
 */
#ifndef ULLAGE_DATA_PICTURE_H
#define ULLAGE_DATA_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

struct ull__picture {
    int width, height;     /* as the head says; after the second step as decoded */
    int channels;          /* of the pixels: 1 or 3 */
    const uint8_t *pixels; /* rows without gaps; the reader's, until the next picture */
};

struct ull__picture_reader;

/* One thread at a time. NULL: no memory. */
struct ull__picture_reader *ull__picture_reader_create(void);
void ull__picture_reader_destroy(struct ull__picture_reader *reader);

/* ULL_E_FORMAT: it cannot be read, why is in err. ULL_E_NO_MEMORY. */
ull_status ull__picture_head(struct ull__picture_reader *reader, const char *path,
                             struct ull__picture *picture, struct ull_error *err);
/* The picture of the last head, with 1 or 3 channels, reduced by at most 1/reduce (1, 2, 4 or 8). */
ull_status ull__picture_pixels(struct ull__picture_reader *reader, int channels, int reduce,
                               struct ull__picture *picture, struct ull_error *err);

#endif
