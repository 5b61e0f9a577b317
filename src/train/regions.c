/*
 * regions.c: the memory of a session: pools that hold just the regions, which plans share. See session.h.
 */
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "session_private.h"

/* Persistent regions of one precision differ by a control or two from plan to plan. */
enum { SLACK = 4096 };

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

struct ull__needs ull__session_needs(const struct ull__session *session)
{
    struct ull__needs needs = {0, 0, 0};
    for (int i = 0; i < session->bucket_count; ++i) {
        const struct ull__plan_layout *layout = &session->buckets[i].layout;
        needs.persistent = ull__larger(needs.persistent, layout->persistent_bytes);
        needs.step = ull__larger(needs.step, ull__bucket_step_bytes(&session->buckets[i]));
        needs.host = ull__larger(needs.host, layout->host_bytes);
    }
    return needs;
}

static void give_back_host(struct ull__session *session, char *region)
{
    ull_pool_free(session->host_pool, region, NULL);
    ull_pool_trim(session->host_pool, UINT64_MAX, NULL);
}

/* A larger second region. The optimizer's state, which is at its beginning in all plans, goes along. */
static ull_status grow_host(struct ull__session *session, uint64_t bytes, struct ull_error *err)
{
    char *before = session->arena.host, *made = NULL;
    uint64_t state = ull__session_longest(session)->layout.host_state_bytes;
    uint64_t held = before != NULL && state > 0 ? pages(session->host_device, session->host_room) : 0;
    if (before != NULL && held == 0) {
        give_back_host(session, before);
        session->arena.host = before = NULL;
        session->host_room = 0;
    }
    ull_status status = open_pool(held + bytes, &session->host_device, &session->host_pool, err);
    if (status == ULL_OK) {
        status = request(session->host_pool, bytes, "what is in the host's memory", &made, err);
    }
    if (status == ULL_OK && before != NULL) {
        memcpy(made, before, state);
        give_back_host(session, before);
        status = open_pool(bytes, &session->host_device, &session->host_pool, err);
    }
    if (made != NULL) {
        session->arena.host = made;
        session->host_room = bytes;
    }
    return status;
}

ull_status ull__session_take_regions(struct ull__session *session, struct ull_error *err)
{
    const struct ull__needs needs = ull__session_needs(session);
    if (session->arena.persistent == NULL) {
        session->persistent_room = needs.persistent + SLACK;
    }
    if (session->arena.step != NULL) {
        ull_pool_free(session->pool, session->arena.step, NULL);
        session->arena.step = NULL;
        ull_pool_trim(session->pool, UINT64_MAX, NULL);
    }
    ull_status status =
        open_pool(session->persistent_room + needs.step, &session->device, &session->pool, err);
    if (status == ULL_OK && session->arena.persistent == NULL) {
        status = request(session->pool, session->persistent_room, "weights and state",
                         &session->arena.persistent, err);
    }
    if (status == ULL_OK) {
        status = request(session->pool, needs.step, "a step", &session->arena.step, err);
        session->step_room = needs.step;
    }
    return status == ULL_OK && session->host_room < needs.host ? grow_host(session, needs.host, err)
                                                               : status;
}

void ull__session_give_regions(struct ull__session *session)
{
    ull_pool_destroy(session->pool);
    ull_pool_destroy(session->host_pool);
    ull_device_close(session->device);
    ull_device_close(session->host_device);
}
