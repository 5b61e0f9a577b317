/*
 * meter_learn.c: what a training shows of its kernels. See meter.h.
 *
 * A kernel that was seen has a reference: the median of its last runs, on the machine as it was when the first were seen. One
 * that was seen with another number of samples is taken to differ from what was measured of it alone as much as then; one that was
 * not seen at all as much as the others of its operator do, or all together.
 */
#include <string.h>

#include "meter_private.h"

static struct ull__meter_operator *operator_of(struct ull__meter_of *meter, const struct ull__op *op)
{
    for (int i = 0; i < meter->operator_count; ++i) {
        if (meter->operators[i].op == op) {
            return &meter->operators[i];
        }
    }
    if (meter->operator_count == ULL_METER_OPERATORS) {
        return NULL;
    }
    struct ull__meter_operator *made = &meter->operators[meter->operator_count++];
    *made = (struct ull__meter_operator){.op = op};
    return made;
}

/* References to what was measured alone, over all kernels of an operator that were seen; NULL: of any. 0: none was. */
static double ratio_of(const struct ull__meter_of *meter, const struct ull__op *op)
{
    double line = 0, reference = 0;
    for (int i = 0; i < meter->operator_count; ++i) {
        const struct ull__meter_operator *of = &meter->operators[i];
        if (op == NULL || of->op == op) {
            line += of->line;
            reference += of->reference;
        }
    }
    return line > 0 ? reference / line : 0;
}

static double line_of(const struct ull__meter_entry *timed, int64_t batch)
{
    return timed != NULL && timed->key != 0 && timed->each >= 0
               ? timed->fixed + timed->each * (double)batch
               : -1;
}

static const struct ull__meter_entry *known(const struct ull__meter_of *meter, uint64_t sized)
{
    const struct ull__meter_entry *entry = ull__meter_look(&meter->sized, sized);
    return entry != NULL && entry->key != 0 && entry->seen > 0 ? entry : NULL;
}

double ull__meter_price(const struct ull__meter_of *meter, const struct ull__meter_kernel *kernel)
{
    const struct ull__meter_entry *sized = known(meter, kernel->sized);
    const struct ull__meter_entry *timed = ull__meter_look(&meter->times, kernel->timed);
    double line = line_of(timed, kernel->batch);
    if (sized != NULL || line < 0) {
        return sized != NULL ? sized->reference : -1;
    }
    if (timed->seen > 0) {
        return line * timed->ratio;
    }
    double ratio = ratio_of(meter, kernel->op);
    ratio = ratio > 0 ? ratio : ratio_of(meter, NULL);
    return ratio > 0 ? line * ratio : line;
}

static void note(struct ull__meter_entry *entry, double seconds)
{
    int count = entry->seen < ULL_METER_RECENT ? entry->seen : ULL_METER_RECENT;
    entry->recent[entry->seen % ULL_METER_RECENT] = seconds;
    entry->seen += 1;
    count += count < ULL_METER_RECENT;
    entry->reference = ull__recent_median(entry->recent, count);
}

bool ull__meter_kernels(struct ull__meter_of *meter, const struct ull__program *program,
                        const int64_t *values, struct ull__meter_kernel *kernels)
{
    bool fine = ull__meter_turn_to(meter, program->graph, values);
    int64_t batch = ull__meter_batch(program->graph, values);
    for (int i = 0; i < program->item_count && fine; ++i) {
        kernels[i] = ull__meter_kernel(meter, program->items[i].node, batch);
        struct ull__meter_entry *entry = ull__meter_entry_of(&meter->sized, kernels[i].sized);
        fine = entry != NULL;
        if (fine && entry->key == 0) {
            entry->key = kernels[i].sized;
            meter->sized.count += 1;
        }
    }
    return fine;
}

static void learn_one(struct ull__meter_of *meter, const struct ull__meter_kernel *kernel, double load)
{
    struct ull__meter_entry *sized = ull__meter_look(&meter->sized, kernel->sized);
    if (sized->runs == 0) {
        return;
    }
    note(sized, sized->sum / (double)sized->runs / load);
    sized->sum = 0;
    sized->runs = 0;
    struct ull__meter_entry *timed = ull__meter_look(&meter->times, kernel->timed);
    double line = line_of(timed, kernel->batch);
    struct ull__meter_operator *of = operator_of(meter, kernel->op);
    if (line <= 0 || of == NULL) {
        return;
    }
    if (timed->seen > 0) {
        of->line -= timed->line;
        of->reference -= timed->line * timed->ratio;
    }
    timed->seen += 1;
    timed->line = line;
    timed->ratio = sized->reference / line;
    of->line += line;
    of->reference += sized->reference;
}

/* Layers that are alike are one kernel, which a step runs several times: their mean is noted once. */
void ull__meter_learn(struct ull__meter_of *meter, const struct ull__meter_kernel *kernels,
                      struct ull__took *took, int count, double load)
{
    double seconds = 0, expected = 0;
    for (int i = 0; i < count; ++i) {
        struct ull__meter_entry *entry = ull__meter_look(&meter->sized, kernels[i].sized);
        seconds += entry->seen > 0 ? took[i].seconds : 0;
        expected += entry->seen > 0 ? entry->reference * (double)took[i].runs : 0;
        entry->sum += took[i].seconds;
        entry->runs += took[i].runs;
        took[i] = (struct ull__took){0, 0};
    }
    double by = load > 0 ? load : seconds > 0 && expected > 0 ? seconds / expected : 1;
    for (int i = 0; i < count; ++i) {
        learn_one(meter, &kernels[i], by);
    }
}

void ull__meter_set(struct ull__meter_of *meter, double load, double step_seconds,
                    double copied_per_second)
{
    meter->meter.load = load;
    meter->meter.step_seconds = step_seconds;
    meter->meter.copied_per_second = copied_per_second;
}
