/*
 * test_gradients.c: every operator's gradient rule against finite differences in f64, on random cases.
 *
 * ULLAGE_TEST_CASES says how many of each operator (20), ULLAGE_TEST_SEED where they begin (1).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cases.h"

enum { ELEMENTS = 24 }; /* looked at in each input */

static const double STEP = 1e-5, TOLERANCE = 2e-6;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static double loss_of(const struct cases *c, struct ref *ref)
{
    double loss = 0;
    for (int i = 0; i < c->forward; ++i) {
        ref_node(ref, i);
    }
    for (int i = 0; i < c->graph->loss_count; ++i) {
        loss += c->graph->loss_weights[i] * ref_data(ref, c->graph->losses[i])[0];
    }
    return loss;
}

static void compare(const struct cases *c, struct ref *ref, int input, int64_t at, double analytic,
                    const char *what)
{
    double *data = ref_data(ref, input) + at, before = *data;
    *data = before + STEP;
    double above = loss_of(c, ref);
    *data = before - STEP;
    double below = loss_of(c, ref);
    *data = before;
    double numeric = (above - below) / (2 * STEP);
    if (!(fabs(numeric - analytic) <= TOLERANCE * (1 + fabs(numeric) + fabs(above)))) {
        cases_print(c);
        fail_msg("%s: element %lld of tensor %d: %.12g by its rule, %.12g by differences", what,
                 (long long)at, input, analytic, numeric);
    }
}

static void check_case(struct cases *c, const char *what)
{
    cases_lose(c);
    if (!ull__graph_ok(c->graph)) {
        cases_print(c);
        fail_msg("%s: %s", what, c->graph->error.message);
    }
    struct ull_error err = {{0}};
    if (ull__graph_check(c->graph, c->values, &err) != ULL_OK) {
        cases_print(c);
        fail_msg("%s: %s", what, err.message);
    }
    struct ref *ref = ref_create(c->graph, c->values);
    cases_fill(c, ref);
    ref_run(ref, ULL_PHASE_MICRO);
    for (int i = 0; i < c->fill_count; ++i) {
        int input = c->fills[i].tensor;
        if (c->graph->tensors[input].role != ULL_ROLE_PARAMETER) {
            continue;
        }
        int gradient = c->gradient[input];
        int64_t count = ref_count(ref, input);
        if (gradient != ULL_NONE) {
            assert_int_equal(ref_count(ref, gradient), count);
            assert_int_equal(c->graph->tensors[gradient].type, c->graph->tensors[input].type);
        }
        int64_t apart = count / ELEMENTS + 1;
        for (int64_t at = 0; at < count; at += apart) {
            compare(c, ref, input, at, gradient != ULL_NONE ? ref_data(ref, gradient)[at] : 0, what);
        }
    }
    ref_destroy(ref);
}

/* Operators of what a step does with gradients, and of integers, have no rule; each other has one and is checked. */
static void rules_are_slopes(void **state)
{
    uint64_t cases = number("ULLAGE_TEST_CASES", 20), first = number("ULLAGE_TEST_SEED", 1);
    (void)state;
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        const struct ull__op *op = ull__ops[i];
        uint64_t checked = 0;
        if ((op->flags & ULL_OP_COLLECTIVE) != 0) {
            continue; /* of several devices: test_world.c */
        }
        for (uint64_t seed = first; op->gradient != NULL && seed < first + cases; ++seed) {
            struct cases c;
            if (!cases_create(&c, op, seed, seed % 4 == 3 ? ULL_TYPE_BF16 : ULL_TYPE_F32, false)) {
                fail_msg("%s has a gradient rule and no cases", op->name);
            }
            if (c.has_gradient) {
                char what[64];
                snprintf(what, sizeof(what), "%s, seed %llu", op->name, (unsigned long long)seed);
                check_case(&c, what);
                checked += 1;
            }
            cases_finish(&c);
        }
        assert_true(op->gradient == NULL || checked > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_are_slopes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
