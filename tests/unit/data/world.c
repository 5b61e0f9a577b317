/* world.c: see world.h. */
#include "world.h"

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

char world_folder[256];
int world_warnings;
char world_warning[600];

int world_begin(void **state)
{
    (void)state;
    world_warnings = 0;
    world_warning[0] = 0;
    folder_make(world_folder);
    return 0;
}

int world_end(void **state)
{
    (void)state;
    folder_remove(world_folder);
    return 0;
}

void world_warn(void *context, const char *message)
{
    (void)context;
    world_warnings++;
    snprintf(world_warning, sizeof world_warning, "%s", message);
}

const char *world_path(const char *format, ...)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    int used = snprintf(path, 1024, "%s/", world_folder);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, 1024 - (size_t)used, format, args);
    va_end(args);
    return path;
}

void world_mkdir(const char *name)
{
    assert_int_equal(mkdir(world_path("%s", name), 0700), 0);
}

void world_text(const char *name, const char *text)
{
    file_write(world_path("%s", name), text, strlen(text));
}

struct ull__data *world_open(const char *text, const struct ull__data_want *want)
{
    struct ull_error err = {""};
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    struct ull__data_want with = *want;
    with.warn = world_warn;
    if (ull__data_spec_parse(world_path("%s", text), &spec, &err) != ULL_OK ||
        ull__data_open(&spec, &with, &data, &err) != ULL_OK)
        fail_msg("%s: %s", text, err.message);
    return data;
}

void world_bad(const char *text, const struct ull__data_want *want, ull_status status,
               const char *word)
{
    struct ull_error err = {""};
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    ull_status got = ull__data_spec_parse(world_path("%s", text), &spec, &err);
    if (got == ULL_OK)
        got = ull__data_open(&spec, want, &data, &err);
    if (got != status || !strstr(err.message, word))
        fail_msg("%s: %s '%s' is not %s with '%s'", text, ull_status_name(got), err.message,
                 ull_status_name(status), word);
    assert_null(data);
}

struct ull__reader *world_reader(const struct ull__data *data,
                                 const struct ull__reader_options *options)
{
    struct ull_error err = {""};
    struct ull__reader *reader = NULL;
    struct ull__reader_options with = *options;
    with.warn = world_warn;
    if (ull__reader_create(data, &with, &reader, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return reader;
}

void world_batch(struct ull__reader *reader, uint64_t position, size_t count, void *x,
                 int32_t *targets)
{
    struct ull_error err = {""};
    if (ull__data_batch(reader, position, count, x, targets, &err) != ULL_OK)
        fail_msg("%s", err.message);
}

void world_idx(const char *name, int type, int dimensions, const uint32_t *sizes, const void *items,
               size_t bytes)
{
    unsigned char head[20] = {0, 0, (unsigned char)type, (unsigned char)dimensions};
    for (int i = 0; i < dimensions; i++)
        for (int b = 0; b < 4; b++)
            head[4 + 4 * i + b] = (unsigned char)(sizes[i] >> (24 - 8 * b));
    bool zipped = strlen(name) > 3 && strcmp(name + strlen(name) - 3, ".gz") == 0;
    gzFile file = gzopen(world_path("%s", name), zipped ? "wb" : "wbT");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, head, (unsigned int)(4 + 4 * dimensions)), 4 + 4 * dimensions);
    if (bytes)
        assert_int_equal(gzwrite(file, items, (unsigned int)bytes), bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

void world_pair(const char *part, const char *ending, uint32_t count, uint32_t h, uint32_t w,
                const uint8_t *pixels, const uint8_t *labels)
{
    char name[100];
    const uint32_t sizes[3] = {count, h, w};
    snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", part, ending);
    world_idx(name, 8, 3, sizes, pixels, (size_t)count * h * w);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", part, ending);
    world_idx(name, 8, 1, sizes, labels, count);
}

void world_jpeg(const char *name, int width, int height, int channels, const uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(world_path("%s", name), "wb");
    assert_non_null(file);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)y * (size_t)(width * channels));
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    assert_int_equal(fclose(file), 0);
}

void world_png(const char *name, int width, int height, int type, int depth, bool interlaced,
               const uint8_t *pixels)
{
    FILE *file = fopen(world_path("%s", name), "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, depth, type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_color palette[256];
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), 7};
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 256);
    png_write_info(png, info);
    size_t stride = png_get_rowbytes(png, info);
    png_bytep *rows = malloc((size_t)height * sizeof *rows);
    for (int y = 0; y < height; y++)
        rows[y] = (png_bytep)(uintptr_t)(pixels + (size_t)y * stride);
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(rows);
    assert_int_equal(fclose(file), 0);
}

void world_plain(const char *name, int width, int height, uint8_t r, uint8_t g, uint8_t b)
{
    uint8_t *pixels = malloc((size_t)(3 * width * height));
    for (int i = 0; i < width * height; i++) {
        pixels[3 * i] = r;
        pixels[3 * i + 1] = g;
        pixels[3 * i + 2] = b;
    }
    if (strstr(name, ".png"))
        world_png(name, width, height, PNG_COLOR_TYPE_RGB, 8, false, pixels);
    else
        world_jpeg(name, width, height, 3, pixels);
    free(pixels);
}
