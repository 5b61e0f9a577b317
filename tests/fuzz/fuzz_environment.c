/*
 * fuzz_environment.c: the variables of the environment that a configuration reads (src/policy/config_env.c).
 * An input is ULLAGE_CONFIG, ULLAGE_MEMORY, ULLAGE_GROWTH and TF_FORCE_GPU_ALLOW_GROWTH, each ended by |, a
 * missing one not set. What is accepted is exported, read again, and must come to the same plan.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ullage/config.h"

#define GIB ((uint64_t)1 << 30)

const char *const fuzz_tokens[] = {
    "1",        ";",         ";visible=",  ";system=",  "GPU-aaaaaaaa", "GPU-bb", "#2",
    ":growth=", ":share=",   ":mixed=",    ":logical=", ":default=",    "/0/on",  "/0/unset",
    "+",        ",",         "=",          "|",         "true",         "false",  "50%",
    "2GiB",     "800000000", "1073741824", NULL};

static const struct ull_card cards[] = {
    {"GPU-aaaaaaaa", "a", 140 * GIB, 139 * GIB, 9, 0},
    {"GPU-bbbbbbbb", "b", 40 * GIB, 39 * GIB, 8, 0},
    {"", "no UUID", 16 * GIB, 15 * GIB, 6, 0},
};

static void check_plan(const struct ull_plan *plan)
{
    FUZZ_EXPECT(plan->count >= 0 && plan->count <= ULL_LOGICAL);
    for (int i = 0; i < plan->count; i++) {
        const struct ull_plan_device *d = &plan->device[i];
        FUZZ_EXPECT(d->card >= 0 && d->card < 3 && d->source);
        FUZZ_EXPECT(d->limit > 0 && d->start <= d->limit && d->limit <= cards[d->card].total_bytes);
        FUZZ_EXPECT(d->growth || d->start > 0);
    }
}

static void check_failed(ull_status status, const struct ull_error *error)
{
    FUZZ_EXPECT(status == ULL_E_INVALID || status == ULL_E_NO_DEVICE || status == ULL_E_NO_MEMORY);
    FUZZ_EXPECT(memchr(error->message, 0, sizeof error->message) != NULL && error->message[0]);
}

static void check_export(struct ull_config *config, const struct ull_environment *environment,
                         const struct ull_plan *plan)
{
    static struct ull_plan again;
    char text[ULL_CONFIG_TEXT];
    struct ull_error error = {.message = ""};
    FUZZ_EXPECT(ull_config_export(config, environment, text, sizeof text, &error) == ULL_OK);
    struct ull_environment child = {.config = text, .force_growth = environment->force_growth};
    FUZZ_EXPECT(ull_config_plan(config, &child, &again, &error) == ULL_OK);
    FUZZ_EXPECT(again.count == plan->count);
    for (int i = 0; i < plan->count; i++)
        FUZZ_EXPECT(again.device[i].card == plan->device[i].card &&
                    again.device[i].limit == plan->device[i].limit &&
                    again.device[i].start == plan->device[i].start &&
                    again.device[i].growth == plan->device[i].growth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ull_plan plan;
    struct ull_environment environment = {NULL, NULL, NULL, NULL};
    const char **fields[] = {&environment.config, &environment.memory, &environment.growth,
                             &environment.force_growth};
    struct ull_config *config = NULL;
    struct ull_error error = {.message = ""};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    char *at = text;
    for (int i = 0; i < 4 && at; i++) {
        const char *field = strsep(&at, "|");
        *fields[i] = *field ? field : NULL;
    }
    FUZZ_EXPECT(ull_config_create(cards, 3, &config, NULL) == ULL_OK);
    ull_status status = ull_config_plan(config, &environment, &plan, &error);
    if (status == ULL_OK) {
        check_plan(&plan);
        check_export(config, &environment, &plan);
    } else {
        check_failed(status, &error);
    }
    ull_config_destroy(config);
    free(text);
    return 0;
}
