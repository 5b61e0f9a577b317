/*
 * fuzz_picture.c: JPEG and PNG files (src/data/picture.c). What is accepted has as many pixels as it says; one reader
 * reads them all, so nothing of a broken picture may be left in it.
 */
#include "fuzz.h"

#include "memory_file.h"
#include "picture.h"

const char *const fuzz_tokens[] = {"IHDR",     "IDAT",     "PLTE",     "tRNS", "IEND",  "\xff\xda",
                                   "\xff\xc0", "\xff\xc2", "\xff\xd9", "JFIF", "Adobe", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ull__picture_reader *reader;
    struct ull__picture picture;
    struct ull_error err = {""};
    if (!reader)
        reader = ull__picture_reader_create();
    FUZZ_EXPECT(reader);
    ull_status status = ull__picture_head(reader, memory_file(data, size), &picture, &err);
    /* Sides that mutations make large are refused here, for the time that they take. */
    if (status == ULL_OK && (int64_t)picture.width * picture.height <= 1 << 16) {
        FUZZ_EXPECT(picture.width > 0 && picture.height > 0);
        int channels = size % 2 ? 1 : 3, reduce = 1 << size % 4;
        status = ull__picture_pixels(reader, channels, reduce, &picture, &err);
        uint32_t sum = 0;
        for (int i = 0; status == ULL_OK && i < picture.width * picture.height * channels; i++)
            sum += picture.pixels[i];
        FUZZ_EXPECT(sum <= 255u * 3 * (1 << 16));
    }
    FUZZ_EXPECT(status == ULL_OK || (status == ULL_E_FORMAT && err.message[0]));
    return 0;
}
