/*
 * size.c: sizes from text and to text, without floating point or locale, so that 4.1GiB means the
 * same bytes everywhere. Linked into guest programs: plain old libc calls only.
 */
#include "size.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

#define EXPECTED                                                                                   \
    "expected a size such as 4GiB, 4G, 4096M or 512Ki (1024-based), 4GB (decimal) or bare bytes"

static const struct {
    const char *text;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ull << 10},
    {"Ki", 1ull << 10},
    {"KiB", 1ull << 10},
    {"M", 1ull << 20},
    {"Mi", 1ull << 20},
    {"MiB", 1ull << 20},
    {"G", 1ull << 30},
    {"Gi", 1ull << 30},
    {"GiB", 1ull << 30},
    {"T", 1ull << 40},
    {"Ti", 1ull << 40},
    {"TiB", 1ull << 40},
    {"KB", 1000ull},
    {"MB", 1000000ull},
    {"GB", 1000000000ull},
    {"TB", 1000000000000ull},
};

/* A decimal number as whole + fraction / scale; false if text does not begin with one. */
struct decimal {
    uint64_t whole;
    uint64_t fraction;
    uint64_t scale;
    bool overflow;
};

static bool read_decimal(const char **text, struct decimal *number)
{
    const char *at = *text;
    *number = (struct decimal){.scale = 1};
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        unsigned int digit = (unsigned int)(*at - '0');
        if (number->whole > ((uint64_t)INT64_MAX - digit) / 10)
            number->overflow = true;
        else
            number->whole = number->whole * 10 + digit;
    }
    if (*at == '.') {
        at++;
        if (*at < '0' || *at > '9')
            return false;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (number->scale >= 1000000000000000000ull)
                continue; /* a millionth of a byte of any unit we know */
            number->fraction = number->fraction * 10 + (unsigned int)(*at - '0');
            number->scale *= 10;
        }
    }
    *text = at;
    return true;
}

ull_status ull__size_parse(const char *text, uint64_t *bytes, struct ull_error *err)
{
    const char *at = text;
    struct decimal number;
    if (!read_decimal(&at, &number))
        return ull__fail(err, ULL_E_INVALID, "'%.100s' is not a size: " EXPECTED, text);
    uint64_t unit = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(at, units[i].text) == 0)
            unit = units[i].bytes;
    }
    if (unit == 0)
        return ull__fail(err, ULL_E_INVALID,
                         "'%.100s' is not a size (unit '%.20s' unknown): " EXPECTED, text, at);
    unsigned __int128 value = (unsigned __int128)number.whole * unit +
                              (unsigned __int128)number.fraction * unit / number.scale;
    if (number.overflow || value > INT64_MAX)
        return ull__fail(err, ULL_E_INVALID, "'%.100s' is too large: expected less than 8 EiB", text);
    if (value == 0)
        return ull__fail(err, ULL_E_INVALID, "'%.100s' is zero: expected at least one byte", text);
    *bytes = (uint64_t)value;
    return ULL_OK;
}

ull_status ull__size_or_share_parse(const char *text, struct ull_size *size, struct ull_error *err)
{
    size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '%') {
        uint64_t bytes;
        ull_status status = ull__size_parse(text, &bytes, err);
        if (status == ULL_OK)
            *size = (struct ull_size){.bytes = bytes};
        return status;
    }
    const char *at = text;
    struct decimal number;
    if (!read_decimal(&at, &number) || strcmp(at, "%") != 0)
        return ull__fail(err, ULL_E_INVALID,
                         "'%.100s' is not a share: expected a number and %%, as 40%%", text);
    double percent = (double)number.whole + (double)number.fraction / (double)number.scale;
    if (number.overflow || percent <= 0 || percent > 100)
        return ull__fail(err, ULL_E_INVALID,
                         "'%.100s' is not a share of a card: expected above 0%% and at most 100%%",
                         text);
    *size = (struct ull_size){.percent = percent};
    return ULL_OK;
}

/* Tenths of the unit; 1023.96 MiB becomes 1.0 GiB rather than 1024.0 MiB. */
static const char *size_text(uint64_t bytes, bool up, char buffer[ULL_SIZE_TEXT])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(buffer, ULL_SIZE_TEXT, "%u B", (unsigned int)bytes);
        return buffer;
    }
    int unit = 1;
    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    uint64_t one = 1ull << (10 * unit);
    unsigned __int128 tenths =
        (((unsigned __int128)bytes * 10) + (up ? one - 1 : one / 2)) >> (10 * unit);
    if (tenths >= 10240 && unit < 6) {
        unit++;
        tenths = 10;
    }
    unsigned int value = (unsigned int)tenths;
    snprintf(buffer, ULL_SIZE_TEXT, "%u.%u %s", value / 10 % 100000, value % 10, names[unit]);
    return buffer;
}

const char *ull__size_text(uint64_t bytes, char buffer[ULL_SIZE_TEXT])
{
    return size_text(bytes, false, buffer);
}

const char *ull__size_text_up(uint64_t bytes, char buffer[ULL_SIZE_TEXT])
{
    return size_text(bytes, true, buffer);
}
