/* plan_file.h: what a file of a plan has beside figures, so that `ullage train` runs that plan: docs/plan-file.md. */
#ifndef ULLAGE_PLAN_FILE_H
#define ULLAGE_PLAN_FILE_H

#include "json.h"
#include "plan.h"

enum { PLAN_FILE_VERSION = 1 };

/* What runs a plan. */
struct plan_runner {
    const char *backend; /* "oneDNN 2.6.3, OpenBLAS 0.3.21, avx512"; NULL: nobody in particular, nothing is pinned */
    int threads;
};

/* The description of a backend of the processor without its threads. Returns text. */
const char *plan_backend_text(const char *described, char *text, size_t size);

/* "sgd", "adam", "adamw". */
const char *plan_optimizer_text(enum ull__optimizer optimizer);
bool plan_optimizer_parse(const char *text, enum ull__optimizer *optimizer);

/* What decides the graph of a step: keys of the object at hand. `model` is the one that was planned for. */
void plan_put_training(struct ull_json *json, const struct ull__plan_request *request,
                       const struct ull__graph *model);
/* Keys `decision` and `pins` of a plan. */
void plan_put_decision(struct ull_json *json, const struct ull__planner *planner, int plan);
void plan_put_pins(struct ull_json *json, const struct ull__planner *planner, int plan,
                   const struct plan_runner *runner);

#endif
