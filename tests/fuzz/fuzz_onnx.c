/*
 * fuzz_onnx.c: models of ONNX (src/onnx). What is accepted is a graph with sizes for every batch, from which a training
 * step can be made, or not, with a reason.
 */
#include "fuzz.h"

#include <string.h>

#include "onnx.h"
#include "step.h"

/* Of the messages: lengths that are too large, numbers, names of operators as long as those they replace. */
const char *const fuzz_tokens[] = {"\xff\xff\xff\xff\x0f",
                                   "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                                   "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                   "\x0a",
                                   "\x12",
                                   "\x1a",
                                   "\x08",
                                   "\x10",
                                   "Concat",
                                   "Reshape",
                                   "Expand",
                                   "MatMul",
                                   "Gather",
                                   "Shape",
                                   "Slice",
                                   "Split",
                                   "Where",
                                   "Range",
                                   "Squeeze",
                                   "Unsqueeze",
                                   "ConstantOfShape",
                                   "Transpose",
                                   "Identity",
                                   "batch",
                                   NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ull__onnx_size sizes[] = {{"h", 5}, {"w", 7}};
    for (int open = 0; open < 2; ++open) {
        struct ull__onnx_options options = {
            .label = "fuzz", .values = open == 0, .sizes = sizes, .size_count = 2 * open};
        struct ull__graph *graph = NULL;
        struct ull_error error = {.message = ""};
        ull_status status = ull__onnx_parse(data, size, &options, &graph, &error);
        if (status != ULL_OK) {
            FUZZ_EXPECT(graph == NULL && error.message[0] != '\0');
            FUZZ_EXPECT(memchr(error.message, 0, sizeof error.message) != NULL);
            continue;
        }
        int64_t values[ULL_SYMBOLS];
        ull__graph_values(graph, 64, values);
        FUZZ_EXPECT(ull__graph_check(graph, values, &error) == ULL_OK);
        struct ull__step_options step = {.optimizer = ULL_OPTIMIZER_ADAMW};
        if (ull__step_build(graph, &step, &error) == ULL_OK) {
            ull__graph_values(graph, 3, values);
            ull__graph_check(graph, values, &error);
        } else {
            FUZZ_EXPECT(error.message[0] != '\0');
        }
        ull__graph_destroy(graph);
    }
    return 0;
}
