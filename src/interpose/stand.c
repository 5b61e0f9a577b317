/*
 * stand.c: a process that waits with others until all of them are at rest; see suspend.h.
 *
 * Kernels of several processes that wait for each other, as those of a collective do, come to rest only if all of them
 * have been launched. So each process closes its gate and says whether its devices are at rest. Who commands lets
 * those that are, while others are not, make one call at a time, until what the others wait for has been launched.
 * One call: for one that is let far ahead would have the others follow it for ever.
 *
 * A call that waits for the device is inside as long as it waits, and is no reason to wait for it here.
 */
#include <time.h>

#include "suspend.h"

#define MS 1000000ull
enum {
    LOOK_US = 200,
    COMES_MS = 20,   /* for somebody who waits at the gate to come in */
    RETURNS_MS = 20, /* and out again */
    TELL_MS = 200
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / MS;
}

static void moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
}

/* True if somebody wanted to. Of threads that wait beside it is known whether there is one. */
static bool let_one_in(bool beside, char why[ULL_TROUBLE_TEXT])
{
    uint64_t until = now_ms() + COMES_MS;
    if (beside && atomic_load(&ull__gate.beside) == 0)
        return false;
    ull__gate_let_in(beside);
    while (ull__gate_has_pass() && now_ms() < until)
        moment();
    bool came = ull__gate_let_none_in();
    until = now_ms() + RETURNS_MS;
    while (came && !ull__is_at_rest(why) && now_ms() < until)
        moment();
    return came;
}

void ull__stand_by(struct ull__member *member, void (*tell)(const char *trouble))
{
    char why[ULL_TROUBLE_TEXT] = "";
    uint64_t told = now_ms();
    uint32_t took = 0;
    while (ull__member_asked(member) == ULL_WANT_STAND_BY) {
        bool capture = ull__capture_is_open(), still = false;
        if (capture && atomic_load(&ull__gate.closed))
            ull__gate_open(); /* it may end; and the gate was closed a moment too late */
        else if (!capture)
            atomic_store(&ull__gate.closed, 1);
        enum ull__let_in whom = ull__member_lets_in(member);
        if (whom != ULL_LET_NOBODY)
            took = !capture && let_one_in(whom == ULL_LET_BESIDE, why) ? ULL_STANDS_TOOK : 0;
        still = ull__is_at_rest(why) && !capture;
        ull__member_stands(member, ULL_STANDS_HERE | took | (still ? ULL_STANDS_STILL : 0));
        if (still)
            why[0] = 0;
        if (now_ms() >= told + TELL_MS) {
            told = now_ms();
            tell(why[0] ? why : NULL);
        }
        moment();
    }
}
