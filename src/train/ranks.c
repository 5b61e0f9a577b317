/* ranks.c: sessions of a world: they plan the same, and take the same plan or none. See session.h. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "session_private.h"

struct ull__share ull__session_share(const struct ull__session *session, int64_t whole)
{
    const struct ull__backend *backend = session->backend;
    int rank = backend->rank, ranks = backend->ranks > 1 ? backend->ranks : 1;
    int64_t first = whole * rank / ranks;
    return (struct ull__share){first, whole * (rank + 1) / ranks - first};
}

ull_status ull__session_share_times(struct ull__session *session, struct ull_error *err)
{
    size_t size = 0;
    const void *times = ull__meter_times(session->meter, &size);
    ull_status status = ull__world_tell(session->options.world, &size, sizeof(size), err);
    if (status != ULL_OK || size == 0) { /* nothing was timed, which all know now */
        return status;
    }
    void *copy = malloc(size);
    if (copy == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for what was measured");
    }
    if (session->backend->rank == 0) {
        memcpy(copy, times, size);
    }
    status = ull__world_tell(session->options.world, copy, size, err);
    if (status == ULL_OK && session->backend->rank != 0 &&
        !ull__meter_take_times(session->meter, copy, size)) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for what was measured");
    }
    free(copy);
    return status;
}

ull_status ull__session_agree(struct ull__session *session, ull_status status, struct ull_error *err)
{
    struct {
        int64_t status, bytes, micro_batch;
    } own = {(int64_t)status, 0, 0}, all[ULL_WORLD_RANKS];
    if (session->options.world == NULL) {
        return status;
    }
    if (status == ULL_OK) {
        const struct ull__plan *plan = ull__bucket_plan(ull__session_longest(session));
        own.bytes = plan->bound_bytes;
        own.micro_batch = plan->micro_batch;
    }
    ull_status met = ull__world_gather(session->options.world, &own, sizeof(own), all, err);
    for (int i = 0; i < ull__world_ranks(session->options.world) && met == ULL_OK; ++i) {
        ull_status theirs = (ull_status)all[i].status;
        if (theirs != ULL_OK && status == ULL_OK) {
            return ull__fail(err, theirs, "rank %d has no room for the plan", i);
        }
        if (theirs == ULL_OK && status == ULL_OK &&
            (all[i].bytes != own.bytes || all[i].micro_batch != own.micro_batch)) {
            return ull__fail(err, ULL_E_INVALID, "rank %d has come to another plan than rank %d", i,
                             session->backend->rank);
        }
    }
    return met == ULL_OK ? status : met;
}
