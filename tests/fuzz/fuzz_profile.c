/* fuzz_profile.c: device profiles that a user gives (apps/ullage/plan/profiles.c), and what a step costs on what is accepted. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/profiles.h"
#include "schedule.h"
#include "step.h"
#include "zoo.h"

const char *const fuzz_tokens[] = {
    "1e308", "-1", "1e-308", "0", "4503599627370496", "1e999",    "null", "true", "\"x\"",   "{",
    "}",     "[",  "]",      ",", "\"alignment\": ",  "\"name\"", ":",    "NaN",  "\\u0000", NULL};

/* The text of what is built in is not part of this. */
const char plan_device_files[] = "";

static void check_costs(const struct ull__profile *profile)
{
    static struct ull__graph *model;
    int64_t values[ULL_SYMBOLS];
    struct ull__program *program;
    struct ull__decision decision;
    struct ull__cost_of cost;
    struct ull_error err;
    if (model == NULL) {
        struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM};
        FUZZ_EXPECT(ull__zoo_build("lenet", &model, NULL) == ULL_OK);
        FUZZ_EXPECT(ull__step_build(model, &options, NULL) == ULL_OK);
    }
    ull__graph_values(model, 4, values);
    ull_status status = ull__program_create(model, values, profile, &program, &err);
    FUZZ_EXPECT(status == ULL_OK);
    struct ull__scheduler *scheduler = ull__scheduler_create(program, profile);
    FUZZ_EXPECT(scheduler != NULL && ull__decision_create(program, &decision));
    ull__schedule(scheduler, &decision, &cost);
    FUZZ_EXPECT(isfinite(cost.micro_seconds) && cost.micro_seconds > 0);
    FUZZ_EXPECT(isfinite(cost.update_seconds) && cost.update_seconds > 0);
    FUZZ_EXPECT(cost.peak_bytes > 0 && cost.peak_bytes < INT64_MAX / 2);
    ull__decision_finish(&decision);
    ull__scheduler_destroy(scheduler);
    ull__program_destroy(program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__profile profile, before;
    struct ull_error error = {.message = ""};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    memset(&profile, 0x5a, sizeof profile);
    before = profile;
    ull_status status = plan_profile_read(text, "a file", &profile, &error);
    FUZZ_EXPECT(status == ULL_OK || status == ULL_E_INVALID);
    if (status == ULL_OK) {
        FUZZ_EXPECT(profile.name[0] != 0 && memchr(profile.name, 0, sizeof profile.name) != NULL);
        FUZZ_EXPECT((profile.alignment & (profile.alignment - 1)) == 0);
        check_costs(&profile);
    } else {
        FUZZ_EXPECT(strstr(error.message, "a file") != NULL);
        FUZZ_EXPECT(memcmp(&before, &profile, sizeof before) == 0);
    }
    free(text);
    return 0;
}
