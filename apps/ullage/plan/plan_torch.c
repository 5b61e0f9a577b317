/*
 * plan_torch.c: `--like torch`: what PyTorch would need for the same model and batch, by technique.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_keys.h"
#include "eager.h"
#include "error.h"
#include "plan_cmd.h"
#include "size.h"

static const char default_modes[] =
    "fp32,fp32+ckpt,fp32+ga2,fp32+ga4,fp32+ga8,amp,amp+ckpt,amp+ga2,amp+ga4,"
    "amp+ga8,amp-fp16,amp-fp16+ckpt,amp-fp16+ga2,amp-fp16+ga4,amp-fp16+ga8";

/* "amp+ga8+ckpt". False: not a mode. */
static bool parse_mode(const char *text, size_t length, struct ull__eager_mode *mode)
{
    char copy[40];
    if (length == 0 || length >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    mode->amp = mode->checkpoint = false;
    mode->accumulation = 1;
    char *rest = NULL;
    const char *part = strtok_r(copy, "+", &rest);
    if (part == NULL ||
        (strcmp(part, "fp32") != 0 && strcmp(part, "amp") != 0 && strcmp(part, "amp-fp16") != 0)) {
        return false;
    }
    mode->amp = part[0] == 'a';
    while ((part = strtok_r(NULL, "+", &rest)) != NULL) {
        char *end;
        if (strcmp(part, "ckpt") == 0 && !mode->checkpoint) {
            mode->checkpoint = true;
        } else if (strncmp(part, "ga", 2) == 0 && part[2] >= '1' && part[2] <= '9' &&
                   mode->accumulation == 1) {
            mode->accumulation = strtol(part + 2, &end, 10);
            if (*end != '\0' || mode->accumulation > 1 << 20) {
                return false;
            }
        } else {
            return false;
        }
    }
    return true;
}

static const char *modes_of(const char *like)
{
    return strncmp(like, "torch:", 6) == 0 ? like + 6 : default_modes;
}

bool plan_like_valid(const char *like, char *bad, size_t size)
{
    struct ull__eager_mode mode = {0};
    if (strcmp(like, "torch") != 0 && strncmp(like, "torch:", 6) != 0) {
        snprintf(bad, size, "%s", like);
        return false;
    }
    for (const char *at = modes_of(like);;) {
        size_t length = strcspn(at, ",");
        if (!parse_mode(at, length, &mode)) {
            snprintf(bad, size, "%.*s", (int)length, at);
            return false;
        }
        if (at[length] == '\0') {
            return true;
        }
        at += length + 1;
    }
}

/* The peak of one mode; -1: the batch is not made of so many parts, or there is no memory. */
static int64_t peak_of(const struct plan_result *result, const char *text, size_t length)
{
    const struct plan_options *options = result->options;
    struct ull__eager_mode mode = {.optimizer = options->request.optimizer,
                                   .momentum = options->request.attrs.momentum > 0};
    int64_t values[ULL_SYMBOLS], peak = -1, batch = options->request.batch;
    if (!parse_mode(text, length, &mode) || mode.accumulation > batch) {
        return -1;
    }
    ull__graph_values(result->model, (batch + mode.accumulation - 1) / mode.accumulation, values);
    return ull__eager_peak(result->model, values, &mode, &peak, NULL) == ULL_OK ? peak : -1;
}

void plan_put_torch(struct ull_json *json, const struct plan_result *result)
{
    ull__json_key(json, "torch");
    ull__json_array(json);
    for (const char *at = modes_of(result->options->like); at[0] != '\0';) {
        size_t length = strcspn(at, ",");
        int64_t peak = peak_of(result, at, length);
        ull__json_object(json);
        ull__json_key(json, "mode");
        ull__json_bytes(json, at, length);
        key_maybe(json, "peak_bytes", peak >= 0, (uint64_t)peak);
        ull__json_object_end(json);
        at += length + (at[length] == ',');
    }
    ull__json_array_end(json);
}

void plan_print_torch(const struct plan_result *result)
{
    printf("\n  %-20s %12s\n", "PyTorch, eager", "peak");
    for (const char *at = modes_of(result->options->like); at[0] != '\0';) {
        size_t length = strcspn(at, ",");
        int64_t peak = peak_of(result, at, length);
        char size[ULL_SIZE_TEXT];
        printf("  %-20.*s %12s\n", (int)length, at,
               peak >= 0 ? ull__size_text((uint64_t)peak, size) : "-");
        at += length + (at[length] == ',');
    }
}
