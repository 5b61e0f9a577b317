/* trainee.h: small trainings for tests: a model, samples that follow from their number, and everything that was computed. */
#ifndef TEST_TRAINEE_H
#define TEST_TRAINEE_H

#include "cpu.h"
#include "session.h"

struct trainee {
    struct ull__graph *graph;
    struct ull__backend *cpu;
    struct ull__session *session;
    struct ull__source source;
    int64_t elements, targets, classes, first;
    bool tokens;
};

/* A profile with rates that make plans differ, nothing outside. */
extern const struct ull__profile trainee_profile;

/* options.model, backend and profile are filled in; backend NULL: one of two threads. Fails the test if there is no plan. */
struct trainee *trainee_create(const char *model, struct ull__session_options options);
void trainee_destroy(struct trainee *trainee);
double trainee_step(struct trainee *trainee, double rate);
/* Whether all weights and state are the same, bit for bit. */
bool trainee_same(struct trainee *a, struct trainee *b);
/* Largest difference of any weight, relative to the largest weight of its tensor. */
double trainee_difference(struct trainee *a, struct trainee *b);

#endif
