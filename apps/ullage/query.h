/*
 * query.h: the parts of `ullage query`: fields, their values, and how rows of them are written.
 *
 * A value is a text or a number in the field's smallest unit, or the reason why there is none. What it
 * looks like is decided where it is written (query_print.c), so that CSV is nvidia-smi's to the byte
 * and JSON has bytes, ratios and null.
 */
#ifndef ULLAGE_QUERY_H
#define ULLAGE_QUERY_H

#include <stdio.h>

#include "gpus.h"
#include "jobs.h"

/* Unit of a number and how CSV names it. Numbers: bytes, percent, milliwatts, MHz. */
enum query_unit { UNIT_NONE, UNIT_MIB, UNIT_PERCENT, UNIT_WATT, UNIT_MHZ };

enum { QUERY_TEXT = 8192, QUERY_FIELDS = 4096 };

struct query_value {
    enum { VALUE_MISSING, VALUE_TEXT, VALUE_NUMBER } kind;
    nvmlReturn_t why; /* VALUE_MISSING: what the library said */
    uint64_t number;
    char text[QUERY_TEXT]; /* any bytes */
};

/* What a row is about. */
struct query_row {
    const struct query_round *round;
    const struct gpu *gpu;
    const struct gpu_process *process; /* NULL in a row about a card */
};

struct query_field {
    const char *name, *alias;
    enum query_unit unit;
    void (*get)(const struct query_row *row, struct query_value *value);
    const char *help;
};

struct query_table {
    const char *option; /* "--query-gpu" */
    const char *key;    /* of the array in JSON */
    const struct query_field *fields;
    int count;
    bool processes; /* rows are processes */
};
extern const struct query_table query_gpu_table, query_app_table;

/* Fields of a table in the order of the columns; one may come twice. */
struct query_columns {
    const struct query_table *table;
    int count;
    const struct query_field *field[QUERY_FIELDS];
};

/*
 * Reads a list of names with commas between, as nvidia-smi does: nothing is trimmed, empty entries are
 * passed over. False, with the entry in `bad`, where one is not a field.
 */
bool query_columns_parse(const struct query_table *table, const char *text,
                         struct query_columns *columns, char bad[QUERY_TEXT]);
bool query_asks_own(const struct query_columns *columns);

/* What is known at one moment, which all rows of a round are made from. */
struct query_round {
    const struct gpus *gpus;
    const struct job_list *jobs; /* NULL: no field needs them */
    char timestamp[32];
};

/* --- writing --- */

struct query_format {
    bool no_header, no_units;
    bool json;
    bool lines; /* JSON in one line a round */
};

void query_print_help(const struct query_table *table, FILE *out);
void query_print_header(const struct query_columns *columns, const struct query_format *format,
                        FILE *out);
/* All rows of a round. chosen[i] says whether gpus->gpu[i] is asked for. False if writing failed. */
bool query_print_round(const struct query_columns *columns, const struct query_format *format,
                       struct query_round *round, const bool *chosen, FILE *out);

/* --- what getters share --- */

void query_set_text(struct query_value *value, const char *text);
void query_set_number(struct query_value *value, uint64_t number);
/* A count of bytes that may be ULL_NVML_UNKNOWN. */
void query_set_bytes(struct query_value *value, uint64_t bytes);
void query_set_missing(struct query_value *value, nvmlReturn_t why);

#define QUERY_GPU(name, alias, unit, getter, help)                                                 \
    void query_get_##getter(const struct query_row *row, struct query_value *value);
#define QUERY_APP(name, alias, unit, getter, help)                                                 \
    void query_get_##getter(const struct query_row *row, struct query_value *value);
#include "query_fields.def"

#endif
