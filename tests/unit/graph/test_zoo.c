/* test_zoo.c: models have the published numbers of parameters, and names and arguments are read strictly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "zoo.h"

static void check_model(const char *text, int64_t parameters)
{
    struct ull__graph *graph;
    struct ull_error err = {{0}};
    if (ull__zoo_build(text, &graph, &err) != ULL_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 3, values);
    if (ull__graph_check(graph, values, &err) != ULL_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    if (parameters >= 0 && ull__graph_parameters(graph) != parameters) {
        fail_msg("%s has %lld parameters: expected %lld", text,
                 (long long)ull__graph_parameters(graph), (long long)parameters);
    }
    assert_int_equal(graph->loss_count, 1);
    ull__graph_destroy(graph);
}

static void published_numbers_of_parameters(void **state)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } models[] = {
        {"lenet", 61706},
        {"lenet:image=28", 61706},
        {"resnet20", 269722},
        {"resnet18", 11689512},
        {"resnet34", 21797672},
        {"resnet50", 25557032},
        {"resnet50:image=2160x3840", 25557032},
        {"resnet50:image=225x223", 25557032},
        {"vit-b16", 86567656},
        {"unet", 31037698},
        {"bert-base", 109482240},
        {"bert-base:context=128", 109482240},
        {"gpt2-124m", 124439808},
        {"gpt2-355m", 354823168},
        {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200},
        /* 50,304 rows of embeddings are 47 more of 768. */
        {"gpt2-124m:context=1024,vocab=50304", 124439808 + 47 * 768},
        {"mlp", 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10},
        {"gpt-char", -1},
        {"gpt-char:dropout=0.1", -1},
        {"llama", -1},
        {"resnet18:stem=3,image=28,channels=1,classes=10", -1},
        {"unet:image=100x61", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        check_model(models[i].name, models[i].parameters);
    }
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        check_model(ull__zoo[i].name, -1);
    }
}

static void refused(const char *text, const char *part)
{
    struct ull__graph *graph = NULL;
    struct ull_error err = {{0}};
    if (ull__zoo_build(text, &graph, &err) != ULL_E_INVALID) {
        fail_msg("'%s' was not refused", text);
    }
    assert_null(graph);
    if (strstr(err.message, part) == NULL) {
        fail_msg("'%s': '%s' does not say '%s'", text, err.message, part);
    }
}

static void bad_names_and_arguments(void **state)
{
    (void)state;
    refused("resnet51", "did you mean resnet50");
    refused("gpt2", "gpt2-124m");
    refused("", "or mlp, lenet");
    refused("./some.onnx", "a file of ONNX");
    refused("xyzzyplugh", "resnet18, ");
    refused("resnet50:size=3", "no argument 'size=3'");
    refused("resnet50:image", "no argument 'image'");
    refused("resnet50:image=", "image=");
    refused("resnet50:image=0", "image=0");
    refused("resnet50:image=224x", "image=224x");
    refused("resnet50:image=3x4x5", "expected a size");
    refused("resnet50:image=224,image=224", "twice");
    refused("resnet50:stem=5", "stem=5");
    refused("resnet50:image=99999999999", "image=99999999999");
    refused("gpt2-124m:context=-1", "context=-1");
    refused("gpt2-124m:heads=7", "equal heads");
    refused("gpt2-124m:heads=0", "heads");
    refused("gpt-char:dropout=1", "dropout=1");
    refused("llama:heads=0", "equal heads");
    refused("unet:image=3", "smaller");
    refused("vit-b16:image=225", "patches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_numbers_of_parameters),
        cmocka_unit_test(bad_names_and_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
