/* offsets_csv.c: see offsets_csv.h. Cuts a copy of the text in place. */
#include "offsets_csv.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

enum column { ID, LOWER, UPPER, SIZE, ALIGNMENT, OFFSET, COLUMNS, REQUIRED = ALIGNMENT };

static const char *const names[COLUMNS] = {"id", "lower", "upper", "size", "alignment", "offset"};

struct parser {
    char *next; /* line */
    size_t line;
    size_t columns;             /* of the header */
    enum column order[COLUMNS]; /* what each is */
    char *field[COLUMNS];       /* of the line, by column; NULL: there is no such column */
    uint64_t total;
    struct ull_error *err;
};

static ull_status no_memory(struct ull_error *err)
{
    return ull__fail(err, ULL_E_SYSTEM, "no memory for the buffers of the file");
}

/* --- lines ------------------------------------------------------------------------------------------------ */

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]))
        length--;
    text[length] = 0;
    return text;
}

/* The next line that is not empty, or NULL. */
static char *next_line(struct parser *parser)
{
    while (parser->next) {
        char *line = parser->next, *end = strchr(line, '\n');
        parser->next = end ? end + 1 : NULL;
        parser->line++;
        if (end)
            *end = 0;
        line = trim(line);
        if (*line)
            return line;
    }
    return NULL;
}

static ull_status parse_header(struct parser *parser)
{
    char *line = next_line(parser);
    bool seen[COLUMNS] = {false};
    if (!line)
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "the file is empty: expected a line with id,lower,upper,size first");
    for (char *field; (field = strsep(&line, ",")) != NULL;) {
        size_t column = 0;
        field = trim(field);
        while (column < COLUMNS && strcmp(field, names[column]) != 0)
            column++;
        if (column == COLUMNS)
            return ull__fail(parser->err, ULL_E_FORMAT,
                             "line %zu: column '%.40s' is not known: expected id, lower, upper, "
                             "size, and if wanted alignment and offset",
                             parser->line, field);
        if (seen[column])
            return ull__fail(parser->err, ULL_E_FORMAT, "line %zu: column '%s' is there twice",
                             parser->line, names[column]);
        seen[column] = true;
        parser->order[parser->columns++] = (enum column)column;
    }
    for (size_t column = 0; column < REQUIRED; column++) {
        if (!seen[column])
            return ull__fail(
                parser->err, ULL_E_FORMAT,
                "line %zu: there is no column '%s': expected id, lower, upper and size",
                parser->line, names[column]);
    }
    return ULL_OK;
}

static ull_status cut_line(struct parser *parser, char *line)
{
    size_t found = 0;
    for (char *field; (field = strsep(&line, ",")) != NULL; found++)
        if (found < parser->columns)
            parser->field[parser->order[found]] = trim(field);
    if (found != parser->columns)
        return ull__fail(parser->err, ULL_E_FORMAT, "line %zu has %zu fields: expected %zu",
                         parser->line, found, parser->columns);
    return ULL_OK;
}

/* --- fields ----------------------------------------------------------------------------------------------- */

/* Digits alone, at most 2^64 - 1. */
static bool parse_digits(const char *text, uint64_t *value)
{
    uint64_t number = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (unsigned int)(*text - '0'), &number))
            return false;
    }
    *value = number;
    return true;
}

static ull_status parse_bytes(const struct parser *parser, enum column column, uint64_t *value)
{
    uint64_t number = 0;
    if (!parse_digits(parser->field[column], &number) || number >= UINT64_C(1) << 62)
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: %s is '%.40s': expected a whole number below 2^62",
                         parser->line, names[column], parser->field[column]);
    *value = number;
    return ULL_OK;
}

static ull_status parse_time(const struct parser *parser, enum column column, int64_t *value)
{
    const char *text = parser->field[column];
    bool negative = *text == '-';
    uint64_t number = 0;
    if (!parse_digits(text + negative, &number) || number > INT64_MAX)
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: %s is '%.40s': expected a whole number of 64 bits",
                         parser->line, names[column], text);
    *value = negative ? -(int64_t)number : (int64_t)number;
    return ULL_OK;
}

/* What the solver would refuse, with the line. */
static ull_status check_buffer(struct parser *parser, const struct ull__buffer *buffer)
{
    uint64_t align = buffer->alignment;
    if (buffer->lower >= buffer->upper)
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: upper is %lld: expected more than lower, which is %lld",
                         parser->line, (long long)buffer->upper, (long long)buffer->lower);
    if (align == 0 || (align & (align - 1)))
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: alignment is %llu: expected a power of two", parser->line,
                         (unsigned long long)align);
    if (buffer->offset & (align - 1))
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: offset is %llu: expected a multiple of %llu", parser->line,
                         (unsigned long long)buffer->offset, (unsigned long long)align);
    parser->total += buffer->size + align - 1 + buffer->offset;
    if (parser->total >= UINT64_C(1) << 62)
        return ull__fail(parser->err, ULL_E_FORMAT,
                         "line %zu: sizes, alignments and offsets add up to 2^62 or more here",
                         parser->line);
    return ULL_OK;
}

static ull_status parse_buffer(struct parser *parser, struct ull__buffer *buffer)
{
    *buffer = (struct ull__buffer){.alignment = 1};
    ull_status status = parse_time(parser, LOWER, &buffer->lower);
    if (status == ULL_OK)
        status = parse_time(parser, UPPER, &buffer->upper);
    if (status == ULL_OK)
        status = parse_bytes(parser, SIZE, &buffer->size);
    if (status == ULL_OK && parser->field[ALIGNMENT] && *parser->field[ALIGNMENT])
        status = parse_bytes(parser, ALIGNMENT, &buffer->alignment);
    if (status == ULL_OK && parser->field[OFFSET] && *parser->field[OFFSET]) {
        buffer->pinned = true;
        status = parse_bytes(parser, OFFSET, &buffer->offset);
    }
    return status == ULL_OK ? check_buffer(parser, buffer) : status;
}

/* --- the whole ---------------------------------------------------------------------------------------------- */

static bool make_room(struct ull__offsets_csv *csv, size_t *room)
{
    if (csv->count < *room)
        return true;
    size_t more = *room ? 2 * *room : 256;
    struct ull__buffer *buffers = realloc(csv->buffers, more * sizeof *buffers);
    if (buffers)
        csv->buffers = buffers;
    const char **ids = realloc(csv->ids, more * sizeof *ids);
    if (ids)
        csv->ids = ids;
    if (!buffers || !ids)
        return false;
    *room = more;
    return true;
}

static int compare_ids(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static ull_status check_ids(const struct ull__offsets_csv *csv, struct ull_error *err)
{
    const char **sorted = malloc((csv->count ? csv->count : 1) * sizeof *sorted);
    ull_status status = ULL_OK;
    if (!sorted)
        return no_memory(err);
    if (csv->count)
        memcpy(sorted, csv->ids, csv->count * sizeof *sorted);
    qsort(sorted, csv->count, sizeof *sorted, compare_ids);
    for (size_t i = 1; i < csv->count && status == ULL_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = ull__fail(err, ULL_E_FORMAT,
                               "id '%.40s' is there more than once: expected "
                               "one line a buffer",
                               sorted[i]);
    free(sorted);
    return status;
}

static ull_status parse_lines(struct parser *parser, struct ull__offsets_csv *csv)
{
    size_t room = 0;
    ull_status status = parse_header(parser);
    for (char *line; status == ULL_OK && (line = next_line(parser)) != NULL;) {
        if (!make_room(csv, &room))
            return no_memory(parser->err);
        status = cut_line(parser, line);
        if (status == ULL_OK && !*parser->field[ID])
            status = ull__fail(parser->err, ULL_E_FORMAT, "line %zu: id is empty", parser->line);
        if (status == ULL_OK)
            status = parse_buffer(parser, &csv->buffers[csv->count]);
        if (status == ULL_OK)
            csv->ids[csv->count++] = parser->field[ID];
    }
    csv->has_alignment = parser->field[ALIGNMENT] != NULL;
    return status == ULL_OK ? check_ids(csv, parser->err) : status;
}

ull_status ull__offsets_csv_parse(const char *text, size_t size, struct ull_error *err,
                                  struct ull__offsets_csv *csv)
{
    struct ull__offsets_csv made = {.text = malloc(size + 1)};
    if (!made.text)
        return no_memory(err);
    if (size)
        memcpy(made.text, text, size);
    made.text[size] = 0;
    ull_status status;
    if (strlen(made.text) != size) {
        status = ull__fail(err, ULL_E_FORMAT, "the file has a byte 0: expected text");
    } else {
        struct parser parser = {.next = made.text, .err = err};
        status = parse_lines(&parser, &made);
    }
    if (status == ULL_OK)
        *csv = made;
    else
        ull__offsets_csv_finish(&made);
    return status;
}

void ull__offsets_csv_finish(struct ull__offsets_csv *csv)
{
    free(csv->buffers);
    free(csv->ids);
    free(csv->text);
    *csv = (struct ull__offsets_csv){0};
}
