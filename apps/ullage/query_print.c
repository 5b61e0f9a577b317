/*
 * query_print.c: rows of `ullage query` as CSV and JSON.
 *
 * CSV looks as nvidia-smi's of driver 580.159 does: a header with units, fields with ", " between, bytes
 * in MiB rounded up, commas inside of texts replaced by '?', other bytes as they are, and reasons in
 * brackets. An end of line inside of a name becomes '?' as well, so that a row stays one line. JSON has
 * bytes, ratios, watts and hertz as numbers, and null for what is not known.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "query.h"

enum { JSON_VERSION = 1 };

static const char *const units[] = {
    [UNIT_NONE] = NULL, [UNIT_MIB] = "MiB", [UNIT_PERCENT] = "%", [UNIT_WATT] = "W", [UNIT_MHZ] = "MHz"};

void query_print_help(const struct query_table *table, FILE *out)
{
    fprintf(out, "Fields for %s:\n", table->option);
    for (int i = 0; i < table->count; i++) {
        const struct query_field *field = &table->fields[i];
        fprintf(out, "\n\"%s\"", field->name);
        if (field->alias)
            fprintf(out, " or \"%s\"", field->alias);
        fprintf(out, "\n%s\n", field->help);
    }
}

/* --- CSV --- */

void query_print_header(const struct query_columns *columns, const struct query_format *format,
                        FILE *out)
{
    if (format->no_header || format->json)
        return;
    for (int i = 0; i < columns->count; i++) {
        const struct query_field *field = columns->field[i];
        fprintf(out, "%s%s", i ? ", " : "", field->name);
        if (units[field->unit]) /* also without units in the rows */
            fprintf(out, " [%s]", units[field->unit]);
    }
    fputc('\n', out);
}

static void print_text(const char *text, FILE *out)
{
    for (; *text; text++)
        fputc(*text == ',' || *text == '\n' || *text == '\r' ? '?' : *text, out);
}

static void print_number(const struct query_field *field, uint64_t number, FILE *out)
{
    if (field->unit == UNIT_MIB)
        fprintf(out, "%" PRIu64, number / 1048576 + (number % 1048576 != 0));
    else if (field->unit == UNIT_WATT)
        fprintf(out, "%.2f", (double)number / 1000);
    else
        fprintf(out, "%" PRIu64, number);
}

static void print_value(const struct query_row *row, const struct query_field *field,
                        const struct query_format *format, FILE *out)
{
    struct query_value value = {.kind = VALUE_MISSING, .why = NVML_ERROR_UNKNOWN};
    field->get(row, &value);
    if (value.kind == VALUE_TEXT) {
        print_text(value.text, out);
    } else if (value.kind == VALUE_NUMBER) {
        print_number(field, value.number, out);
        if (units[field->unit] && !format->no_units)
            fprintf(out, " %s", units[field->unit]);
    } else if (value.why == NVML_ERROR_NOT_SUPPORTED || value.why == NVML_ERROR_FUNCTION_NOT_FOUND) {
        fputs("[N/A]", out);
    } else {
        fprintf(out, "[%s]", ull__nvml_error_text(&row->round->gpus->nvml, value.why));
    }
}

static void print_row(const struct query_row *row, const struct query_columns *columns,
                      const struct query_format *format, FILE *out)
{
    for (int i = 0; i < columns->count; i++) {
        fputs(i ? ", " : "", out);
        print_value(row, columns->field[i], format, out);
    }
    fputc('\n', out);
}

/* --- JSON --- */

static void json_value(struct ull_json *json, const struct query_row *row,
                       const struct query_field *field)
{
    struct query_value value = {.kind = VALUE_MISSING};
    field->get(row, &value);
    if (value.kind == VALUE_TEXT)
        ull__json_string(json, value.text);
    else if (value.kind == VALUE_MISSING)
        ull__json_null(json);
    else if (field->unit == UNIT_PERCENT)
        ull__json_number(json, (double)value.number / 100);
    else if (field->unit == UNIT_WATT)
        ull__json_number(json, (double)value.number / 1000);
    else
        ull__json_u64(json, field->unit == UNIT_MHZ ? value.number * 1000000 : value.number);
}

static void json_row(struct ull_json *json, const struct query_row *row,
                     const struct query_columns *columns)
{
    ull__json_object(json);
    for (int i = 0; i < columns->count; i++) {
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= columns->field[k] == columns->field[i];
        if (again)
            continue;
        ull__json_key(json, columns->field[i]->name);
        json_value(json, row, columns->field[i]);
    }
    ull__json_object_end(json);
}

/* --- a round --- */

/* Local time, as nvidia-smi writes it. */
static void stamp(char text[32])
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    size_t used = strftime(text, 32, "%Y/%m/%d %H:%M:%S", &parts);
    snprintf(text + used, 32 - used, ".%03ld", now.tv_nsec / 1000000);
}

typedef void row_fn(const struct query_row *row, void *data);

/* The processes of one card, or of an instance. */
static void each_process(const struct query_round *round, const struct gpu *gpu, row_fn *give,
                         void *data)
{
    for (int p = 0; p < gpu->process_count; p++) {
        struct query_row row = {.round = round, .gpu = gpu, .process = &gpu->processes[p]};
        give(&row, data);
    }
}

static void each_row(const struct query_table *table, struct query_round *round, const bool *chosen,
                     row_fn *give, void *data)
{
    const struct gpus *gpus = round->gpus;
    for (int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->gpu[i];
        if (!chosen[i])
            continue;
        stamp(round->timestamp);
        if (!table->processes) {
            struct query_row row = {.round = round, .gpu = gpu};
            give(&row, data);
            continue;
        }
        each_process(round, gpu, give, data);
        /* Who may see no process of a whole card in MIG mode may see those of its instances. */
        for (int k = i + 1; k < gpus->count && !gpu->processes_known; k++) {
            if (gpus->gpu[k].card == i)
                each_process(round, &gpus->gpu[k], give, data);
        }
    }
}

struct target {
    const struct query_columns *columns;
    const struct query_format *format;
    FILE *out;
    struct ull_json json;
};

static void give_csv(const struct query_row *row, void *data)
{
    struct target *target = data;
    print_row(row, target->columns, target->format, target->out);
}

static void give_json(const struct query_row *row, void *data)
{
    struct target *target = data;
    json_row(&target->json, row, target->columns);
}

bool query_print_round(const struct query_columns *columns, const struct query_format *format,
                       struct query_round *round, const bool *chosen, FILE *out)
{
    struct target target = {.columns = columns, .format = format, .out = out};
    if (!format->json) {
        each_row(columns->table, round, chosen, give_csv, &target);
        return fflush(out) == 0 && !ferror(out);
    }
    ull__json_init(&target.json, out);
    target.json.compact = format->lines;
    stamp(round->timestamp);
    ull__json_object(&target.json);
    ull__json_key(&target.json, "version");
    ull__json_u64(&target.json, JSON_VERSION);
    ull__json_key(&target.json, "timestamp");
    ull__json_string(&target.json, round->timestamp);
    ull__json_key(&target.json, columns->table->key);
    ull__json_array(&target.json);
    each_row(columns->table, round, chosen, give_json, &target);
    ull__json_array_end(&target.json);
    ull__json_object_end(&target.json);
    return ull__json_finish(&target.json);
}
