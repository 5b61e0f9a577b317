/* plan_cmd.h: what the files of `ullage plan` share. */
#ifndef ULLAGE_PLAN_CMD_H
#define ULLAGE_PLAN_CMD_H

#include "../cli.h"
#include "explain.h"
#include "infer.h"
#include "json.h"
#include "parallel.h"
#include "plan.h"
#include "plan_file.h"

enum { PLAN_CARDS_MOST = 64 /* in a line of budgets */ };

struct plan_options {
    const char *model;
    const char *html; /* a path; NULL: none */
    enum output_format format;
    bool ladder, fit;
    const char *like; /* "torch", "torch:MODE,..."; NULL */
    int64_t budget;   /* bytes */
    bool inference; /* `infer` besides `request`, of which batch and max_workspace are read then */
    enum ull__parallel_kind parallel; /* over request.devices, where these are several */
    struct ull__plan_request request;
    struct ull__infer_request infer;
    struct ull__profile profile;
    int threads; /* of the processor; 0: as many as there are */
};

/* A model with its plans, and the one that was chosen. */
struct plan_result {
    const struct plan_options *options;
    struct ull__graph *model;
    struct ull__planner *planner;
    struct ull__planner *plain; /* with one plan that uses no technique */
    int chosen;                 /* the fastest that fits; where none does, the smallest */
    bool feasible;
    int64_t smallest_bytes; /* the smallest feasible budget */
    double planning_seconds;
    struct ull__backend *backend; /* that would run it; NULL */
    struct ull__meter_of *meter;
    struct plan_runner runner;
    char runner_text[160];
};

/* Fills in what is asked, beside what is there. Returns an exit code where there is nothing to plan, or -1. */
int plan_read_options(int argc, char **argv, struct plan_options *options);

/* The model that is named. Errors as model_build. */
ull_status plan_model(const struct plan_options *options, struct ull__graph **model,
                      struct ull_error *err);
/* Says on standard error what would fit. Returns the exit code for it. */
int plan_say_infeasible(int64_t budget, int64_t smallest_bytes);
/* `--mode inference`, from the model to the result. Returns the exit code. */
int plan_inference(const struct plan_options *options);

/* `--parallel model` and `pipeline`, in the same way. */
int plan_parallel(const struct plan_options *options);
/* "-m 0=1234MiB,1=...", for cards with these peaks. */
void plan_budgets_text(const struct plan_options *options, const int64_t *peaks, int count,
                       char *text, size_t size);

/* The plan as one JSON object, as docs/plan-file.md describes it. */
void plan_print_json(const struct plan_result *result, struct ull_json *json);
/* For a person; width: columns. False without memory. */
bool plan_print_text(const struct plan_result *result, int width);
/* The budgets at which the plan changes, a dozen or so of them. */
void plan_print_ladder(const struct plan_result *result);

/* `--like`: whether it is one; else what of it is not goes to `bad`. */
bool plan_like_valid(const char *like, char *bad, size_t size);
void plan_put_torch(struct ull_json *json, const struct plan_result *result);
void plan_print_torch(const struct plan_result *result);

/* `--fit`. Errors as ull__planner_create. */
ull_status plan_put_fit(struct ull_json *json, const struct plan_result *result,
                        struct ull_error *err);
ull_status plan_print_fit(const struct plan_result *result, struct ull_error *err);

/* The page of `--html`. Errors as ull__file_write. */
ull_status plan_write_html(const struct plan_result *result, const char *path, struct ull_error *err);

/* Bytes by role of a plan at its peak, and their names in order. False without memory. */
bool plan_components(const struct ull__planner *planner, int plan, int64_t bytes[ULL_ROLES]);
/* The figures of a plan for the ladder: the places of some plans, from the most memory to the least. Returns how many. */
int plan_rungs(const struct plan_result *result, int *rungs, int most);

#endif
