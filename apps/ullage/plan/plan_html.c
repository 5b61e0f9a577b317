/*
 * plan_html.c: `--html FILE`: the memory of a micro-step over time, by component, as one page that loads nothing.
 *
 * The page is page/plan.html, the data as JSON, and page/plan.js. JSON is inside a script, so '<' is written as an
 * escape: a name cannot end it.
 */
#include <stdlib.h>
#include <string.h>

#include "../json_keys.h"
#include "error.h"
#include "file.h"
#include "op.h"
#include "plan_cmd.h"

extern const char plan_page_head[], plan_page_script[];

struct page {
    const struct plan_result *result;
    const struct ull__program *program;
    struct ull__plan_layout layout;
    int64_t *bytes;         /* by place and role */
    int role_of[ULL_ROLES]; /* places in the list of roles that are shown; -1: not shown */
};

static void put_times(struct ull_json *json, const char *key, const struct page *page, int from)
{
    ull__json_key(json, key);
    ull__json_array(json);
    for (int i = 0; i < page->layout.count; ++i) {
        ull__json_number(json, page->layout.starts[i + from]);
    }
    ull__json_array_end(json);
}

static void put_roles(struct ull_json *json, struct page *page)
{
    int shown = 0;
    ull__json_key(json, "roles");
    ull__json_array(json);
    for (int role = 0; role < ULL_ROLES; ++role) {
        int64_t most = 0;
        for (int i = 0; i < page->layout.count; ++i) {
            int64_t bytes = page->bytes[(size_t)i * ULL_ROLES + (size_t)role];
            most = bytes > most ? bytes : most;
        }
        page->role_of[role] = most > 0 ? shown++ : -1;
        if (most == 0) {
            continue;
        }
        ull__json_object(json);
        key_string(json, "name", ull__role_text((enum ull__role)role));
        ull__json_key(json, "bytes");
        ull__json_array(json);
        for (int i = 0; i < page->layout.count; ++i) {
            ull__json_i64(json, page->bytes[(size_t)i * ULL_ROLES + (size_t)role]);
        }
        ull__json_array_end(json);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

/* What ran at each place. */
static void put_names(struct ull_json *json, const struct page *page)
{
    const struct ull__graph *graph = page->program->graph;
    ull__json_key(json, "names");
    ull__json_array(json);
    for (int i = 0; i < page->layout.count; ++i) {
        const struct ull__placed *placed = &page->layout.order[i];
        const struct ull__node *node = &graph->nodes[page->program->items[placed->item].node];
        char text[160];
        snprintf(text, sizeof(text), "%s%s%s%s", node->op->name,
                 node->block != ULL_NONE ? " of " : "",
                 node->block != ULL_NONE ? graph->blocks[node->block] : "",
                 placed->again ? ", a second time" : "");
        ull__json_string(json, text);
    }
    ull__json_array_end(json);
}

static void put_stay(struct ull_json *json, const struct page *page, int64_t bytes,
                     const char *name, int begin, int end, enum ull__role role)
{
    ull__json_array(json);
    ull__json_i64(json, bytes);
    ull__json_string(json, name);
    ull__json_i64(json, begin);
    ull__json_i64(json, end);
    ull__json_i64(json, page->role_of[role]);
    ull__json_array_end(json);
}

/* Everything that is at least a two-thousandth of the peak. */
static void put_stays(struct ull_json *json, const struct page *page)
{
    const struct ull__graph *graph = page->program->graph;
    int64_t least = (int64_t)(page->layout.passing_bytes / 2000) + 1;
    ull__json_key(json, "stays");
    ull__json_array(json);
    for (int i = 0; i < page->layout.stay_count; ++i) {
        const struct ull__stay *stay = &page->layout.stays[i];
        int begin = stay->joins != ULL_NONE ? stay->begin + 1 : stay->begin;
        char name[256], shape[160];
        if (stay->buffer == ULL_NONE || page->program->buffers[stay->buffer].bytes < least) {
            continue;
        }
        const struct ull__program_buffer *buffer = &page->program->buffers[stay->buffer];
        const struct ull__tensor *tensor = &graph->tensors[buffer->tensor];
        const char *maker = tensor->node != ULL_NONE ? graph->nodes[tensor->node].op->name : "";
        int block = tensor->node != ULL_NONE ? graph->nodes[tensor->node].block : ULL_NONE;
        snprintf(name, sizeof(name), "%.60s%s%.60s %s",
                 tensor->name[0] != '\0' ? tensor->name : maker, block != ULL_NONE ? " of " : "",
                 block != ULL_NONE ? graph->blocks[block] : "",
                 ull__tensor_text(graph, buffer->tensor, shape, sizeof(shape)));
        put_stay(json, page, buffer->bytes, name, begin, stay->end, buffer->role);
    }
    for (int i = 0; i < page->program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &page->program->buffers[i];
        if (buffer->life != ULL_LIFE_PASSING && buffer->bytes >= least &&
            page->role_of[buffer->role] >= 0) {
            put_stay(json, page, buffer->bytes, graph->tensors[buffer->tensor].name, 0,
                     page->layout.count - 1, buffer->role);
        }
    }
    ull__json_array_end(json);
}

static void put_data(struct ull_json *json, struct page *page)
{
    const struct plan_options *options = page->result->options;
    int count;
    const struct ull__plan *plan =
        &ull__planner_plans(page->result->planner, &count)[page->result->chosen];
    char text[256];
    ull__json_object(json);
    ull__json_key(json, "title");
    snprintf(text, sizeof(text), "%.100s, batch %lld, %s on %s", options->model,
             (long long)options->request.batch, ull__precision_text(plan->precision),
             options->profile.name);
    ull__json_string(json, text);
    ull__json_key(json, "about");
    snprintf(text, sizeof(text), "One micro-step of %lld, of %lld samples%s",
             (long long)plan->accumulation, (long long)plan->micro_batch,
             page->result->feasible ? "." : "; it does not fit into the budget.");
    ull__json_string(json, text);
    key_i64(json, "budget", options->budget);
    key_i64(json, "outside", (int64_t)options->profile.outside_bytes);
    key_i64(json, "peak", page->layout.peak_at);
    put_times(json, "seconds", page, 0);
    put_times(json, "ends", page, 1);
    put_roles(json, page);
    put_names(json, page);
    put_stays(json, page);
    ull__json_object_end(json);
}

/* Writes text without '<', as JSON may have it in texts only. */
static void escape(FILE *out, const char *text)
{
    for (; *text != '\0'; ++text) {
        if (*text == '<') {
            fputs("\\u003c", out);
        } else {
            fputc(*text, out);
        }
    }
}

static ull_status write_page(struct page *page, const char *path, struct ull_error *err)
{
    struct ull_json json;
    char *text = NULL;
    size_t size = 0;
    ull__json_init(&json, NULL);
    json.compact = true;
    put_data(&json, page);
    bool fine = ull__json_finish(&json);
    FILE *out = fine ? open_memstream(&text, &size) : NULL;
    if (out != NULL) {
        fputs(plan_page_head, out);
        escape(out, json.text);
        fputs(plan_page_script, out);
        fine = fclose(out) == 0;
    }
    ull__json_free(&json);
    ull_status status = out == NULL || !fine
                            ? ull__fail(err, ULL_E_NO_MEMORY, "no memory for the page")
                            : ull__file_write(path, text, size, err);
    free(text);
    return status;
}

ull_status plan_write_html(const struct plan_result *result, const char *path, struct ull_error *err)
{
    struct page page = {.result = result};
    ull_status status = ull__planner_layout(result->planner, result->chosen, &page.layout, err);
    if (status != ULL_OK) {
        return status;
    }
    page.program = ull__planner_program(result->planner, result->chosen);
    page.bytes = calloc((size_t)page.layout.count + 1, ULL_ROLES * sizeof(*page.bytes));
    if (page.bytes == NULL) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for the page");
    } else {
        for (int i = 0; i < page.layout.count; ++i) {
            ull__plan_layout_bytes(result->planner, result->chosen, &page.layout, i,
                                   page.bytes + (size_t)i * ULL_ROLES);
        }
        status = write_page(&page, path, err);
    }
    free(page.bytes);
    ull__plan_layout_finish(&page.layout);
    return status;
}
