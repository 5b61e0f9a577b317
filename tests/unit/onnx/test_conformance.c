/*
 * test_conformance.c: ONNX's own test models. What is supported has outputs of the shapes and types that its files
 * say, and of the values too where everything is known; and what docs/onnx.md lists as supported still is.
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
#include "suite.h"

/* An element of a constant of the graph or of a file. */
static double element(enum ull__type type, const void *data, size_t i)
{
    switch (type) {
    case ULL_TYPE_F32:
        return (double)((const float *)data)[i];
    case ULL_TYPE_F64:
        return ((const double *)data)[i];
    case ULL_TYPE_I64:
        return (double)((const int64_t *)data)[i];
    case ULL_TYPE_I32:
        return (double)((const int32_t *)data)[i];
    case ULL_TYPE_BOOL:
    case ULL_TYPE_U8:
        return (double)((const uint8_t *)data)[i];
    default:
        return 0; /* compared by bytes */
    }
}

static bool values_equal(const struct ull__tensor *is, const struct ull__onnx_tensor *wanted)
{
    size_t width = (size_t)(ull__type_bits(wanted->type) / 8);
    if (is->data_bytes != wanted->bytes) {
        return false;
    }
    if (memcmp(is->data, wanted->data, wanted->bytes) == 0) {
        return true;
    }
    for (size_t i = 0; i < wanted->bytes / width; ++i) {
        double a = element(wanted->type, is->data, i), b = element(wanted->type, wanted->data, i);
        /* As ONNX's own runner; its windows were made with a pi of five digits. */
        if (fabs(a - b) > 1e-3 * fabs(b) + 1e-6 || (isnan(a) != 0) != (isnan(b) != 0)) {
            return false;
        }
    }
    return true;
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
    if (is->role == ULL_ROLE_CONSTANT && is->data != NULL && !values_equal(is, wanted)) {
        return "other values";
    }
    return NULL;
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
    for (int i = 0; verdict == SUPPORTED && i < c.output_count; ++i) {
        const char *wrong = difference(result.graph, result.graph->outputs[i], &c.outputs[i]);
        if (wrong != NULL) {
            snprintf(why, size, "output %d: %s", i, wrong);
            verdict = WRONG;
        }
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

/* Each word of the first list, with the part of its line in front. */
static void test_documented(void **state)
{
    char *text, part[40] = "";
    size_t size;
    struct ull_error err;
    int count = 0, said = 0;
    (void)state;
    assert_int_equal(ull__file_read(DOCUMENT, 1 << 20, &text, &size, &err), ULL_OK);
    char *begin = strstr(text, "<!-- supported -->"), *end, *rest = NULL;
    assert_non_null(begin);
    end = strstr(begin, "<!-- end -->");
    assert_non_null(end);
    *end = '\0';
    begin += strlen("<!-- supported -->");
    said = atoi(begin);
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
        cmocka_unit_test(test_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
