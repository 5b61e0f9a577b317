/*
 * test_conformance.c: ONNX's own test models. What is supported has outputs of the shapes, types and values that its files
 * say, computed by tests/reference; and what docs/onnx.md lists as supported still is.
 *
 *   test_onnx_conformance --list     prints the two lists as docs/onnx.md has them
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"
#include "ops.h"
#include "reference.h"
#include "suite.h"

/* Files of this version have bf16 as whole numbers. */
static enum ull__type stored_type(enum ull__type type, enum ull__type said)
{
    return type == ULL_TYPE_BF16 && said == ULL_TYPE_U16 ? type : said;
}

/* Whether an output has the values of a file, by the tolerances of ONNX's own runner. */
static bool values_equal(struct ref *ref, int tensor, enum ull__type type,
                         const struct ull__onnx_tensor *wanted)
{
    int64_t count = ref_count(ref, tensor);
    double *values = calloc((size_t)count + 1, sizeof(*values));
    const double *are = ref_data(ref, tensor);
    bool same = values != NULL;
    if (same) {
        ref_decode(stored_type(type, wanted->type), wanted->data, values, count);
    }
    /* bf16 is cut off in the files, and rounded here. */
    double off = type == ULL_TYPE_BF16 ? 8e-3 : 1e-3;
    for (int64_t i = 0; same && i < count; ++i) {
        bool both = isnan(are[i]) && isnan(values[i]);
        same =
            both || are[i] == values[i] || fabs(are[i] - values[i]) <= off * fabs(values[i]) + 1e-5;
    }
    free(values);
    return same;
}

/* Runs the graph on the inputs of the case. */
static struct ref *run(const struct suite_case *c, const struct ull__graph *g, unsigned given)
{
    int64_t sizes[ULL_SYMBOLS];
    ull__graph_values(g, 1, sizes);
    struct ref *ref = ref_create(g, sizes);
    ref_fill(ref, 1);
    ref_round(ref, true);
    for (int i = 0; i < c->input_count; ++i) {
        for (int j = 0; j < g->tensor_count && (given >> i & 1) == 0; ++j) {
            if (g->tensors[j].role == ULL_ROLE_INPUT &&
                strcmp(g->tensors[j].name, c->inputs[i].name) == 0) {
                int64_t count = ref_count(ref, j);
                int64_t there = (int64_t)c->inputs[i].bytes * 8 / ull__type_bits(c->inputs[i].type);
                /* What CastLike takes the type of has another shape in some files. */
                ref_decode(stored_type(g->tensors[j].type, c->inputs[i].type), c->inputs[i].data,
                           ref_data(ref, j), there < count ? there : count);
            }
        }
    }
    ref_run(ref, ULL_PHASE_MICRO);
    return ref;
}

/* What is wrong with an output; NULL: nothing. */
static const char *difference(const struct ull__graph *g, int tensor,
                              const struct ull__onnx_tensor *wanted)
{
    static char text[300];
    const struct ull__tensor *is = &g->tensors[tensor];
    char shape[128];
    /* Files of this version have bf16 as whole numbers. */
    bool type =
        is->type == wanted->type || (is->type == ULL_TYPE_BF16 && wanted->type == ULL_TYPE_U16);
    bool same = is->rank == wanted->rank && type;
    for (int i = 0; same && i < is->rank; ++i) {
        same = is->dims[i] == wanted->dims[i];
    }
    if (!same) {
        int at = snprintf(text, sizeof(text), "%s where %s[",
                          ull__tensor_text(g, tensor, shape, sizeof(shape)),
                          ull__type_text(wanted->type));
        for (int i = 0; i < wanted->rank; ++i) {
            at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%lld", i > 0 ? ", " : "",
                           (long long)wanted->dims[i]);
        }
        snprintf(text + at, sizeof(text) - (size_t)at, "] is expected");
        return text;
    }
    return NULL;
}

/* What is random, and the variance that batch norm keeps, which is unbiased here, as PyTorch's. */
static bool is_exempt(const char *name, int output)
{
    return strncmp(name, "node/test_training_dropout", 26) == 0 ||
           (strncmp(name, "node/test_batchnorm", 19) == 0 && strstr(name, "training") != NULL &&
            output == 2);
}

enum verdict { SUPPORTED, UNSUPPORTED, WRONG };

static enum verdict judge(const char *name, char *why, size_t size)
{
    struct suite_case c;
    struct suite_result result;
    enum verdict verdict = SUPPORTED;
    if (!suite_load(ONNX_TESTS, name, &c)) {
        snprintf(why, size, "it is not there");
        return WRONG;
    }
    suite_read(&c, &result);
    if (result.graph == NULL) {
        const char *reason = strstr(result.why.message, ".onnx': ");
        snprintf(why, size, "%s", reason != NULL ? reason + 8 : result.why.message);
        verdict = UNSUPPORTED;
    } else if (result.graph->output_count != c.output_count) {
        snprintf(why, size, "%d outputs where %d are expected", result.graph->output_count,
                 c.output_count);
        verdict = WRONG;
    }
    struct ref *ref = verdict == SUPPORTED ? run(&c, result.graph, result.given) : NULL;
    for (int i = 0; verdict == SUPPORTED && i < c.output_count; ++i) {
        const char *wrong = difference(result.graph, result.graph->outputs[i], &c.outputs[i]);
        int output = result.graph->outputs[i];
        if (wrong == NULL && !is_exempt(name, i) &&
            !values_equal(ref, output, result.graph->tensors[output].type, &c.outputs[i])) {
            wrong = "other values";
        }
        if (wrong != NULL) {
            snprintf(why, size, "output %d: %s", i, wrong);
            verdict = WRONG;
        }
    }
    if (ref != NULL) {
        ref_destroy(ref);
    }
    ull__graph_destroy(result.graph);
    suite_finish(&c);
    return verdict;
}

/* --- Lists --- */

static void print_list(char **names, const char *part, enum verdict wanted)
{
    int column = 0;
    size_t length = strlen(part);
    for (int i = 0; names[i] != NULL; ++i) {
        char why[600];
        if (strncmp(names[i], part, length) != 0 || judge(names[i], why, sizeof(why)) != wanted) {
            continue;
        }
        const char *name = names[i] + length + 1;
        name += strncmp(name, "test_", 5) == 0 ? 5 : 0;
        if (column == 0) {
            printf("- %s: ", part);
        } else if (column + (int)strlen(name) > 120) {
            printf("\n  ");
            column = 0;
        }
        column += printf("%s ", name);
    }
    printf(column > 0 ? "\n" : "");
}

static void print_lists(void)
{
    static const char *const parts[] = {"node", "pytorch-converted", "pytorch-operator", "simple"};
    static const char *const titles[] = {"supported", "not supported"};
    char **names = suite_names(ONNX_TESTS);
    printf("<!-- operators -->\n");
    for (int i = 0, column = 0; ull__onnx_operator(i) != NULL; ++i) {
        column = column > 110 ? 0 : column;
        column += printf("%s%s", i == 0 ? "" : column == 0 ? "\n" : " ", ull__onnx_operator(i));
    }
    printf("\n<!-- end -->\n\n");
    for (int i = 0; i < 2; ++i) {
        int count = 0;
        for (int j = 0; names[j] != NULL; ++j) {
            char why[600];
            count += judge(names[j], why, sizeof(why)) == (i == 0 ? SUPPORTED : UNSUPPORTED);
        }
        printf("<!-- %s -->\n%d are %s:\n\n", titles[i], count, titles[i]);
        for (int j = 0; j < 4; ++j) {
            print_list(names, parts[j], i == 0 ? SUPPORTED : UNSUPPORTED);
        }
        printf("<!-- end -->\n\n");
    }
    for (int j = 0; names[j] != NULL; ++j) {
        char why[600];
        enum verdict verdict = judge(names[j], why, sizeof(why));
        if (verdict != SUPPORTED) {
            fprintf(stderr, "%s %s: %s\n", verdict == WRONG ? "WRONG" : "no", names[j], why);
        }
        free(names[j]);
    }
    free(names);
}

/* --- Tests --- */

static void test_all(void **state)
{
    char **names = suite_names(ONNX_TESTS);
    int supported = 0, wrong = 0;
    (void)state;
    assert_non_null(names);
    for (int i = 0; names[i] != NULL; ++i) {
        char why[600];
        enum verdict verdict = judge(names[i], why, sizeof(why));
        supported += verdict == SUPPORTED;
        wrong += verdict == WRONG;
        if (verdict == WRONG) {
            print_message("%s: %s\n", names[i], why);
        }
        free(names[i]);
    }
    free(names);
    assert_int_equal(wrong, 0);
    print_message("%d are supported\n", supported);
    assert_true(supported > 100);
}

/* The list of docs/onnx.md behind a mark, cut off at its end. *all is the caller's to free. */
static char *list_of(const char *mark, char **all)
{
    size_t size;
    struct ull_error err;
    if (ull__file_read(DOCUMENT, 1 << 20, all, &size, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    char *begin = strstr(*all, mark);
    char *end = begin != NULL ? strstr(begin, "<!-- end -->") : NULL;
    assert_non_null(end);
    *end = '\0';
    return begin + strlen(mark);
}

static void test_operators(void **state)
{
    char *text, *rest = NULL;
    int count = 0;
    (void)state;
    char *list = list_of("<!-- operators -->", &text);
    for (char *word = strtok_r(list, " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest)) {
        const char *is = ull__onnx_operator(count++);
        assert_non_null(is);
        assert_string_equal(word, is);
    }
    assert_null(ull__onnx_operator(count));
    free(text);
}

/* Each word of the list, with the part of its line in front. */
static void test_documented(void **state)
{
    char *text, part[40] = "", *rest = NULL;
    int count = 0;
    (void)state;
    char *begin = list_of("<!-- supported -->", &text);
    int said = atoi(begin);
    begin = strstr(begin, "- ");
    assert_non_null(begin);
    for (char *word = strtok_r(begin, " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest)) {
        size_t length = strlen(word);
        char name[300], why[600];
        if (strcmp(word, "-") == 0) {
            continue;
        }
        if (word[length - 1] == ':') {
            snprintf(part, sizeof(part), "%.*s", (int)length - 1, word);
            continue;
        }
        snprintf(name, sizeof(name), "%s/%s%s", part, "test_", word);
        if (judge(name, why, sizeof(why)) != SUPPORTED) {
            fail_msg("%s was supported: %s", name, why);
        }
        count += 1;
    }
    free(text);
    assert_int_equal(count, said);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        print_lists();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
