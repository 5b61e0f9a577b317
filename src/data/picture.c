/*
 * picture.c: see picture.h. Both libraries report errors by a long jump; it ends in the function that
 * called them, and everything that lives longer is in the reader.
 */
#include "picture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "error.h"

enum { MOST_PIXELS = 1 << 27 };
static const size_t most_bytes = (size_t)1 << 30; /* of a file */

struct block {
    uint8_t *bytes;
    size_t size;
};

struct ull__picture_reader {
    struct jpeg_decompress_struct jpeg; /* first: libjpeg gives back its address */
    struct jpeg_error_mgr jpeg_errors;
    bool is_png;
    png_structp png;
    png_infop info;
    jmp_buf back;
    char why[256];
    struct block file, pixels, rows;
    size_t file_used, file_at;
};

/* At least size bytes; what was there is lost. */
static bool make_room(struct block *block, size_t size)
{
    if (size <= block->size)
        return true;
    free(block->bytes);
    block->bytes = malloc(size);
    block->size = block->bytes ? size : 0;
    return block->bytes;
}

/* ---- errors of the libraries --------------------------------------------------------------------- */

static void jpeg_fails(j_common_ptr jpeg)
{
    struct ull__picture_reader *reader = (struct ull__picture_reader *)jpeg;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    snprintf(reader->why, sizeof reader->why, "%s", text);
    longjmp(reader->back, 1);
}

/* A negative level is a warning. Those of missing data are failures here: the rest would be gray. */
static void jpeg_says(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    int code = jpeg->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)
        jpeg_fails(jpeg);
}

static void jpeg_prints(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void png_fails(png_structp png, png_const_charp text)
{
    struct ull__picture_reader *reader = png_get_error_ptr(png);
    snprintf(reader->why, sizeof reader->why, "%s", text);
    longjmp(reader->back, 1);
}

static void png_warns(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void png_reads(png_structp png, png_bytep to, size_t size)
{
    struct ull__picture_reader *reader = png_get_io_ptr(png);
    if (size > reader->file_used - reader->file_at)
        png_error(png, "the file is cut off");
    memcpy(to, reader->file.bytes + reader->file_at, size);
    reader->file_at += size;
}

/* ---- life -------------------------------------------------------------------------------------- */

static bool make_jpeg(struct ull__picture_reader *reader)
{
    reader->jpeg.err = jpeg_std_error(&reader->jpeg_errors);
    reader->jpeg_errors.error_exit = jpeg_fails;
    reader->jpeg_errors.emit_message = jpeg_says;
    reader->jpeg_errors.output_message = jpeg_prints;
    if (setjmp(reader->back))
        return false;
    jpeg_create_decompress(&reader->jpeg);
    return true;
}

struct ull__picture_reader *ull__picture_reader_create(void)
{
    struct ull__picture_reader *reader = calloc(1, sizeof *reader);
    if (reader && !make_jpeg(reader)) {
        free(reader);
        return NULL;
    }
    return reader;
}

static void end_picture(struct ull__picture_reader *reader)
{
    if (reader->png)
        png_destroy_read_struct(&reader->png, &reader->info, NULL);
    reader->png = NULL;
    reader->info = NULL;
    jpeg_abort_decompress(&reader->jpeg);
}

void ull__picture_reader_destroy(struct ull__picture_reader *reader)
{
    if (!reader)
        return;
    end_picture(reader);
    jpeg_destroy_decompress(&reader->jpeg);
    free(reader->file.bytes);
    free(reader->pixels.bytes);
    free(reader->rows.bytes);
    free(reader);
}

static ull_status no_memory(struct ull_error *err)
{
    return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a picture");
}

static ull_status fail(struct ull__picture_reader *reader, struct ull_error *err)
{
    end_picture(reader);
    return ull__fail(err, ULL_E_FORMAT, "%s", reader->why);
}

/* ---- the head ---------------------------------------------------------------------------------- */

static ull_status load(struct ull__picture_reader *reader, const char *path, struct ull_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return ull__fail(err, ULL_E_FORMAT, "%s", strerror(errno));
    ull_status status = ULL_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = ull__fail(err, ULL_E_FORMAT, "it is no file");
    else if (info.st_size < 8)
        status = ull__fail(err, ULL_E_FORMAT, "it has %lld bytes", (long long)info.st_size);
    else if ((size_t)info.st_size > most_bytes)
        status = ull__fail(err, ULL_E_FORMAT, "it is larger than 1 GiB");
    else if (!make_room(&reader->file, (size_t)info.st_size))
        status = no_memory(err);
    reader->file_used = reader->file_at = 0;
    while (status == ULL_OK && reader->file_used < (size_t)info.st_size) {
        ssize_t got = read(fd, reader->file.bytes + reader->file_used,
                           (size_t)info.st_size - reader->file_used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            status = ull__fail(err, ULL_E_FORMAT, "%s", got ? strerror(errno) : "it got shorter");
        else
            reader->file_used += (size_t)got;
    }
    close(fd);
    return status;
}

/* Judged by the head alone, so that a picture is too large always or never. */
static ull_status check_size(struct ull__picture_reader *reader, const struct ull__picture *picture,
                             struct ull_error *err)
{
    if ((int64_t)picture->width * picture->height <= MOST_PIXELS)
        return ULL_OK;
    snprintf(reader->why, sizeof reader->why, "%d x %d pixels are more than %d", picture->width,
             picture->height, MOST_PIXELS);
    return fail(reader, err);
}

static ull_status head_of_jpeg(struct ull__picture_reader *reader, struct ull__picture *picture,
                               struct ull_error *err)
{
    if (setjmp(reader->back))
        return fail(reader, err);
    jpeg_mem_src(&reader->jpeg, reader->file.bytes, (unsigned long)reader->file_used);
    jpeg_read_header(&reader->jpeg, TRUE);
    *picture = (struct ull__picture){.width = (int)reader->jpeg.image_width,
                                     .height = (int)reader->jpeg.image_height,
                                     .channels = reader->jpeg.num_components == 1 ? 1 : 3};
    return check_size(reader, picture, err);
}

static ull_status head_of_png(struct ull__picture_reader *reader, struct ull__picture *picture,
                              struct ull_error *err)
{
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, png_fails, png_warns);
    reader->info = reader->png ? png_create_info_struct(reader->png) : NULL;
    if (!reader->info)
        return no_memory(err);
    if (setjmp(reader->back))
        return fail(reader, err);
    png_set_read_fn(reader->png, reader, png_reads);
    png_set_user_limits(reader->png, 1 << 16, 1 << 16);
    png_read_info(reader->png, reader->info);
    *picture = (struct ull__picture){.width = (int)png_get_image_width(reader->png, reader->info),
                                     .height = (int)png_get_image_height(reader->png, reader->info)};
    picture->channels = png_get_color_type(reader->png, reader->info) & PNG_COLOR_MASK_COLOR ? 3 : 1;
    return check_size(reader, picture, err);
}

ull_status ull__picture_head(struct ull__picture_reader *reader, const char *path,
                             struct ull__picture *picture, struct ull_error *err)
{
    end_picture(reader);
    ull_status status = load(reader, path, err);
    if (status != ULL_OK)
        return status;
    const uint8_t *first = reader->file.bytes;
    reader->is_png = png_sig_cmp(first, 0, 8) == 0;
    if (reader->is_png)
        return head_of_png(reader, picture, err);
    if (first[0] == 0xff && first[1] == 0xd8)
        return head_of_jpeg(reader, picture, err);
    return ull__fail(err, ULL_E_FORMAT,
                     "it is neither JPEG nor PNG: it begins with %02x %02x %02x %02x", first[0],
                     first[1], first[2], first[3]);
}

/* ---- the pixels -------------------------------------------------------------------------------- */

/* Four inks as Adobe writes them, inverted, to light. */
static void ink_to_light(const uint8_t *ink, int width, bool inverted, int channels, uint8_t *to)
{
    for (int x = 0; x < width; x++, ink += 4) {
        int light[3];
        for (int c = 0; c < 3; c++) {
            int colour = inverted ? ink[c] : 255 - ink[c], key = inverted ? ink[3] : 255 - ink[3];
            light[c] = (colour * key + 127) / 255;
        }
        if (channels == 1)
            *to++ = (uint8_t)((19595 * light[0] + 38470 * light[1] + 7471 * light[2] + 32768) >> 16);
        else
            for (int c = 0; c < 3; c++)
                *to++ = (uint8_t)light[c];
    }
}

static ull_status pixels_of_jpeg(struct ull__picture_reader *reader, int channels, int reduce,
                                 struct ull__picture *picture, struct ull_error *err)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    if (setjmp(reader->back))
        return fail(reader, err);
    bool ink = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = ink ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned int)reduce;
    jpeg_calc_output_dimensions(jpeg);
    size_t width = jpeg->output_width, height = jpeg->output_height;
    size_t stride = width * (size_t)channels;
    if (!make_room(&reader->pixels, stride * height) || (ink && !make_room(&reader->rows, width * 4)))
        return no_memory(err);
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = reader->pixels.bytes + jpeg->output_scanline * stride;
        JSAMPROW row = ink ? reader->rows.bytes : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (ink)
            ink_to_light(row, (int)width, jpeg->saw_Adobe_marker, channels, to);
    }
    jpeg_finish_decompress(jpeg);
    *picture = (struct ull__picture){(int)width, (int)height, channels, reader->pixels.bytes};
    return ULL_OK;
}

static ull_status pixels_of_png(struct ull__picture_reader *reader, int channels,
                                struct ull__picture *picture, struct ull_error *err)
{
    png_structp png = reader->png;
    png_infop info = reader->info;
    unsigned int width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    if (setjmp(reader->back))
        return fail(reader, err);
    bool colours = png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR;
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    if (channels == 3 && !colours)
        png_set_gray_to_rgb(png);
    if (channels == 1 && colours)
        png_set_rgb_to_gray_fixed(png, PNG_ERROR_ACTION_NONE, 29900, 58700);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    size_t stride = png_get_rowbytes(png, info);
    if (stride != (size_t)width * (size_t)channels)
        png_error(png, "its pixels have an unknown form");
    if (!make_room(&reader->pixels, stride * height) ||
        !make_room(&reader->rows, height * sizeof(png_bytep)))
        return no_memory(err);
    png_bytep *rows = (png_bytep *)(void *)reader->rows.bytes;
    for (unsigned int y = 0; y < height; y++)
        rows[y] = reader->pixels.bytes + y * stride;
    png_read_image(png, rows);
    png_read_end(png, NULL);
    *picture = (struct ull__picture){(int)width, (int)height, channels, reader->pixels.bytes};
    end_picture(reader);
    return ULL_OK;
}

ull_status ull__picture_pixels(struct ull__picture_reader *reader, int channels, int reduce,
                               struct ull__picture *picture, struct ull_error *err)
{
    if (reader->is_png)
        return pixels_of_png(reader, channels, picture, err);
    return pixels_of_jpeg(reader, channels, reduce, picture, err);
}
