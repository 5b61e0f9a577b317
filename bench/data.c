/*
 * data.c: what a sample costs, as JSON: pictures beside the bare decoding of their libraries, Fashion-MNIST, text.
 *
 *   bench_data [PICTURES [FOLDER_OF_FASHION_MNIST]]
 *
 * Pictures are 500 x 375, waves with noise, JPEG of quality 90 and PNG, in a folder that is removed again; a sample is
 * 3 x 224 x 224. "library_us" is reading a file and decoding all of it with the library, nothing else; "sample_us" all
 * of ull__data_batch, with cutting, resizing and normalizing, as evaluation and as training (random parts, which
 * are decoded whole too). Processor time, medians of 5 rounds that take turns.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

#include "data.h"

enum { WIDTH = 500, HEIGHT = 375, ROUNDS = 5, MOST = 2000 };

static char folder[] = "/tmp/ullage-bench-XXXXXX";
static uint8_t pixels[WIDTH * HEIGHT * 3];

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_data: %s\n", what);
    exit(1);
}

static void paint(int which)
{
    uint32_t noise = (uint32_t)which;
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        for (int c = 0; c < 3; c++) {
            noise = noise * 1664525u + 1013904223u;
            double x = i % WIDTH, y = i / WIDTH;
            pixels[3 * i + c] = (uint8_t)(128 + 80 * sin(x / (20 + which % 7) + c) * cos(y / 31) +
                                          (double)(noise >> 28));
        }
}

static void path_of(int which, bool png, char path[200])
{
    snprintf(path, 200, "%s/%s/c/%05d.%s", folder, png ? "png" : "jpeg", which, png ? "png" : "jpg");
}

static void write_jpeg(FILE *file)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = WIDTH;
    jpeg.image_height = HEIGHT;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        JSAMPROW row = pixels + (size_t)y * WIDTH * 3;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
}

static void make_pictures(int count)
{
    char path[200];
    if (!mkdtemp(folder))
        fail("cannot make a folder in /tmp");
    for (int png = 0; png < 2; png++) {
        snprintf(path, sizeof path, "%s/%s", folder, png ? "png" : "jpeg");
        mkdir(path, 0700);
        strcat(path, "/c");
        mkdir(path, 0700);
        for (int i = 0; i < count; i++) {
            paint(i);
            path_of(i, png, path);
            FILE *file = fopen(path, "wb");
            if (!file)
                fail("cannot write a picture");
            png_image image = {.version = PNG_IMAGE_VERSION,
                               .width = WIDTH,
                               .height = HEIGHT,
                               .format = PNG_FORMAT_RGB};
            if (png)
                png_image_write_to_stdio(&image, file, 0, pixels, 0, NULL);
            else
                write_jpeg(file);
            fclose(file);
        }
    }
}

static void remove_pictures(int count)
{
    char path[200];
    for (int png = 0; png < 2; png++) {
        for (int i = 0; i < count; i++) {
            path_of(i, png, path);
            unlink(path);
        }
        *strrchr(path, '/') = 0;
        rmdir(path);
        *strrchr(path, '/') = 0;
        rmdir(path);
    }
    rmdir(folder);
}

/* ---- the library alone ------------------------------------------------------------------------- */

static void decode_jpeg(const uint8_t *bytes, size_t size)
{
    static struct jpeg_decompress_struct jpeg;
    static struct jpeg_error_mgr errors;
    if (!jpeg.err) {
        jpeg.err = jpeg_std_error(&errors);
        jpeg_create_decompress(&jpeg);
    }
    jpeg_mem_src(&jpeg, bytes, (unsigned long)size);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = pixels + (size_t)jpeg.output_scanline * WIDTH * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
}

static void decode_png(const uint8_t *bytes, size_t size)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    png_image_begin_read_from_memory(&image, bytes, size);
    image.format = PNG_FORMAT_RGB;
    png_image_finish_read(&image, NULL, pixels, 0, NULL);
}

static double library(int count, bool png)
{
    static uint8_t bytes[4 << 20];
    double begin = cpu_us();
    for (int i = 0; i < count; i++) {
        char path[200];
        path_of(i, png, path);
        FILE *file = fopen(path, "rb");
        size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
        if (file)
            fclose(file);
        if (png)
            decode_png(bytes, size);
        else
            decode_jpeg(bytes, size);
    }
    return (cpu_us() - begin) / count;
}

/* ---- ours -------------------------------------------------------------------------------------- */

static struct ull__data *open_data(const char *text, int64_t window)
{
    struct ull_error err;
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    const struct ull__data_want want = {.window = window};
    if (ull__data_spec_parse(text, &spec, &err) != ULL_OK ||
        ull__data_open(&spec, &want, &data, &err) != ULL_OK)
        fail(err.message);
    return data;
}

static double samples(const struct ull__data *data, bool augment, size_t batch, size_t batches)
{
    const struct ull__data_info *info = ull__data_info(data);
    struct ull_error err;
    struct ull__reader *reader = NULL;
    const struct ull__reader_options options = {.shuffle = augment, .augment = augment};
    if (ull__reader_create(data, &options, &reader, &err) != ULL_OK)
        fail(err.message);
    void *x = malloc(batch * info->sample_bytes);
    int32_t *targets = malloc(batch * (size_t)info->sample_targets * sizeof *targets);
    if (!x || !targets)
        fail("no memory");
    double begin = cpu_us();
    for (size_t b = 0; b < batches; b++)
        if (ull__data_batch(reader, b * batch, batch, x, targets, &err) != ULL_OK)
            fail(err.message);
    double us = (cpu_us() - begin) / (double)(batch * batches);
    ull__reader_destroy(reader);
    free(x);
    free(targets);
    return us;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

static void pictures(int count, bool png)
{
    char text[300];
    double bare[ROUNDS], eval[ROUNDS], train[ROUNDS];
    snprintf(text, sizeof text, "%s/%s,split=none", folder, png ? "png" : "jpeg");
    struct ull__data *data = open_data(text, 0);
    for (int round = 0; round < ROUNDS; round++) {
        bare[round] = library(count, png);
        eval[round] = samples(data, false, 1, (size_t)count);
        train[round] = samples(data, true, 1, (size_t)count);
    }
    ull__data_close(data);
    double library_us = median(bare), eval_us = median(eval), train_us = median(train);
    printf("\"%s\": {\"library_us\": %.0f, \"sample_us\": %.0f, \"training_sample_us\": %.0f, "
           "\"ratio\": %.3f, \"training_ratio\": %.3f}, ",
           png ? "png" : "jpeg", library_us, eval_us, train_us, eval_us / library_us,
           train_us / library_us);
}

static void idx(const char *path)
{
    double plain[ROUNDS], augmented[ROUNDS];
    char text[600];
    snprintf(text, sizeof text, "%s,augment=flip+crop", path);
    struct ull__data *data = open_data(text, 0);
    for (int round = 0; round < ROUNDS; round++) {
        plain[round] = 128 * samples(data, false, 128, 300);
        augmented[round] = 128 * samples(data, true, 128, 300);
    }
    printf("\"fashion_mnist\": {\"batch_of_128_us\": %.0f, \"training_batch_us\": %.0f}, ",
           median(plain), median(augmented));
    ull__data_close(data);
}

static void made_up(void)
{
    double values[ROUNDS];
    struct ull__data *data = open_data("synthetic,shape=3x224x224", 0);
    for (int round = 0; round < ROUNDS; round++)
        values[round] = samples(data, true, 8, 10);
    printf("\"synthetic_224_us\": %.0f}\n", median(values));
    ull__data_close(data);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 200;
    const char *fashion = argc > 2 ? argv[2] : "/usr/share/datasets/fashion-mnist";
    if (count < 1 || count > MOST)
        fail("usage: bench_data [PICTURES [FOLDER_OF_FASHION_MNIST]], 1 to 2000 pictures");
    make_pictures(count);
    printf("{");
    pictures(count, false);
    pictures(count, true);
    remove_pictures(count);
    if (access(fashion, R_OK) == 0)
        idx(fashion);
    made_up();
    return 0;
}
