/*
 * golden.h: what PyTorch computed of small models, from tests/data/golden (tools/make_golden.py), and the parameters and
 * inputs that it computed with: they follow from names.
 *
 * Lists of numbers by name: "logits", "loss", "gradient/<parameter>", and for "sgd", "adam", "adamw": "sgd/losses" of ten steps
 * and then "sgd/<parameter or state>": its norm and its sum.
 */
#ifndef ULLAGE_TEST_REFERENCE_GOLDEN_H
#define ULLAGE_TEST_REFERENCE_GOLDEN_H

#include "reference.h"
#include "step.h"

struct golden {
    char model[160]; /* for ull__zoo_build */
    int64_t batch;
    struct golden_list {
        char name[96];
        int64_t count;
        double *values;
    } * lists;
    int count;
};

/* A file that is not there, or is none, ends the program with a message. */
struct golden *golden_open(const char *folder, const char *name);
void golden_close(struct golden *golden);
/* NULL: no such list. The name is `prefix` and `name`. */
const struct golden_list *golden_find(const struct golden *golden, const char *prefix,
                                      const char *name);

void golden_parameter(const char *name, int rank, const int64_t *dims, double *to);
/* classes: how many there are of targets and ids. */
void golden_input(const char *name, int64_t classes, int64_t count, double *to);

/* The three optimizers, "sgd", "adam" and "adamw", and how fast they learn. */
enum { GOLDEN_OPTIMIZERS = 3, GOLDEN_STEPS = 10 };
const char *golden_optimizer(int i, struct ull__step_options *options, double *rate);

#endif
