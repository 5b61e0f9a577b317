/* adapt.c: see adapt.h. */
#include "adapt.h"

#include <stdbool.h>

enum ull__adapt ull__adapt(const struct ull__adapt_input *in)
{
    if (in->total_bytes == 0 || in->now - in->changed_at < ULL_ADAPT_PAUSE) {
        return ULL_ADAPT_KEEP;
    }
    double total = (double)in->total_bytes, use = (double)in->used_bytes / total;
    int64_t least = in->least > 0 ? in->least : 1;
    if (use > ULL_ADAPT_HIGH) {
        return in->micro_batch / 2 >= least && in->micro_batch > 1 ? ULL_ADAPT_HALVE : ULL_ADAPT_KEEP;
    }
    bool bounded = in->most > 0 && in->micro_batch * 2 > in->most;
    if (use >= ULL_ADAPT_LOW || in->doubled_bytes == 0 || bounded) {
        return ULL_ADAPT_KEEP;
    }
    double others = (double)in->used_bytes - (double)in->own_bytes;
    double then = ((others > 0 ? others : 0) + (double)in->doubled_bytes) / total;
    return then <= ULL_ADAPT_HIGH ? ULL_ADAPT_DOUBLE : ULL_ADAPT_KEEP;
}
