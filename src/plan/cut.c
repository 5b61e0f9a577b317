/* cut.c: what some units of a program need on a device. See cut.h. */
#include "cut.h"

#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "plan_private.h"

/* --- A schedule --- */

/* A place of the order touches a group: stays that lie in one memory, one after the other. */
struct touch {
    int place, group;
};

struct ull__cut_schedule {
    const struct ull__units *units;
    const struct ull__profile *profile;
    struct ull__scheduler *scheduler;
    struct ull__decision decision;
    const struct ull__placed *order;
    const struct ull__stay *stays;
    int count, stay_count;
    int *group;     /* by stay */
    int64_t *bytes; /* by group, whose number is that of its first stay */
    struct touch *touches;
    int touch_count;
    int *first, *last; /* by group, for one stage */
};

static int unit_at(const struct ull__cut_schedule *cut, int place)
{
    return cut->units->of_item[cut->order[place].item];
}

/* Between which devices a unit is. */
static int device_of(const bool *cut, int unit)
{
    int device = 0;
    for (int i = 0; i < unit; ++i) {
        device += cut[i];
    }
    return device;
}

/* What is read on another device than it is made on is not dropped. */
static void keep_what_passes(struct ull__cut_schedule *made, const bool *cut)
{
    const struct ull__program *program = made->units->program;
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            int buffer = program->refs[item->inputs + j], maker = program->buffers[buffer].item;
            if (maker != ULL_NONE && program->buffers[buffer].forward &&
                device_of(cut, made->units->of_item[maker]) !=
                    device_of(cut, made->units->of_item[i])) {
                made->decision.keep[buffer] = ULL_KEEP;
            }
        }
    }
}

/* The stay in which a buffer is at a place; ULL_NONE. */
static int stay_at(const struct ull__cut_schedule *cut, const int *newest, int buffer, int place)
{
    int stay = newest[buffer];
    while (stay != ULL_NONE && !(cut->stays[stay].begin <= place && place <= cut->stays[stay].end)) {
        stay = cut->stays[stay].before;
    }
    return stay;
}

static void touch(struct ull__cut_schedule *cut, int place, int stay)
{
    cut->touches[cut->touch_count++] = (struct touch){place, cut->group[stay]};
}

static void find_groups(struct ull__cut_schedule *cut)
{
    for (int i = 0; i < cut->stay_count; ++i) {
        const struct ull__stay *stay = &cut->stays[i];
        cut->group[i] = stay->joins != ULL_NONE ? cut->group[stay->joins] : i;
        int group = cut->group[i];
        cut->bytes[group] = stay->bytes > cut->bytes[group] ? stay->bytes : cut->bytes[group];
    }
}

static int by_place(const void *left, const void *right)
{
    const struct touch *a = left, *b = right;
    return a->place != b->place ? a->place - b->place : a->group - b->group;
}

static bool find_touches(struct ull__cut_schedule *cut)
{
    const struct ull__program *program = cut->units->program;
    size_t room = (size_t)cut->stay_count + 1;
    int *newest = malloc(((size_t)program->buffer_count + 1) * sizeof(*newest));
    for (int i = 0; i < cut->count; ++i) {
        const struct ull__program_item *item = &program->items[cut->order[i].item];
        room += (size_t)(item->input_count + item->output_count);
    }
    cut->touches = calloc(room, sizeof(*cut->touches));
    if (newest == NULL || cut->touches == NULL) {
        free(newest);
        return false;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        newest[i] = ULL_NONE;
    }
    for (int i = 0; i < cut->stay_count; ++i) {
        if (cut->stays[i].buffer == ULL_NONE) {
            touch(cut, cut->stays[i].begin, i);
        } else {
            newest[cut->stays[i].buffer] = i;
        }
    }
    for (int place = 0; place < cut->count; ++place) {
        const struct ull__program_item *item = &program->items[cut->order[place].item];
        for (int j = 0; j < item->input_count + item->output_count; ++j) {
            int buffer = program->refs[item->inputs + j];
            int stay = stay_at(cut, newest, buffer, place);
            /* A global norm is a sum of sums: a gradient is not sent for it. */
            bool foreign = item->update && ull__unit_parameter(program, buffer) != ULL_NONE &&
                           !ull__unit_home(cut->units, ull__unit_parameter(program, buffer),
                                           unit_at(cut, place));
            if (stay != ULL_NONE && !foreign) {
                touch(cut, place, stay);
            }
        }
    }
    free(newest);
    qsort(cut->touches, (size_t)cut->touch_count, sizeof(*cut->touches), by_place);
    return true;
}

struct ull__cut_schedule *ull__cut_create(const struct ull__units *units,
                                          const struct ull__profile *profile,
                                          const struct ull__decision *decision, const bool *cut)
{
    const struct ull__program *program = units->program;
    struct ull__cut_schedule *made = calloc(1, sizeof(*made));
    struct ull__cost_of cost;
    if (made == NULL) {
        return NULL;
    }
    made->units = units;
    made->profile = profile;
    made->scheduler = ull__scheduler_create(program, profile);
    if (made->scheduler == NULL || !ull__decision_create(program, &made->decision)) {
        ull__cut_destroy(made);
        return NULL;
    }
    ull__decision_copy(program, &made->decision, decision);
    if (cut != NULL) {
        keep_what_passes(made, cut);
    }
    ull__schedule(made->scheduler, &made->decision, &cost);
    made->order = ull__schedule_order(made->scheduler, &made->count);
    made->stays = ull__schedule_stays(made->scheduler, &made->stay_count);
    size_t stays = (size_t)made->stay_count + 1;
    made->group = calloc(stays, sizeof(*made->group));
    made->bytes = calloc(stays, sizeof(*made->bytes));
    made->first = calloc(stays, sizeof(*made->first));
    made->last = calloc(stays, sizeof(*made->last));
    bool fine =
        made->group != NULL && made->bytes != NULL && made->first != NULL && made->last != NULL;
    if (fine) {
        find_groups(made);
        fine = find_touches(made);
    }
    if (!fine) {
        ull__cut_destroy(made);
        return NULL;
    }
    return made;
}

void ull__cut_destroy(struct ull__cut_schedule *cut)
{
    if (cut != NULL) {
        ull__scheduler_destroy(cut->scheduler);
        ull__decision_finish(&cut->decision);
        free(cut->group);
        free(cut->bytes);
        free(cut->touches);
        free(cut->first);
        free(cut->last);
        free(cut);
    }
}

/* --- A stage --- */

/* One device's share of the order: how many places, and the first one that is not of the forward pass. */
struct share {
    int places, boundary;
};

/* Fills in first and last of each group, by places of the share. */
static struct share find_share(const struct ull__cut_schedule *cut, const struct ull__stage *stage)
{
    const struct ull__program *program = cut->units->program;
    struct share share = {0, -1};
    int at = 0;
    for (int i = 0; i < cut->stay_count; ++i) {
        cut->first[i] = cut->last[i] = -1;
    }
    for (int place = 0; place < cut->count; ++place) {
        int unit = unit_at(cut, place);
        bool mine = unit >= stage->first && unit <= stage->last;
        while (at < cut->touch_count && cut->touches[at].place < place) {
            at += 1;
        }
        for (; at < cut->touch_count && cut->touches[at].place == place; ++at) {
            int group = cut->touches[at].group;
            if (mine) {
                cut->first[group] = cut->first[group] < 0 ? share.places : cut->first[group];
                cut->last[group] = share.places;
            }
        }
        if (mine && share.boundary < 0 &&
            (cut->order[place].again || !program->items[cut->order[place].item].forward)) {
            share.boundary = share.places;
        }
        share.places += mine;
    }
    /* Inputs of the model are there before the micro-step begins. */
    for (int i = 0; i < cut->stay_count; ++i) {
        int buffer = cut->stays[i].buffer;
        if (cut->first[i] >= 0 && buffer != ULL_NONE && program->buffers[buffer].item == ULL_NONE) {
            cut->first[i] = 0;
        }
    }
    share.boundary = share.boundary < 0 ? share.places : share.boundary;
    return share;
}

/* Whether a group is what the backward pass reads of the forward pass. */
static bool is_kept(const struct ull__cut_schedule *cut, struct share share, int group)
{
    return cut->first[group] >= 0 && cut->first[group] < share.boundary &&
           cut->last[group] >= share.boundary;
}

/* What lives at once of all that is not kept beside. */
static int64_t most_at_once(const struct ull__cut_schedule *cut, struct share share, bool beside)
{
    int64_t *change = calloc((size_t)share.places + 2, sizeof(*change)), live = 0, most = 0;
    for (int i = 0; i < cut->stay_count && change != NULL; ++i) {
        if (cut->first[i] >= 0 && !(beside && is_kept(cut, share, i))) {
            change[cut->first[i]] += cut->bytes[i];
            change[cut->last[i] + 1] -= cut->bytes[i];
        }
    }
    for (int i = 0; i < share.places && change != NULL; ++i) {
        live += change[i];
        most = live > most ? live : most;
    }
    bool fine = change != NULL;
    free(change);
    return fine ? most : -1;
}

static int64_t placed_bytes(const struct ull__cut_schedule *cut, struct share share, bool beside)
{
    struct ull__buffer *buffers = calloc((size_t)cut->stay_count + 1, sizeof(*buffers));
    struct ull__offsets found = {0};
    uint64_t height = 0;
    bool fine = buffers != NULL;
    size_t count = 0;
    for (int i = 0; i < cut->stay_count && fine; ++i) {
        if (cut->first[i] >= 0 && !(beside && is_kept(cut, share, i))) {
            buffers[count++] = (struct ull__buffer){.size = (uint64_t)cut->bytes[i],
                                                    .alignment = cut->profile->alignment,
                                                    .lower = cut->first[i],
                                                    .upper = cut->last[i] + 1};
        }
    }
    struct ull__offsets_problem problem = {
        .buffers = buffers, .count = count, .capacity = ULL__OFFSETS_LOWEST};
    fine = fine &&
           ull__offsets_solve(&problem, &(struct ull__offsets_effort){0}, NULL, &found) == ULL_OK &&
           ull__offsets_check(&problem, found.offsets, NULL, &height) == ULL_OK;
    ull__offsets_finish(&found);
    free(buffers);
    return fine ? (int64_t)height : -1;
}

static bool has_home(const struct ull__units *units, int buffer)
{
    for (int i = 0; i < units->count; ++i) {
        if (ull__unit_home(units, buffer, i)) {
            return true;
        }
    }
    return false;
}

static void count_persistent(const struct ull__units *units, struct ull__stage *stage)
{
    const struct ull__program *program = units->program;
    stage->parameters = stage->persistent_bytes = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        bool here = false;
        if (buffer->life == ULL_LIFE_PASSING) {
            continue;
        }
        for (int unit = stage->first; unit <= stage->last && !here; ++unit) {
            here = ull__unit_home(units, i, unit);
        }
        /* Scalars that steer the update are on every device. */
        if (here || !has_home(units, i)) {
            stage->persistent_bytes += buffer->bytes;
            if (buffer->role == ULL_ROLE_PARAMETER) {
                stage->parameters +=
                    ull__tensor_elements(program->graph, buffer->tensor, units->values);
            }
        }
    }
}

/* Seconds, and what comes from and goes to other devices: what is touched here and made or read elsewhere. */
static void count_work(const struct ull__cut_schedule *cut, struct ull__stage *stage)
{
    const struct ull__program *program = cut->units->program;
    stage->seconds = stage->update_seconds = 0;
    stage->sent_bytes = 0;
    for (int place = 0; place < cut->count; ++place) {
        int unit = unit_at(cut, place), at = cut->order[place].item;
        const struct ull__program_item *item = &program->items[at];
        if (unit < stage->first || unit > stage->last) {
            continue;
        }
        *(item->update ? &stage->update_seconds : &stage->seconds) +=
            ull__item_choice(program, at, cut->decision.algorithm[at])->seconds;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        int maker = program->buffers[i].item;
        int unit = maker != ULL_NONE ? cut->units->of_item[maker] : ULL_NONE;
        if (unit >= stage->first && unit <= stage->last && cut->units->last_reader[i] != ULL_NONE &&
            program->buffers[i].life == ULL_LIFE_PASSING &&
            (cut->units->last_reader[i] > stage->last || cut->units->first_reader[i] < stage->first)) {
            stage->sent_bytes += program->buffers[i].bytes;
        }
    }
}

bool ull__cut_stage(const struct ull__cut_schedule *cut, bool placed, struct ull__stage *stage)
{
    struct share share = find_share(cut, stage);
    bool beside = stage->in_flight > 1;
    count_persistent(cut->units, stage);
    count_work(cut, stage);
    stage->kept_bytes = 0;
    for (int i = 0; i < cut->stay_count && beside; ++i) {
        stage->kept_bytes += is_kept(cut, share, i) ? cut->bytes[i] : 0;
    }
    stage->passing_bytes =
        placed ? placed_bytes(cut, share, beside) : most_at_once(cut, share, beside);
    stage->peak_bytes =
        stage->persistent_bytes + stage->in_flight * stage->kept_bytes + stage->passing_bytes;
    return stage->passing_bytes >= 0;
}
