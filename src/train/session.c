/* session.c: plans, regions, and what they are taken down with. See session.h. */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "session_private.h"

/* Persistent regions of one precision differ by a control or two from plan to plan. */
enum { SLACK = 4096, MOST_MEASURING = 1 << 28 };

/* --- What the model takes and gives --- */

static ull_status find_ends(struct ull__session *session, struct ull_error *err)
{
    const struct ull__graph *graph = ull__session_graph(session);
    int inputs = 0;
    session->input = session->target = ULL_NONE;
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role != ULL_ROLE_INPUT || tensor->node != ULL_NONE ||
            session->program->buffer_of[i] == ULL_NONE) {
            continue;
        }
        bool target = strcmp(tensor->name, "target") == 0 || strcmp(tensor->name, "targets") == 0;
        *(target ? &session->target : &session->input) = i;
        inputs += 1;
    }
    if (inputs != 2 || session->input == ULL_NONE || session->target == ULL_NONE) {
        return ull__fail(err, ULL_E_INVALID,
                         "model '%s' has %d inputs; training needs one for samples, and one named "
                         "'target' with a class for each of them",
                         graph->name, inputs);
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    const struct ull__tensor *input = &graph->tensors[session->input];
    session->tokens = !ull__type_is_float(input->type);
    session->sample_elements = ull__tensor_elements(graph, session->input, values);
    session->sample_targets = ull__tensor_elements(graph, session->target, values);
    return ULL_OK;
}

static void find_classes(struct ull__session *session)
{
    const struct ull__graph *model = session->options.model;
    if (model->output_count > 0) {
        const struct ull__tensor *logits = &model->tensors[model->outputs[0]];
        session->classes = ull__dim_value(model->symbols, logits->dims[logits->rank - 1], NULL);
    }
}

/* --- Regions --- */

static ull_status request(struct ull_pool *pool, uint64_t bytes, const char *tag, char **address,
                          struct ull_error *err)
{
    void *made = NULL;
    struct ull_request what = {.bytes = bytes > 0 ? bytes : 64, .alignment = 4096, .tag = tag};
    struct ull_refusal refusal;
    ull_status status = ull_pool_request(pool, &what, &refusal, &made);
    if (status != ULL_OK) {
        char text[384];
        ull_refusal_text(&refusal, text, sizeof(text));
        return ull__fail(err, status, "no memory for %s: %s", tag, text);
    }
    *address = made;
    return ULL_OK;
}

static uint64_t pages(const ull_device *device, uint64_t bytes)
{
    uint64_t page = ull_device_page_bytes(device);
    return (bytes + page - 1) / page * page;
}

/* A pool that holds just what the regions need. */
static ull_status open_pool(uint64_t bytes, ull_device **device, struct ull_pool **pool,
                            struct ull_error *err)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t size = 2 * bytes > machine ? 2 * bytes : machine;
    ull_status status = *device == NULL ? ull_device_open_host(size, device, err) : ULL_OK;
    if (status != ULL_OK) {
        return status;
    }
    uint64_t limit = pages(*device, bytes) + ull_device_page_bytes(*device);
    if (*pool != NULL) {
        return ull_pool_set_limit(*pool, limit);
    }
    struct ull_pool_options options;
    ull_pool_options_init(&options);
    options.limit = limit;
    options.address_factor = 8; /* of few requests, which do not need many places */
    return ull_pool_create(*device, &options, pool, err);
}

static ull_status take_regions(struct ull__session *session, struct ull_error *err)
{
    const struct ull__plan_layout *layout = &session->layout;
    uint64_t persistent = layout->persistent_bytes + SLACK;
    uint64_t step = layout->step_bytes + layout->passing_bytes;
    if (session->arena.persistent == NULL) {
        session->persistent_room = persistent;
    }
    if (session->arena.step != NULL) {
        ull_pool_free(session->pool, session->arena.step, NULL);
        session->arena.step = NULL;
        ull_pool_trim(session->pool, UINT64_MAX, NULL);
    }
    ull_status status =
        open_pool(session->persistent_room + step, &session->device, &session->pool, err);
    if (status == ULL_OK && session->arena.persistent == NULL) {
        status = request(session->pool, session->persistent_room, "weights and state",
                         &session->arena.persistent, err);
    }
    if (status == ULL_OK) {
        status = request(session->pool, step, "a step", &session->arena.step, err);
        session->step_room = step;
    }
    if (status == ULL_OK && layout->host_bytes > 0 && session->host_room < layout->host_bytes) {
        status = open_pool(layout->host_bytes, &session->host_device, &session->host_pool, err);
        if (status == ULL_OK) {
            status = request(session->host_pool, layout->host_bytes, "what is in the host's memory",
                             &session->arena.host, err);
            session->host_room = layout->host_bytes;
        }
    }
    return status;
}

/* --- Plans --- */

static void drop_executables(struct ull__session *session)
{
    ull__executable_destroy(session->full);
    ull__executable_destroy(session->rest);
    session->full = session->rest = NULL;
    ull__forward_destroy(session, session->forward);
    session->forward = NULL;
    ull__plan_layout_finish(&session->layout);
}

static ull_status make_executable(struct ull__session *session, int64_t batch,
                                  struct ull__executable **executable, struct ull_error *err)
{
    const struct ull__graph *graph = ull__session_graph(session);
    const struct ull__plan *plan =
        session->options.plan.profile != NULL
            ? &ull__planner_plans(session->planner, &(int){0})[session->plan]
            : NULL;
    struct ull__result results[8];
    int64_t values[ULL_SYMBOLS];
    for (int i = 0; i < graph->loss_count; ++i) {
        results[i] = (struct ull__result){graph->losses[i], &session->losses[i]};
    }
    ull__graph_values(graph, batch, values);
    struct ull__executable_request what = {.backend = session->backend,
                                           .program = session->program,
                                           .layout = &session->layout,
                                           .decision = &plan->decision,
                                           .values = values,
                                           .arena = session->arena,
                                           .results = results,
                                           .result_count = graph->loss_count};
    return ull__executable_create(&what, executable, err);
}

static ull_status stage_samples(struct ull__session *session, int64_t samples, struct ull_error *err)
{
    if (samples <= session->staged) {
        return ULL_OK;
    }
    void *x = realloc(session->x, (size_t)(samples * session->sample_elements) * 4 + 4);
    session->x = x != NULL ? x : session->x;
    void *targets = realloc(session->targets, (size_t)(samples * session->sample_targets) * 4 + 4);
    session->targets = targets != NULL ? targets : session->targets;
    if (x == NULL || targets == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for %lld samples", (long long)samples);
    }
    session->staged = samples;
    return ULL_OK;
}

/* Regions, kernels and addresses for a plan. */
static ull_status take_plan(struct ull__session *session, int plan, struct ull_error *err)
{
    drop_executables(session);
    session->plan = plan;
    session->program = ull__planner_program(session->planner, plan);
    int count;
    const struct ull__plan *of = &ull__planner_plans(session->planner, &count)[plan];
    ull_status status = ull__planner_layout(session->planner, plan, &session->layout, err);
    if (status == ULL_OK) {
        status = take_regions(session, err);
    }
    if (status == ULL_OK) {
        status = find_ends(session, err);
    }
    if (status == ULL_OK) {
        status = stage_samples(session, of->micro_batch, err);
    }
    if (status == ULL_OK) {
        status = make_executable(session, of->micro_batch, &session->full, err);
    }
    session->rest_batch = ull__session_own_batch(session) % of->micro_batch;
    if (status == ULL_OK && session->rest_batch > 0) {
        status = make_executable(session, session->rest_batch, &session->rest, err);
    }
    session->reached_persistent = session->reached_step = 0;
    if (status == ULL_OK) {
        ull__session_note_reached(session);
        session->reached_persistent = session->reached_step = 0;
        status = ull__session_list(session, err);
    }
    return status;
}

static ull_status make_planner(struct ull__session *session, struct ull_error *err)
{
    struct ull__plan_request plan = session->options.plan;
    struct ull__profile profile = *plan.profile;
    profile.meter = ull__meter_for(session->meter);
    plan.model = session->options.model;
    plan.profile = &profile;
    plan.zero_stages =
        1u << 0; /* each rank has whole weights and state: saves and evaluations look for them */
    bool follows = session->options.world != NULL && session->backend->rank != 0;
    ull_status status = follows ? ull__session_share_times(session, err) : ULL_OK;
    if (status == ULL_OK) {
        status = ull__planner_create(&plan, &session->planner, err);
    }
    const char *missing = ull__meter_missing(session->meter);
    if (missing[0] != '\0') {
        return ull__fail(err, ULL_E_NOT_FOUND, "model '%s' cannot be trained here: %s",
                         plan.model->name, missing);
    }
    if (status == ULL_OK && session->options.world != NULL && !follows) {
        status = ull__session_share_times(session, err);
    }
    return status;
}

/* running: a plan of the precision and with the places of state that there are now. */
static ull_status nothing_fits(struct ull__session *session, uint64_t budget, bool running,
                               struct ull_error *err)
{
    int count;
    int64_t least = INT64_MAX;
    const struct ull__plan *plans = ull__planner_plans(session->planner, &count);
    const struct ull__plan *now = &plans[session->plan];
    for (int i = 0; i < count; ++i) {
        bool able = !running || (plans[i].precision == now->precision &&
                                 plans[i].offload_optimizer == now->offload_optimizer);
        int64_t peak =
            able && plans[i].bound_bytes < least ? ull__planner_place(session->planner, i) : -1;
        least = peak >= 0 && peak < least ? peak : least;
    }
    uint64_t needed = (uint64_t)least + ull__planner_profile(session->planner)->outside_bytes;
    return ull__fail(err, ULL_E_NO_MEMORY,
                     "no plan for '%s' with batches of %lld%s fits %llu bytes; the smallest needs "
                     "%llu",
                     session->options.model->name, (long long)session->options.plan.batch,
                     running ? ", while it runs," : "", (unsigned long long)budget,
                     (unsigned long long)needed);
}

static uint64_t profile_outside(const struct ull__session *session)
{
    return ull__planner_profile(session->planner)->outside_bytes;
}

/* The fastest plan that fits and may be taken. `same`: with precision and optimizer's state as they are. */
static int choose(struct ull__session *session, uint64_t budget, bool same, int64_t least,
                  int64_t most)
{
    int count;
    const struct ull__plan *plans = ull__planner_plans(session->planner, &count);
    const struct ull__plan *now = &plans[session->plan];
    int64_t room = (int64_t)budget - (int64_t)ull__planner_profile(session->planner)->outside_bytes;
    if (!same && session->given != ULL_NONE && plans[session->given].peak_bytes <= room &&
        plans[session->given].host_bytes <= session->options.plan.host_bytes) {
        return session->given;
    }
    for (int i = 0; i < count; ++i) {
        const struct ull__plan *plan = &plans[i];
        bool fine = (least == 0 || plan->micro_batch >= least) &&
                    (most == 0 || plan->micro_batch <= most) && plan->bound_bytes <= room;
        if (same) {
            fine = fine && plan->zero_stage == now->zero_stage && plan->precision == now->precision &&
                   plan->offload_optimizer == now->offload_optimizer;
        }
        if (fine && session->options.accepts != NULL && !same) {
            fine = session->options.accepts(session->options.context, plan);
        }
        int64_t peak = fine ? ull__planner_place(session->planner, i) : -1;
        if (peak >= 0 && peak <= room) {
            return i;
        }
    }
    return ULL_NONE;
}

ull_status ull__session_create(const struct ull__session_options *options,
                               struct ull__session **session, struct ull_error *err)
{
    struct ull__session *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a training");
    }
    made->options = *options;
    made->backend = options->backend;
    made->budget = options->budget_bytes;
    made->given = ULL_NONE;
    made->loss_scale = options->initial_loss_scale > 0 ? options->initial_loss_scale : 65536;
    uint64_t room =
        options->budget_bytes / 2 < MOST_MEASURING ? options->budget_bytes / 2 : MOST_MEASURING;
    ull_status status = ull__meter_create(
        made->backend, options->rates || made->backend->rank > 0 ? 0 : room, &made->meter, err);
    if (status == ULL_OK) {
        status = make_planner(made, err);
    }
    if (status == ULL_OK && options->given != NULL) {
        /* Its copies are placed by the times that it was planned with; what it takes is told by those of here. */
        status = ull__planner_give(made->planner, options->given, &made->given, err);
        if (status == ULL_OK && !ull__planner_reprice(made->planner)) {
            status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans");
        }
    }
    if (status == ULL_OK) {
        ull__meter_rest(made->meter);
        int plan = choose(made, options->budget_bytes, false, 0, 0);
        status = plan != ULL_NONE ? ull__session_agree(made, take_plan(made, plan, err), err)
                                  : nothing_fits(made, options->budget_bytes, false, err);
        /* The machine may have less than the budget allows: then the next plan down. */
        for (int64_t peak; status == ULL_E_NO_MEMORY && plan != ULL_NONE;) {
            peak = ull__planner_place(made->planner, plan);
            made->budget = (uint64_t)peak + profile_outside(made) - 1;
            plan = choose(made, made->budget, false, 0, 0);
            status = plan != ULL_NONE ? ull__session_agree(made, take_plan(made, plan, err), err)
                                      : status;
        }
    }
    if (status != ULL_OK) {
        ull__session_destroy(made);
        return status;
    }
    find_classes(made);
    made->hysteresis_left =
        made->options.plan.scale.hysteresis > 0 ? made->options.plan.scale.hysteresis : 2;
    ull__session_fill(made);
    ull__session_restore(made, 0, made->loss_scale, 0, made->hysteresis_left);
    *session = made;
    return ULL_OK;
}

void ull__session_destroy(struct ull__session *session)
{
    if (session == NULL) {
        return;
    }
    drop_executables(session);
    ull_pool_destroy(session->pool);
    ull_pool_destroy(session->host_pool);
    ull_device_close(session->device);
    ull_device_close(session->host_device);
    ull__planner_destroy(session->planner);
    ull__meter_destroy(session->meter);
    free(session->x);
    free(session->targets);
    free(session->tensors);
    free(session);
}

ull_status ull__session_replan(struct ull__session *session, uint64_t budget_bytes, int64_t least,
                               int64_t most, bool *changed, struct ull_error *err)
{
    int found = choose(session, budget_bytes, true, least, most);
    if (found == ULL_NONE) {
        return nothing_fits(session, budget_bytes, true, err);
    }
    int before = session->plan;
    ull_status status =
        found != before ? ull__session_agree(session, take_plan(session, found, err), err) : ULL_OK;
    if (status == ULL_OK) {
        session->budget = budget_bytes;
        *changed = found != before;
    } else if (take_plan(session, before, NULL) != ULL_OK) {
        return status; /* not even what was there: the session can only be saved and ended */
    }
    if (found != before) {
        ull__session_write_counters(session);
    }
    return status;
}

void ull__session_info(struct ull__session *session, struct ull__session_info *info)
{
    int count;
    const struct ull__plan *plans = ull__planner_plans(session->planner, &count);
    *info = (struct ull__session_info){
        .planner = session->planner,
        .plan = session->plan,
        .chosen = &plans[session->plan],
        .given = session->plan == session->given,
        .predicted_peak_bytes = session->layout.persistent_bytes + session->layout.step_bytes +
                                session->layout.passing_bytes,
        .measured_peak_bytes = session->reached_persistent + session->reached_step,
        .host_bytes = session->layout.host_bytes,
        .persistent_bytes = session->layout.persistent_bytes,
        .classes = session->classes,
        .sample_elements = session->sample_elements,
        .sample_targets = session->sample_targets,
        .tokens = session->tokens,
        .steps = session->steps,
        .loss_scale = session->loss_scale,
        .good_steps = session->good_steps,
        .hysteresis_left = session->hysteresis_left};
}
