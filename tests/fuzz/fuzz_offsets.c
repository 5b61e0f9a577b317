/*
 * fuzz_offsets.c: buffers as text (src/plan/offsets_csv.c). What is accepted is placed, by heuristics and by a short
 * search, and the checker looks at both plans.
 */
#include "fuzz.h"

#include <string.h>

#include "offsets.h"
#include "offsets_csv.h"

const char *const fuzz_tokens[] = {"id,lower,upper,size\n",
                                   "id,lower,upper,size,alignment,offset\n",
                                   "alignment",
                                   "offset",
                                   ",",
                                   "\n",
                                   "\r\n",
                                   ",0,4,",
                                   ",-3,9,",
                                   "4611686018427387903",
                                   "9223372036854775807",
                                   "256",
                                   NULL};

static void place(const struct ull__offsets_csv *csv, uint64_t nodes)
{
    struct ull__offsets_problem problem = {
        .buffers = csv->buffers, .count = csv->count, .capacity = ULL__OFFSETS_LOWEST};
    struct ull__offsets_effort effort = {.nodes = nodes};
    struct ull_error error = {.message = ""};
    struct ull__offsets plan;
    uint64_t height = 0;
    ull_status status = ull__offsets_solve(&problem, &effort, &error, &plan);
    if (status != ULL_OK) {
        /* The one thing that the parser does not know. */
        FUZZ_EXPECT(status == ULL_E_INVALID && strstr(error.message, "pinned to offsets"));
        return;
    }
    FUZZ_EXPECT(ull__offsets_check(&problem, plan.offsets, &error, &height) == ULL_OK);
    FUZZ_EXPECT(height == plan.height && plan.lower_bound <= height);
    ull__offsets_finish(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__offsets_csv csv = {.count = 77};
    struct ull_error error = {.message = ""};
    ull_status status = ull__offsets_csv_parse((const char *)data, size, &error, &csv);
    if (status == ULL_OK) {
        place(&csv, 0);
        place(&csv, 200);
        ull__offsets_csv_finish(&csv);
    } else {
        FUZZ_EXPECT(status == ULL_E_FORMAT && csv.count == 77);
        FUZZ_EXPECT(memchr(error.message, 0, sizeof error.message) != NULL && error.message[0]);
    }
    return 0;
}
