/*
 * spec.c: PATH[,OPTION=VALUE]… as it is typed; options.def is the list of options.
 *
 * A path may hold commas: a part after a comma belongs to it unless it begins with a word and '='. A
 * path with such a part is taken whole if it exists.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_private.h"

enum option {
#define OPTION(name, text, formats, value) OPTION_##name,
#include "options.def"
#undef OPTION
    OPTIONS
};

static const struct {
    const char *name, *formats, *value;
} options[OPTIONS] = {
#define OPTION(name, text, formats, value) {text, formats, value},
#include "options.def"
#undef OPTION
};

static const char *const format_names[ULL_DATA_FORMATS] = {
#define X(name, text) text,
    ULL_DATA_FORMAT_MAP(X)
#undef X
};

static const char *const document_names[ULL_DOCUMENTS_KINDS] = {
#define X(name, text) text,
    ULL_DATA_DOCUMENTS_MAP(X)
#undef X
};

const char *ull__data_format_text(enum ull__data_format format)
{
    return format < ULL_DATA_FORMATS ? format_names[format] : "?";
}

/* Whole decimal numbers from low to high. */
static bool read_integer(const char *text, int64_t low, int64_t high, int64_t *value)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*end || errno || number < low || number > high)
        return false;
    *value = number;
    return true;
}

static bool read_number(const char *text, const char **end, double *value)
{
    if (!isdigit((unsigned char)*text) && *text != '.' && *text != '-')
        return false;
    char *stop;
    *value = strtod(text, &stop);
    *end = stop;
    return stop != text && isfinite(*value);
}

/* One to ULL_DATA_CHANNELS numbers with '/' between them. */
static bool read_numbers(const char *text, float *values, int *count)
{
    int n = 0;
    for (;;) {
        double value;
        if (n == ULL_DATA_CHANNELS || !read_number(text, &text, &value))
            return false;
        values[n++] = (float)value;
        if (!*text)
            break;
        if (*text++ != '/')
            return false;
    }
    if (*count && *count != n)
        return false;
    *count = n;
    return true;
}

static bool read_shape(const char *text, int64_t shape[3])
{
    int64_t parsed[3];
    for (int i = 0; i < 3; i++) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        parsed[i] = strtol(text, &end, 10);
        if (parsed[i] < 1 || parsed[i] > (i == 0 ? ULL_DATA_CHANNELS : 16384))
            return false;
        if (*end != (i < 2 ? 'x' : 0))
            return false;
        text = end + 1;
    }
    memcpy(shape, parsed, sizeof parsed);
    return true;
}

static bool read_format(const char *text, enum ull__data_format *format)
{
    for (int i = 0; i < ULL_DATA_FORMATS; i++) {
        if (strcmp(text, format_names[i]) != 0)
            continue;
        *format = (enum ull__data_format)i;
        return true;
    }
    return false;
}

static bool read_split(const char *text, double *split)
{
    if (strcmp(text, "none") == 0) {
        *split = 0;
        return true;
    }
    const char *end;
    double share;
    if (!read_number(text, &end, &share) || *end || share <= 0 || share >= 1)
        return false;
    *split = share;
    return true;
}

static bool read_augment(const char *text, int *augment)
{
    static const struct {
        const char *text;
        int bits;
    } known[] = {{"none", 0},
                 {"flip", ULL_DATA_FLIP},
                 {"crop", ULL_DATA_CROP},
                 {"flip+crop", ULL_DATA_FLIP | ULL_DATA_CROP},
                 {"crop+flip", ULL_DATA_FLIP | ULL_DATA_CROP}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i].text) != 0)
            continue;
        *augment = known[i].bits;
        return true;
    }
    return false;
}

static bool read_unit(const char *text, enum ull__data_unit *unit)
{
    if (strcmp(text, "characters") != 0 && strcmp(text, "bytes") != 0)
        return false;
    *unit = text[0] == 'c' ? ULL_DATA_CHARACTERS : ULL_DATA_BYTES;
    return true;
}

/* What describes the data of a training is JSON, and only UTF-8 comes back from there. */
static bool is_utf8(const char *text)
{
    size_t left = strlen(text);
    for (size_t length; left > 0; text += length, left -= length)
        if ((length = ull__utf8_length((const unsigned char *)text, left)) == 0)
            return false;
    return true;
}

/* "lines", "at:<|endoftext|>". */
bool ull__data_documents_parse(const char *text, struct ull__data_spec *spec)
{
    for (int i = ULL_DOCUMENTS_NONE; i < ULL_DOCUMENTS_KINDS; i++) {
        size_t length = strlen(document_names[i]);
        bool at = i == ULL_DOCUMENTS_AT;
        if (strncmp(text, document_names[i], length) != 0 || (text[length] != 0) != at)
            continue;
        spec->documents = (enum ull__data_documents)i;
        return snprintf(spec->mark, sizeof spec->mark, "%s", text + length) < ULL_DATA_MARK &&
               is_utf8(spec->mark);
    }
    return false;
}

void ull__data_documents_text(const struct ull__data_spec *spec, char text[ULL_DATA_MARK + 16])
{
    snprintf(text, ULL_DATA_MARK + 16, "%s%s", document_names[spec->documents], spec->mark);
}

static bool positive(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!(values[i] > 0))
            return false;
    return true;
}

static bool read_option(enum option option, const char *value, struct ull__data_spec *spec)
{
    int64_t number;
    switch (option) {
    case OPTION_FORMAT:
        return read_format(value, &spec->format);
    case OPTION_SPLIT:
        return read_split(value, &spec->split);
    case OPTION_UNIT:
        return read_unit(value, &spec->unit);
    case OPTION_DOCUMENTS:
        return ull__data_documents_parse(value, spec);
    case OPTION_TYPE:
        if (strcmp(value, "u16") != 0 && strcmp(value, "u32") != 0)
            return false;
        spec->token_bytes = value[1] == '1' ? 2 : 4;
        return true;
    case OPTION_VOCAB:
        return read_integer(value, 1, INT32_MAX, &spec->vocab);
    case OPTION_IGNORE:
        return read_integer(value, 0, INT32_MAX, &spec->ignore);
    case OPTION_CLASSES:
        return read_integer(value, 1, 1 << 20, &spec->classes);
    case OPTION_SAMPLES:
        return read_integer(value, 1, INT64_C(1) << 40, &spec->samples);
    case OPTION_SHAPE:
        return read_shape(value, spec->shape);
    case OPTION_AUGMENT:
        return read_augment(value, &spec->augment);
    case OPTION_PAD:
        if (!read_integer(value, 1, 64, &number))
            return false;
        spec->pad = (int)number;
        return true;
    case OPTION_MEAN:
        return read_numbers(value, spec->mean, &spec->colours);
    case OPTION_DEVIATION:
        return read_numbers(value, spec->deviation, &spec->colours) &&
               positive(spec->deviation, spec->colours);
    case OPTIONS:
        break;
    }
    return false;
}

/* Where the options begin: the last commas that are followed by a word and '='. */
static size_t path_length(const char *text)
{
    size_t length = strlen(text);
    for (size_t i = length; i-- > 0;) {
        if (text[i] != ',')
            continue;
        size_t end = i + 1;
        while (islower((unsigned char)text[end]))
            end++;
        if (end == i + 1 || text[end] != '=')
            break;
        length = i;
    }
    return length;
}

static ull_status unknown_option(const char *name, size_t length, struct ull_error *err)
{
    char list[256];
    size_t used = 0;
    for (int i = 0; i < OPTIONS; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 options[i].name);
    return ull__fail(err, ULL_E_INVALID, "data have no option '%.*s': expected one of %s",
                     (int)(length < 60 ? length : 60), name, list);
}

/* One OPTION=VALUE of `length` bytes. */
static ull_status parse_option(const char *text, size_t length, struct ull__data_spec *spec,
                               struct ull_error *err)
{
    size_t name = (size_t)((const char *)memchr(text, '=', length) - text);
    char value[128];
    int i = 0;
    while (i < OPTIONS &&
           (strlen(options[i].name) != name || strncmp(options[i].name, text, name) != 0))
        i++;
    if (i == OPTIONS)
        return unknown_option(text, name, err);
    size_t size = length - name - 1;
    bool fits = size < sizeof value;
    if (fits) {
        memcpy(value, text + name + 1, size);
        value[size] = 0;
    }
    if (spec->given & (1u << i))
        return ull__fail(err, ULL_E_INVALID, "'%s=' is given twice", options[i].name);
    if (!fits || !read_option((enum option)i, value, spec))
        return ull__fail(err, ULL_E_INVALID, "'%.100s' is not what '%s=' takes: expected %s",
                         fits ? value : "a long text", options[i].name, options[i].value);
    spec->given |= 1u << i;
    return ULL_OK;
}

ull_status ull__data_spec_parse(const char *text, struct ull__data_spec *out, struct ull_error *err)
{
    struct ull__data_spec spec = {.split = -1, .ignore = -1, .augment = -1};
    size_t length = strlen(text), path = path_length(text);
    if (path < length && access(text, F_OK) == 0)
        path = length;
    if (path == 0 || path >= sizeof spec.path)
        return ull__fail(err, ULL_E_INVALID,
                         "the path of the data is %s: expected PATH[,OPTION=VALUE]…, or synthetic",
                         path ? "too long" : "empty");
    memcpy(spec.path, text, path);
    while (path < length) {
        const char *option = text + path + 1;
        size_t size = strcspn(option, ",");
        ull_status status = parse_option(option, size, &spec, err);
        if (status != ULL_OK)
            return status;
        path += 1 + size;
    }
    if (strcmp(spec.path, "synthetic") == 0 && spec.format == ULL_DATA_AUTO)
        spec.format = ULL_DATA_SYNTHETIC;
    bool mean = spec.given & (1u << OPTION_MEAN), std = spec.given & (1u << OPTION_DEVIATION);
    if (mean != std)
        return ull__fail(err, ULL_E_INVALID, "'mean=' and 'std=' go together: '%s=' is missing",
                         mean ? "std" : "mean");
    *out = spec;
    return ULL_OK;
}

ull_status ull__data_spec_check(const struct ull__data_spec *spec, struct ull_error *err)
{
    static const char letters[ULL_DATA_FORMATS] = {0, 'i', 'p', 't', 'k', 's'};
    for (int i = 0; i < OPTIONS; i++) {
        if (!(spec->given & (1u << i)) || strchr(options[i].formats, letters[spec->format]))
            continue;
        return ull__fail(err, ULL_E_INVALID, "'%s=' is nothing for data of format %s ('%.200s')",
                         options[i].name, ull__data_format_text(spec->format), spec->path);
    }
    return ULL_OK;
}
