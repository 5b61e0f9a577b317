/* plan_answer.h: what all answers of `ullage plan` have in common: of trainings, of parts on several cards, of inference. */
#ifndef ULLAGE_PLAN_ANSWER_H
#define ULLAGE_PLAN_ANSWER_H

#include "plan_cmd.h"

enum { PLAN_DEVICES_MOST = 32 /* that are built in */ };

struct plan_figures {
    bool feasible;
    int64_t peak_bytes, smallest_bytes, host_bytes;
    double step_seconds;
    int64_t batch, micro_batch;
};

/* Fields of the JSON: what was asked, and what came out. */
void plan_put_names(struct ull_json *json, const struct plan_options *options, const char *mode);
void plan_put_figures(struct ull_json *json, const struct plan_options *options,
                      const struct plan_figures *figures);
/* The object of one device in `fit`. */
void plan_put_device(struct ull_json *json, const struct ull__profile *profile,
                     const struct plan_figures *figures);

/* Says what went wrong before there was a plan; model: it could be read. Returns the exit code. */
int plan_say_failed(const struct plan_options *options, bool model, ull_status status,
                    const struct ull_error *err);
/* The last of an answer; written: so far all was. Returns the exit code. */
int plan_end(const struct plan_options *options, bool written, bool feasible, int64_t smallest_bytes);

/* The built-in devices, the smallest memory first. ULL_E_INVALID: one of the files is wrong. */
ull_status plan_devices(struct ull__profile profiles[PLAN_DEVICES_MOST], int *count,
                        struct ull_error *err);

#endif
