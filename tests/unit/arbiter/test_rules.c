/* test_rules.c: each rule of arbiter.h by itself, in a world of one card of 6,000 bytes and seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arbiter.h"

#define SECOND 1000000000ull
enum { CARD = 6000 };

static struct ull__arbiter *arbiter;
static uint64_t now_s;
static const struct ull__arbiter_action *actions;
static size_t action_count;

static ull_status tell(enum ull__arbiter_event_kind kind, uint64_t job, uint64_t bytes,
                       uint64_t trimmable, uint64_t amount)
{
    struct ull__arbiter_event event = {.kind = kind, .job = job, .amount = amount};
    struct ull_error err;
    event.bytes[0] = bytes;
    event.trimmable[0] = trimmable;
    return ull__arbiter_step(arbiter, &event, now_s * SECOND, &actions, &action_count, &err);
}

static void must(ull_status status)
{
    assert_int_equal(status, ULL_OK);
}

struct wish {
    uint64_t budget, request, room;
    int priority;
    bool fixed, queues, automatic;
    bool asks; /* not started yet, and not to wait */
    uint64_t spills;
    uint64_t group;
};

static ull_status try_join(uint64_t job, struct wish wish)
{
    struct ull__arbiter_spec spec = {.priority = wish.priority,
                                     .suspendable = !wish.fixed,
                                     .spill_bytes = wish.spills,
                                     .automatic = wish.automatic,
                                     .group = wish.group,
                                     .started = !wish.queues && !wish.asks,
                                     .may_queue = wish.queues};
    spec.budget[0] = wish.budget;
    spec.request[0] = wish.request;
    spec.room[0] = wish.room;
    struct ull__arbiter_event event = {.kind = ULL_ARB_JOIN, .job = job, .spec = &spec};
    return ull__arbiter_step(arbiter, &event, now_s * SECOND, &actions, &action_count, NULL);
}

static void join(uint64_t job, struct wish wish)
{
    must(try_join(job, wish));
}

static void holds(uint64_t job, uint64_t bytes, uint64_t idle)
{
    must(tell(ULL_ARB_USE, job, bytes, idle, 0));
    must(tell(ULL_ARB_TICK, 0, 0, 0, 0));
}

/* The last step told this, about this job. */
static const struct ull__arbiter_action *told(enum ull__arbiter_action_kind kind, uint64_t job)
{
    for (size_t i = 0; i < action_count; i++)
        if (actions[i].kind == kind && actions[i].job == job)
            return &actions[i];
    return NULL;
}

static void pass(uint64_t seconds)
{
    now_s += seconds;
    must(tell(ULL_ARB_TICK, 0, 0, 0, 0));
}

static enum ull__job_state state_of(uint64_t job)
{
    struct ull__arbiter_view view;
    assert_true(ull__arbiter_job(arbiter, job, &view));
    return view.state;
}

static int setup(void **state)
{
    (void)state;
    struct ull__arbiter_options options = {.device_count = 1, .host_bytes = 100000};
    assert_int_equal(ull__arbiter_create(&options, &arbiter, NULL), ULL_OK);
    now_s = 1;
    must(tell(ULL_ARB_DEVICE, 0, CARD, 0, 0));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ull__arbiter_destroy(arbiter);
    return 0;
}

/* Somebody who is no job took of the card what was granted: room is made, instead of granting it once more. */
static void a_grant_that_the_card_refuses(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 3000, 0);
    join(2, (struct wish){.budget = 5000, .priority = 5});
    holds(2, 500, 0);
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_null(told(ULL_DO_GRANT, 2));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    must(tell(ULL_ARB_SUSPENDED, 1, 3000, 0, SECOND));
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* Two of 5,000 on a card of 6,000: they take turns, and both end. */
static void equals_take_turns(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 5000});
    holds(2, 500, 0);
    pass(5);
    must(tell(ULL_ARB_WANT, 2, 4000, 0, 0));
    assert_null(told(ULL_DO_SUSPEND, 1)); /* its turn is not over */
    pass(24);
    assert_null(told(ULL_DO_SUSPEND, 1));
    pass(1);
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    must(tell(ULL_ARB_SUSPENDED, 1, 5000, 0, 2 * SECOND));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_USE, 2, 4500, 0, 0));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    /* Swapping took 2 s, so a turn is 40 s now. */
    pass(39);
    assert_null(told(ULL_DO_SUSPEND, 2));
    pass(1);
    assert_non_null(told(ULL_DO_SUSPEND, 2));
    must(tell(ULL_ARB_SUSPENDED, 2, 4500, 0, SECOND));
    assert_non_null(told(ULL_DO_RESUME, 1));
    must(tell(ULL_ARB_RESUMED, 1, 0, 0, SECOND));
    must(tell(ULL_ARB_LEAVE, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_RESUME, 2));
}

/* A higher priority gets its room at once, the lower job comes back when it is gone. */
static void priority_goes_first(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 4000, .priority = 5});
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    assert_int_equal(told(ULL_DO_SUSPEND, 1)->for_job, 2);
    must(tell(ULL_ARB_SUSPENDED, 1, 5000, 0, SECOND));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_USE, 2, 3000, 0, 0));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    pass(100);
    assert_int_equal(state_of(1), ULL_JOB_SUSPENDED);
    must(tell(ULL_ARB_LEAVE, 2, 0, 0, 0));
    assert_non_null(told(ULL_DO_RESUME, 1));
}

/* Caches go before anybody is moved, and only as much as is missing. */
static void caches_go_first(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 4000, 1500);
    join(2, (struct wish){.budget = 4000, .priority = 1});
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    assert_null(told(ULL_DO_SUSPEND, 1));
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 1000);
    must(tell(ULL_ARB_USE, 1, 3000, 500, 0));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* While a higher one waits, the lower one does not grow; afterwards it may again. */
static void soft_budgets_shrink(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .request = 1000, .fixed = true});
    holds(1, 2500, 0);
    join(2, (struct wish){.budget = 5000, .priority = 1});
    holds(2, 3000, 0);
    must(tell(ULL_ARB_WANT, 2, 1000, 0, 0));
    assert_int_equal(told(ULL_DO_BUDGET, 1)->bytes, 2500);
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    assert_int_equal(told(ULL_DO_BUDGET, 1)->bytes, 5000);
}

/* Who is promised something gets it from anybody, also from a higher one that holds more than its own. */
static void promises_are_kept(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 6000, .request = 1000, .priority = 9});
    holds(1, 5500, 0);
    join(2, (struct wish){.budget = 4000, .request = 3000});
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    must(tell(ULL_ARB_SUSPENDED, 1, 5500, 0, SECOND));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_USE, 2, 3000, 0, 0));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    pass(3600);
    assert_int_equal(state_of(2), ULL_JOB_RUNNING); /* within its request: nobody moves it out */
    must(tell(ULL_ARB_WANT, 2, 1000, 0, 0)); /* beyond it, it is worth what its priority is */
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
}

/* The sum of what is firm does not pass the card. */
static void no_empty_promises(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 4000, .request = 4000});
    join(2, (struct wish){.budget = 4000, .request = 2500});
    assert_non_null(told(ULL_DO_REFUSE, 2));
    join(3, (struct wish){.budget = 4000, .request = 2500, .room = 2500, .queues = true});
    assert_int_equal(state_of(3), ULL_JOB_WAITING);
    join(4, (struct wish){.budget = 4000, .request = 2000});
    assert_null(told(ULL_DO_REFUSE, 4));
    must(tell(ULL_ARB_LEAVE, 4, 0, 0, 0));
    assert_int_equal(state_of(3), ULL_JOB_WAITING);
    must(tell(ULL_ARB_LEAVE, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_START, 3));
}

/* Two that cannot be moved out share what is not promised, so that together they leave the promise. */
static void fixed_ones_share_the_rest(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 6000, .fixed = true});
    join(2, (struct wish){.budget = 6000, .fixed = true});
    join(3, (struct wish){.budget = 2000, .request = 2000});
    struct ull__arbiter_view one, two;
    assert_true(ull__arbiter_job(arbiter, 1, &one) && ull__arbiter_job(arbiter, 2, &two));
    assert_int_equal(one.soft[0] + two.soft[0], 4000);
    holds(1, 2000, 0);
    holds(3, 2000, 0); /* nothing promised is open any more */
    assert_true(ull__arbiter_job(arbiter, 2, &two));
    assert_int_equal(two.soft[0], 2000);
    must(tell(ULL_ARB_LEAVE, 3, 0, 0, 0));
    assert_true(ull__arbiter_job(arbiter, 2, &two));
    assert_int_equal(two.soft[0], 4000);
}

/* With nobody to take from, an allocation fails after a minute, if its job cannot step aside. */
static void an_allocation_waits_a_minute(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .fixed = true, .priority = 1});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 3000, .fixed = true});
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    pass(59);
    assert_null(told(ULL_DO_DENY, 2));
    assert_int_equal(ull__arbiter_deadline(arbiter), (now_s + 1) * SECOND);
    pass(1);
    assert_non_null(told(ULL_DO_DENY, 2));
}

static void a_stuck_job_steps_aside(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .fixed = true, .priority = 1});
    holds(1, 4500, 0);
    join(2, (struct wish){.budget = 3000});
    holds(2, 1000, 0);
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    pass(30);
    assert_non_null(told(ULL_DO_SUSPEND, 2));
    must(tell(ULL_ARB_SUSPENDED, 2, 1000, 0, SECOND));
    pass(3600); /* the clock of its allocation stands */
    must(tell(ULL_ARB_LEAVE, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_RESUME, 2));
    must(tell(ULL_ARB_RESUMED, 2, 0, 0, SECOND));
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* Beyond its request a job that may spill does, rather than that somebody is moved. */
static void spills_before_it_moves_others(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 5000, .spills = 3000, .priority = 1});
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_null(told(ULL_DO_SUSPEND, 1));
    assert_int_equal(told(ULL_DO_SPILL, 2)->bytes, 1);
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    must(tell(ULL_ARB_LEAVE, 1, 0, 0, 0));
    pass(1);
    pass(10);
    struct ull__arbiter_view view;
    assert_true(ull__arbiter_job(arbiter, 2, &view));
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_null(told(ULL_DO_SPILL, 2)); /* it takes the card's again: that was told before */
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* What cannot lie in host memory, as a context, is asked for again: then it waits for the card as any other. */
static void spills_in_vain_once(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 5000, .spills = 3000, .priority = 1});
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_null(told(ULL_DO_GRANT, 2));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    must(tell(ULL_ARB_FAILED, 1, 0, 0, 0)); /* it stays where it is */
    must(tell(ULL_ARB_WANT, 2, 1500, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2)); /* another one may */
}

/* What a refusal showed to be missing is not missing for longer because somebody else asks for what is spilled. */
static void a_refusal_is_forgotten_while_others_spill(void **state)
{
    (void)state;
    bool granted = false;
    join(1, (struct wish){.budget = 3000, .priority = 1});
    holds(1, 1000, 0);
    join(2, (struct wish){.budget = 5000, .spills = 3000});
    must(tell(ULL_ARB_WANT, 1, 2000, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 1));
    must(tell(ULL_ARB_WANT, 1, 2000, 0, 0)); /* the card refused */
    assert_null(told(ULL_DO_GRANT, 1));
    for (int s = 0; s < 10; s++) {
        for (int i = 0; i < 2; i++)
            must(tell(ULL_ARB_WANT, 2, 500, 0, 0));
        must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
        pass(1);
        granted |= told(ULL_DO_GRANT, 1) != NULL;
    }
    assert_true(granted);
}

/* It spills no more than it may; what it has spilled takes of the host's room for others. */
static void spills_within_bounds(void **state)
{
    (void)state;
    struct ull__arbiter_event use = {.kind = ULL_ARB_USE, .job = 2, .spilled = 1500};
    join(1, (struct wish){.budget = 6000, .fixed = true});
    holds(1, 6000, 0);
    join(2, (struct wish){.budget = 5000, .spills = 2000, .fixed = true});
    must(tell(ULL_ARB_WANT, 2, 1500, 0, 0)); /* also where promises are in its way */
    assert_non_null(told(ULL_DO_SPILL, 2));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(ull__arbiter_step(arbiter, &use, now_s * SECOND, &actions, &action_count, NULL));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    must(tell(ULL_ARB_WANT, 2, 600, 0, 0));
    assert_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_WANT, 2, 500, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2));
    must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
    must(tell(ULL_ARB_HOST, 0, 0, 0, 1900));
    must(tell(ULL_ARB_WANT, 2, 500, 0, 0));
    assert_null(told(ULL_DO_GRANT, 2));
}

/* Idle caches, then the host: in that order. */
static void trims_before_it_spills(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 1500);
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0)); /* of what was above the watermark; it gave nothing */
    pass(11);
    holds(1, 5000, 1500);
    join(2, (struct wish){.budget = 5000, .spills = 9000});
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 1000);
    assert_null(told(ULL_DO_SPILL, 2));
    must(tell(ULL_ARB_USE, 1, 4000, 500, 0));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_null(told(ULL_DO_SPILL, 2));
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* What a job that cannot be moved out only keeps is trimmed before it is promised to another, not after. */
static void caches_go_before_a_promise(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .fixed = true, .request = 1000});
    holds(1, 4000, 3500);
    join(2, (struct wish){.budget = 4000, .request = 3500, .asks = true});
    assert_null(told(ULL_DO_REFUSE, 2));
    assert_null(told(ULL_DO_START, 2));
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 1500);
    assert_int_equal(told(ULL_DO_TRIM, 1)->for_job, 2);
    assert_int_equal(told(ULL_DO_BUDGET, 1)->bytes, 1000); /* nor does it grow again meanwhile */
    must(tell(ULL_ARB_USE, 1, 2500, 2000, 0));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_START, 2));
    must(tell(ULL_ARB_LEAVE, 2, 0, 0, 0));
    /* Below what it was promised itself nothing can be given. */
    join(3, (struct wish){.budget = 6000, .request = 5500, .asks = true});
    assert_non_null(told(ULL_DO_REFUSE, 3));
    /* It does not do it: who asked is refused in the end. */
    holds(1, 4000, 3500);
    join(4, (struct wish){.budget = 4000, .request = 3500, .asks = true});
    assert_non_null(told(ULL_DO_TRIM, 1));
    pass(2);
    assert_null(told(ULL_DO_REFUSE, 4));
    pass(2);
    assert_non_null(told(ULL_DO_REFUSE, 4));
    struct ull__arbiter_view view;
    assert_false(ull__arbiter_job(arbiter, 4, &view));
}

/* The same for an allocation of a job that could not be moved out of it again. */
static void caches_go_before_a_fixed_one_grows(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .fixed = true});
    holds(1, 4000, 3000);
    join(2, (struct wish){.budget = 5000, .fixed = true});
    holds(2, 1500, 0);
    must(tell(ULL_ARB_WANT, 2, 2500, 0, 0));
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 2000);
    must(tell(ULL_ARB_USE, 1, 3000, 2000, 0)); /* it used some again: there is more to ask for */
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_null(told(ULL_DO_GRANT, 2));
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 1000);
    must(tell(ULL_ARB_USE, 1, 2000, 1000, 0));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_GRANT, 2));
}

/* One that gives nothing, or no answer, is not asked all the time. */
static void trims_are_not_repeated_in_vain(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .fixed = true});
    holds(1, 4000, 3000);
    join(2, (struct wish){.budget = 5000});
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    assert_non_null(told(ULL_DO_TRIM, 1));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    assert_null(told(ULL_DO_TRIM, 1));
    pass(1);
    assert_non_null(told(ULL_DO_TRIM, 1));
    pass(2); /* no answer */
    assert_null(told(ULL_DO_TRIM, 1));
    pass(9);
    assert_null(told(ULL_DO_TRIM, 1));
    pass(1);
    assert_non_null(told(ULL_DO_TRIM, 1));
}

/* What a person suspended only a person resumes. */
static void by_a_person(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 3000});
    holds(1, 3000, 0);
    assert_int_equal(tell(ULL_ARB_USER_RESUME, 1, 0, 0, 0), ULL_E_INVALID);
    must(tell(ULL_ARB_USER_SUSPEND, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    assert_int_equal(tell(ULL_ARB_USER_SUSPEND, 1, 0, 0, 0), ULL_E_INVALID);
    must(tell(ULL_ARB_SUSPENDED, 1, 3000, 0, SECOND));
    pass(10000);
    assert_int_equal(state_of(1), ULL_JOB_SUSPENDED);
    must(tell(ULL_ARB_USER_RESUME, 1, 0, 0, 0));
    assert_non_null(told(ULL_DO_RESUME, 1));
    join(2, (struct wish){.budget = 100, .fixed = true});
    assert_int_equal(tell(ULL_ARB_USER_SUSPEND, 2, 0, 0, 0), ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_USER_SUSPEND, 77, 0, 0, 0), ULL_E_NOT_FOUND);
}

/* A job that is moved out soon after it came back stays out longer each time. */
static void does_not_thrash(void **state)
{
    (void)state;
    uint64_t waited[4];
    join(1, (struct wish){.budget = 5000});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 4000, .priority = 1});
    for (int round = 0; round < 4; round++) {
        must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
        assert_non_null(told(ULL_DO_SUSPEND, 1));
        must(tell(ULL_ARB_SUSPENDED, 1, 5000, 0, SECOND));
        must(tell(ULL_ARB_USE, 2, 3000, 0, 0));
        must(tell(ULL_ARB_WANT_OVER, 2, 0, 0, 0));
        must(tell(ULL_ARB_USE, 2, 0, 0, 0));
        pass(6); /* what was granted is not set aside any more */
        for (waited[round] = 6; state_of(1) != ULL_JOB_RESUMING; waited[round]++)
            pass(1);
        must(tell(ULL_ARB_RESUMED, 1, 0, 0, SECOND));
        holds(1, 5000, 0);
        pass(1);
    }
    assert_true(waited[0] < 10 && waited[1] >= 30 && waited[2] >= 60 && waited[3] >= 120);
}

/* After the patience a lower job's turn comes, though not at the cost of a promise. */
static void waiting_makes_older(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 5000, .priority = 1});
    holds(1, 5000, 0);
    join(2, (struct wish){.budget = 5000});
    holds(2, 1000, 0);
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    pass(30);
    assert_non_null(told(ULL_DO_SUSPEND, 2)); /* stuck: it waits outside */
    must(tell(ULL_ARB_SUSPENDED, 2, 1000, 0, SECOND));
    pass(569);
    assert_int_equal(state_of(1), ULL_JOB_RUNNING);
    pass(2 * 600);
    assert_non_null(told(ULL_DO_SUSPEND, 1));
}

/* All of a group or none. */
static void groups_stay_together(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 2000, .group = 7});
    holds(1, 500, 0);
    join(2, (struct wish){.budget = 4000, .group = 7});
    holds(2, 3500, 0);
    join(3, (struct wish){.budget = 3000, .priority = 1});
    must(tell(ULL_ARB_WANT, 3, 2600, 0, 0));
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    assert_non_null(told(ULL_DO_SUSPEND, 2));
    must(tell(ULL_ARB_SUSPENDED, 1, 500, 0, SECOND));
    must(tell(ULL_ARB_FAILED, 2, 0, 0, 0)); /* one could not: the other comes back */
    assert_non_null(told(ULL_DO_RESUME, 1));
}

/* The budget that follows use: never below the request or a tenth of the card, nor above the card. */
static void automatic_budgets(void **state)
{
    (void)state;
    struct ull__arbiter_view view;
    join(1, (struct wish){.budget = 6000, .request = 300, .automatic = true});
    join(2, (struct wish){.budget = 6000});
    holds(2, 6000, 0);
    assert_true(ull__arbiter_job(arbiter, 1, &view));
    assert_int_equal(view.budget[0], 600);
    must(tell(ULL_ARB_USE, 2, 0, 0, 0));
    holds(1, 5500, 0);
    assert_true(ull__arbiter_job(arbiter, 1, &view));
    assert_int_equal(view.budget[0], 6000);
}

/* Above the watermark caches are trimmed ahead; what grows back at once raises it, waiting lowers it. */
static void the_watermark_adapts(void **state)
{
    (void)state;
    double before = ull__arbiter_watermark(arbiter, 0);
    assert_true(before > 0.699 && before < 0.701);
    join(1, (struct wish){.budget = 6000});
    holds(1, 5000, 2000);
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 800);
    must(tell(ULL_ARB_USE, 1, 4200, 1200, 0));
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    holds(1, 5000, 0);
    assert_true(ull__arbiter_watermark(arbiter, 0) > before);
    before = ull__arbiter_watermark(arbiter, 0);
    holds(1, 5000, 2000);
    join(2, (struct wish){.budget = 3000});
    must(tell(ULL_ARB_WANT, 2, 2000, 0, 0));
    assert_true(ull__arbiter_watermark(arbiter, 0) < before);
}

/* Of those that have idle caches the lowest goes first, and the largest of equals. */
static void ahead_of_need_the_lowest_gives(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 3000, .priority = 1});
    join(2, (struct wish){.budget = 3000});
    join(3, (struct wish){.budget = 3000});
    must(tell(ULL_ARB_USE, 1, 2000, 1500, 0));
    must(tell(ULL_ARB_USE, 2, 1500, 300, 0));
    must(tell(ULL_ARB_USE, 3, 1500, 400, 0));
    must(tell(ULL_ARB_TICK, 0, 0, 0, 0));
    assert_int_equal(told(ULL_DO_TRIM, 3)->bytes, 400);
    assert_int_equal(told(ULL_DO_TRIM, 2)->bytes, 300);
    assert_int_equal(told(ULL_DO_TRIM, 1)->bytes, 100);
    must(tell(ULL_ARB_USE, 3, 1100, 0, 0));
    must(tell(ULL_ARB_TRIMMED, 3, 0, 0, 0));
    assert_null(told(ULL_DO_TRIM, 3));
    /* What grows back much later is no sign of anything. */
    pass(61);
    double before = ull__arbiter_watermark(arbiter, 0);
    holds(3, 1500, 0);
    assert_true(ull__arbiter_watermark(arbiter, 0) == before);
}

/* Other options hold from then on; what the watermark learned stays unless it is set anew. */
static void options_change(void **state)
{
    (void)state;
    struct ull_error err;
    struct ull__arbiter_options other = {.slice_ns = 5 * SECOND, .host_bytes = 100000};
    join(1, (struct wish){.budget = 5000});
    holds(1, 4000, 2500);
    join(2, (struct wish){.budget = 5000});
    must(tell(ULL_ARB_WANT, 2, 3000, 0, 0));
    double learned = ull__arbiter_watermark(arbiter, 0);
    assert_true(learned < 0.70);
    must(ull__arbiter_configure(arbiter, &other, &err));
    assert_true(ull__arbiter_watermark(arbiter, 0) == learned);
    holds(1, 4000, 0);
    must(tell(ULL_ARB_TRIMMED, 1, 0, 0, 0));
    pass(4);
    assert_null(told(ULL_DO_SUSPEND, 1));
    pass(1);
    assert_non_null(told(ULL_DO_SUSPEND, 1));
    other.watermark = 0.8;
    must(ull__arbiter_configure(arbiter, &other, &err));
    assert_true(ull__arbiter_watermark(arbiter, 0) == 0.8);
    other.watermark = 0.3;
    assert_int_equal(ull__arbiter_configure(arbiter, &other, &err), ULL_E_INVALID);
    assert_true(ull__arbiter_watermark(arbiter, 0) == 0.8);
}

static void nonsense_changes_nothing(void **state)
{
    (void)state;
    join(1, (struct wish){.budget = 3000});
    assert_int_equal(try_join(1, (struct wish){.budget = 3000}), ULL_E_INVALID);
    assert_int_equal(try_join(2, (struct wish){.budget = 3000, .request = 3001}), ULL_E_INVALID);
    assert_int_equal(try_join(2, (struct wish){.budget = 9000, .room = 6001, .queues = true}),
                     ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_BUDGET, 1, CARD + 1, 0, 0), ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_WANT, 1, 3001, 0, 0), ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_SUSPENDED, 1, 0, 0, 0), ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_RESUMED, 1, 0, 0, 0), ULL_E_INVALID);
    assert_int_equal(tell(ULL_ARB_FAILED, 1, 0, 0, 0), ULL_E_INVALID);
    assert_int_equal(state_of(1), ULL_JOB_RUNNING);
    for (uint64_t job = 2; job <= ULL_ARBITER_JOBS; job++)
        join(job, (struct wish){.budget = 1});
    assert_int_equal(try_join(99999, (struct wish){.budget = 1}), ULL_E_FULL);
    struct ull__arbiter *none;
    struct ull_error err;
    struct ull__arbiter_options bad = {.device_count = 1, .watermark = 0.95};
    assert_int_equal(ull__arbiter_create(&bad, &none, &err), ULL_E_INVALID);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_grant_that_the_card_refuses),
        TEST(equals_take_turns),
        TEST(priority_goes_first),
        TEST(caches_go_first),
        TEST(soft_budgets_shrink),
        TEST(promises_are_kept),
        TEST(no_empty_promises),
        TEST(fixed_ones_share_the_rest),
        TEST(an_allocation_waits_a_minute),
        TEST(a_stuck_job_steps_aside),
        TEST(spills_before_it_moves_others),
        TEST(spills_in_vain_once),
        TEST(a_refusal_is_forgotten_while_others_spill),
        TEST(spills_within_bounds),
        TEST(trims_before_it_spills),
        TEST(caches_go_before_a_promise),
        TEST(caches_go_before_a_fixed_one_grows),
        TEST(trims_are_not_repeated_in_vain),
        TEST(by_a_person),
        TEST(does_not_thrash),
        TEST(waiting_makes_older),
        TEST(groups_stay_together),
        TEST(automatic_budgets),
        TEST(the_watermark_adapts),
        TEST(ahead_of_need_the_lowest_gives),
        TEST(options_change),
        TEST(nonsense_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
