/*
 * query_values.c: the tables of fields, and the values that are known without a question to the driver
 * for each: names, memory, processes.
 */
#include "query.h"

#include <string.h>

/* --- the tables --- */

#define FIELD(name_, alias_, unit_, getter_, help_)                                                \
    {.name = name_, .alias = alias_, .unit = UNIT_##unit_, .get = query_get_##getter_, .help = help_},

static const struct query_field gpu_fields[] = {
#define QUERY_GPU(name, alias, unit, getter, help) FIELD(name, alias, unit, getter, help)
#define QUERY_APP(name, alias, unit, getter, help)
#include "query_fields.def"
};

static const struct query_field app_fields[] = {
#define QUERY_GPU(name, alias, unit, getter, help)
#define QUERY_APP(name, alias, unit, getter, help) FIELD(name, alias, unit, getter, help)
#include "query_fields.def"
};

const struct query_table query_gpu_table = {.option = "--query-gpu",
                                            .key = "gpus",
                                            .fields = gpu_fields,
                                            .count = sizeof gpu_fields / sizeof *gpu_fields};
const struct query_table query_app_table = {.option = "--query-compute-apps",
                                            .key = "processes",
                                            .fields = app_fields,
                                            .count = sizeof app_fields / sizeof *app_fields,
                                            .processes = true};

static const struct query_field *find(const struct query_table *table, const char *name)
{
    for (int i = 0; i < table->count; i++) {
        const struct query_field *field = &table->fields[i];
        if (strcmp(field->name, name) == 0 || (field->alias && strcmp(field->alias, name) == 0))
            return field;
    }
    return NULL;
}

bool query_columns_parse(const struct query_table *table, const char *text,
                         struct query_columns *columns, char bad[QUERY_TEXT])
{
    columns->table = table;
    columns->count = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        int shown = length < QUERY_TEXT ? (int)length : QUERY_TEXT - 1;
        snprintf(bad, QUERY_TEXT, "%.*s", shown, text);
        const struct query_field *field = length < QUERY_TEXT ? find(table, bad) : NULL;
        if (length > 0 && (!field || columns->count == QUERY_FIELDS))
            return false;
        if (length > 0)
            columns->field[columns->count++] = field;
        text += length + (text[length] == ',');
    }
    return true;
}

bool query_asks_own(const struct query_columns *columns)
{
    for (int i = 0; i < columns->count; i++) {
        if (strncmp(columns->field[i]->name, "ullage.", 7) == 0)
            return true;
    }
    return false;
}

/* --- setting --- */

void query_set_text(struct query_value *value, const char *text)
{
    value->kind = VALUE_TEXT;
    snprintf(value->text, sizeof value->text, "%s", text);
}

void query_set_number(struct query_value *value, uint64_t number)
{
    value->kind = VALUE_NUMBER;
    value->number = number;
}

void query_set_missing(struct query_value *value, nvmlReturn_t why)
{
    value->kind = VALUE_MISSING;
    value->why = why;
}

void query_set_bytes(struct query_value *value, uint64_t bytes)
{
    if (bytes == ULL_NVML_UNKNOWN)
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
    else
        query_set_number(value, bytes);
}

/* --- of a card --- */

void query_get_timestamp(const struct query_row *row, struct query_value *value)
{
    query_set_text(value, row->round->timestamp);
}

void query_get_driver_version(const struct query_row *row, struct query_value *value)
{
    const struct ull__nvml_calls *call = &row->round->gpus->nvml.call;
    char text[96] = "";
    nvmlReturn_t result = call->nvmlSystemGetDriverVersion
                              ? call->nvmlSystemGetDriverVersion(text, sizeof text)
                              : NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        query_set_text(value, text);
    else
        query_set_missing(value, result);
}

void query_get_count(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, (uint64_t)row->round->gpus->cards);
}

void query_get_name(const struct query_row *row, struct query_value *value)
{
    query_set_text(value, row->gpu->device.name);
}

void query_get_uuid(const struct query_row *row, struct query_value *value)
{
    query_set_text(value, row->gpu->device.uuid);
}

void query_get_bus_id(const struct query_row *row, struct query_value *value)
{
    if (row->gpu->device.bus_id[0])
        query_set_text(value, row->gpu->device.bus_id);
    else
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
}

void query_get_index(const struct query_row *row, struct query_value *value)
{
    if (row->gpu->device.index >= 0)
        query_set_number(value, (uint64_t)row->gpu->device.index);
    else
        query_set_missing(value, NVML_ERROR_NOT_SUPPORTED);
}

/* The reason for an unknown figure: a container with one instance may not see the whole card's. */
static void give_memory(const struct query_row *row, struct query_value *value, uint64_t bytes)
{
    const struct ull__nvml_calls *call = &row->round->gpus->nvml.call;
    nvmlMemory_t memory;
    query_set_bytes(value, bytes);
    if (bytes != ULL_NVML_UNKNOWN || !row->gpu->device.handle || !call->nvmlDeviceGetMemoryInfo)
        return;
    nvmlReturn_t result = call->nvmlDeviceGetMemoryInfo(row->gpu->device.handle, &memory);
    if (result != NVML_SUCCESS)
        query_set_missing(value, result);
}

void query_get_memory_total(const struct query_row *row, struct query_value *value)
{
    const struct ull__nvml_device *device = &row->gpu->device;
    bool split = device->reserved_bytes != ULL_NVML_UNKNOWN;
    give_memory(row, value, device->total_bytes + (split ? device->reserved_bytes : 0));
}

void query_get_memory_reserved(const struct query_row *row, struct query_value *value)
{
    give_memory(row, value, row->gpu->device.reserved_bytes);
}

void query_get_memory_used(const struct query_row *row, struct query_value *value)
{
    give_memory(row, value, row->gpu->device.used_bytes);
}

void query_get_memory_free(const struct query_row *row, struct query_value *value)
{
    give_memory(row, value, row->gpu->device.free_bytes);
}

/* --- of a process --- */

void query_get_pid(const struct query_row *row, struct query_value *value)
{
    query_set_number(value, row->process->pid);
}

void query_get_process_name(const struct query_row *row, struct query_value *value)
{
    const struct ull__nvml_calls *call = &row->round->gpus->nvml.call;
    nvmlReturn_t result =
        call->nvmlSystemGetProcessName
            ? call->nvmlSystemGetProcessName(row->process->pid, value->text, sizeof value->text)
            : NVML_ERROR_NOT_SUPPORTED;
    value->text[sizeof value->text - 1] = 0;
    value->kind = VALUE_TEXT;
    if (result != NVML_SUCCESS)
        query_set_missing(value, result);
}

void query_get_process_used(const struct query_row *row, struct query_value *value)
{
    query_set_bytes(value, row->process->used_bytes);
}
