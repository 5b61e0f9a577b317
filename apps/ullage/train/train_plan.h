/* train_plan.h: the plan of a file, as it was read. */
#ifndef ULLAGE_TRAIN_PLAN_H
#define ULLAGE_TRAIN_PLAN_H

#include <jansson.h>

#include "../plan/plan_file.h"
#include "given.h"
#include "train_cmd.h"

struct train_plan {
    const char *path;
    json_t *root; /* all texts are its own */
    struct train_wanted wanted;
    struct ull__given given;
    const char *backend; /* pinned; NULL: none */
    int threads;         /* likewise; 0 */
    const char **last;   /* tensors that lie channels last; last_count below 0: not pinned */
    int last_count;
    bool other_sizes; /* than the model that is trained */
};

/* After the other options: the file, and what it says where no option does. Errors: ULL_E_FORMAT, ULL_E_INVALID. */
ull_status train_plan_open(struct train_options *options, struct ull_error *err);
void train_plan_close(struct train_options *options);
/* ULL_E_INVALID: it is for another model. */
ull_status train_plan_fits(const struct training *training, struct ull_error *err);
/* Says in one line what is not as it was planned. */
void train_plan_compare(const struct training *training);
/* The plan in force to --save-plan, if that was asked for. */
ull_status train_plan_write(const struct training *training, struct ull_error *err);

#endif
