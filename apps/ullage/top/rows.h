/*
 * rows.h: which rows there are, in which order, for a sample and a view. A pure function of both.
 */
#ifndef ULLAGE_TOP_ROWS_H
#define ULLAGE_TOP_ROWS_H

#include "view.h"

enum row_kind { ROW_JOB, ROW_PROCESS, ROW_STRANGERS /* headline over processes of no job */ };

enum { ROW_DEPTHS = 16 };

struct row {
    enum row_kind kind;
    int job;          /* place in the sample's jobs; of a process its job's, or -1 */
    int process;      /* place in the sample's processes, or -1 */
    int depth;        /* of a process below the job: 0, 1, ... */
    bool last;        /* no other one of the same depth follows below the same parent */
    uint32_t through; /* bit d: the line of depth d goes on below this row */
    bool folded;
    int hidden; /* processes of a folded job */
};

struct rows {
    struct row *row;
    int count;
};

/* False without memory. */
bool rows_build(struct rows *rows, const struct sample *sample, const struct view *view);
void rows_finish(struct rows *rows);

struct row_key rows_key(const struct sample *sample, const struct row *row);
bool rows_same_key(const struct row_key *left, const struct row_key *right);
/* The place of the row with this key, or -1. */
int rows_find(const struct rows *rows, const struct sample *sample, const struct row_key *key);

#endif
