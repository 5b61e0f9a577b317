/*
 * trend.h: does a series of low-water marks rise, and does it go on rising?
 *
 * The marks are of equal pieces of a program's life: its periods, or windows. Three things are asked:
 *
 * 1. Is there a rise at all? Mann-Kendall's rank test on the lowest marks of groups, at several sizes of group, from
 *    fine (short records) to coarse (a sawtooth that is longer than a period). Only ranks count, so noise of any
 *    distribution and single outliers do not matter. The slope is Theil and Sen's median of all pairs.
 * 2. Does it last? What is never fallen below again, the lowest of all marks from there on, only grows; when
 *    it grew, and by how much, is a process of events. A constant rate has them evenly over the record; Laplace's
 *    test tells whether they came mostly early. Single large steps, as of a start, do not count more than others.
 * 3. Do the marks come and go in cycles of which too few were seen?
 *
 * The first tenth is taken as the start of the program and judged only in question 2.
 */
#ifndef ULLAGE_TREND_H
#define ULLAGE_TREND_H

#include <stdbool.h>
#include <stddef.h>

enum ull__trend_kind {
    ULL_TREND_SHORT,    /* too few marks, or too few cycles of them */
    ULL_TREND_FLAT,     /* no rise */
    ULL_TREND_LEVELLED, /* a rise that has ended or slows down */
    ULL_TREND_RISING,   /* a rise that goes on */
    ULL_TREND_UNSURE,   /* a rise in so few steps that nothing can be said of the next */
};

enum { ULL_TREND_LEAST = 10 /* marks */, ULL_TREND_CYCLES = 6 };

struct ull__trend {
    enum ull__trend_kind kind;
    double p; /* that a series without a rise looks like this or more so; of the best group size */
    double slope;        /* bytes a mark */
    double rise;         /* of what is never fallen below again, without the start */
    double level;        /* where that began, after the start */
    double late;         /* rate of growth in the last 40 % over the mean rate; 1: constant */
    double steps;        /* effective number of events of growth */
    double last_step;    /* when it last grew noticeably, 0 to 1 of the record */
    double confidence;   /* in `kind`, 0 to 1 */
    size_t first, count; /* marks that were judged */
    size_t cycles;       /* ups and downs of the marks themselves; 0: none to speak of */
};

/* False without memory. `marks` has `count` values. */
bool ull__trend_judge(const double *marks, size_t count, struct ull__trend *trend);

/* Mann-Kendall: the one-sided p of a rise in `values`, with ties taken into account; count at most 64. */
double ull__mann_kendall(const double *values, size_t count);

/* Theil and Sen: the median slope of all pairs, a step; count at most 64. */
double ull__theil_sen(const double *values, size_t count);

#endif
