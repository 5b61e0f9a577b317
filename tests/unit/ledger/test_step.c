/*
 * test_step.c: SIGKILL at every instruction of every kind of change, and of a recovery.
 *
 * For each kind a child is stepped through the change once to count its instructions; then for every
 * number n a fresh child is stepped n instructions far and killed there. This process is a member
 * too (the witness): it prepares what the kind needs, may overwrite the tag of the change that was
 * cut off, is an heir, and shows afterwards that the whole budget can be had. A few are missed, and
 * killed at the end instead, since the way through the C library's clock is not always the same, least of
 * all on a busy machine; each is tried again.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "member_private.h"
#include "stepper.h"
#include "support.h"

enum { BUDGET = 1000, PART = 300, KEY = 7, TRIES = 4, WARM = 8 };

static struct ull__ledger *ledger;  /* the job */
static struct ull__ledger *outer;   /* the job around it, for the kinds with two ledgers */
static struct ull__member *witness; /* in the job */
static struct ull__member *owner;   /* a second member of this process, for memory named by it */
static const char *job;             /* path that children join */

struct kind {
    const char *name;
    bool nested;
    bool join_too;                             /* joining is part of what is stepped through */
    void (*prepare)(struct ull__member *self); /* the child, before */
    void (*meanwhile)(void);                   /* the witness, before the child goes on */
    void (*change)(struct ull__member *self);  /* the child, stepped */
    uint64_t lives_on;                         /* bytes that the witness has then */
    void (*clean_up)(void);                    /* the witness gives them back */
};

/* --- the kinds ---------------------------------------------------------------------------------- */

static void reserve(struct ull__member *self)
{
    ull__member_reserve(self, 0, ULL_CLASS_DATA, PART);
}

static void release(struct ull__member *self)
{
    ull__member_release(self, 0, ULL_CLASS_DATA, PART);
}

static void reserve_and_release(struct ull__member *self)
{
    reserve(self);
    release(self);
}

static void charge(struct ull__member *self)
{
    ull__member_charge(self, 0, ULL_CLASS_MODULE, PART);
}

static void reserve_too_much(struct ull__member *self)
{
    ull__member_reserve(self, 0, ULL_CLASS_DATA, BUDGET + 1);
}

static void export(struct ull__member *self)
{
    ull__member_export(self, 0, ULL_CLASS_DATA, KEY, PART);
}

static void reserve_and_export(struct ull__member *self)
{
    reserve(self);
    export(self);
}

static void release_exported(struct ull__member *self)
{
    ull__member_release_exported(self, 0, ULL_CLASS_DATA, KEY, PART);
}

static void import(struct ull__member *self)
{
    ull__member_import(self, 0, KEY, PART);
}

static void import_closed(struct ull__member *self)
{
    ull__member_import_closed(self, 0, KEY, PART);
}

static void refuse(struct ull__member *self)
{
    struct ull__refusal refusal = {.wanted_bytes = BUDGET + 1, .class = ULL_CLASS_DATA};
    uint64_t suppressed;
    ull__member_refused(self, &refusal, &suppressed);
    ull__member_granted(self, 0, 1);
}

static void nothing(struct ull__member *self)
{
    (void)self;
}

static void owner_exports(void)
{
    reserve_and_export(owner);
}

static void owner_releases(void)
{
    release_exported(owner);
}

static void witness_imports(void)
{
    import(witness);
}

static void witness_closes(void)
{
    import_closed(witness);
}

/* The child has it open longer and so inherits; the witness has it open too. */
static void owner_passes_with_witness(void)
{
    import(witness);
    owner_releases();
}

/* So that every one is the first, whose line is due, and all go the same way. */
static void forget_refusals(void)
{
    atomic_store(&ledger->file->last_line_ns, 0);
    memset(ledger->file->refusal_ring, 0, sizeof ledger->file->refusal_ring);
}

static const struct kind kinds[] = {
    {"join", .join_too = true, .prepare = nothing, .change = nothing},
    {"join, nested", .nested = true, .join_too = true, .prepare = nothing, .change = nothing},
    {"reserve, release", .prepare = nothing, .change = reserve_and_release},
    {"reserve, nested", .nested = true, .prepare = nothing, .change = reserve},
    {"release, nested", .nested = true, .prepare = reserve, .change = release},
    {"charge", .prepare = nothing, .change = charge},
    {"reserve too much", .prepare = nothing, .change = reserve_too_much},
    {"refuse", .prepare = reserve, .meanwhile = forget_refusals, .change = refuse},
    {"export", .prepare = reserve, .change = export},
    {"import", .prepare = nothing, .change = import},
    {"release exported", .prepare = reserve_and_export, .change = release_exported},
    {"release exported, heir", .prepare = reserve_and_export, .meanwhile = witness_imports,
     .change = release_exported, .lives_on = PART, .clean_up = witness_closes},
    {"import closed, inherited", .prepare = import, .meanwhile = owner_releases,
     .change = import_closed},
    {"import closed, inherited, heir", .prepare = import, .meanwhile = owner_passes_with_witness,
     .change = import_closed, .lives_on = PART, .clean_up = witness_closes},
};

/* With a pid that the driver is asked about: for an unknown one a recovery would wait. */
static struct ull__member *join_as_listed(void)
{
    struct ull__member *self = test_join(job);
    if (self)
        ull__member_set_driver_pid(self, 42);
    return self;
}

static int run_kind(void *data)
{
    const struct kind *kind = data;
    struct ull__member *self = kind->join_too ? NULL : join_as_listed();
    if (!kind->join_too && !self)
        return 1;
    kind->prepare(self);
    step_begin();
    if (kind->join_too)
        self = test_join(job);
    kind->change(self);
    step_end();
    return 0;
}

/* --- one death ---------------------------------------------------------------------------------- */

static void set_up(bool nested)
{
    struct ull__job_spec spec = test_spec(1, BUDGET);
    outer = nested ? test_create(&spec) : NULL;
    if (outer)
        snprintf(spec.parent, sizeof spec.parent, "%s", ull__ledger_path(outer));
    ledger = test_create(&spec);
    job = ull__ledger_path(ledger);
    witness = test_join(job);
    owner = test_join(job);
    assert_non_null(witness);
    assert_non_null(owner);
}

static void tear_down(void)
{
    test_die(witness);
    test_die(owner);
    test_forget(witness);
    test_forget(owner);
    test_destroy(ledger);
    if (outer)
        test_destroy(outer);
}

static void sweep(void)
{
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    if (outer)
        ull__ledger_sweep(outer, test_not_listed, NULL);
}

/* What must hold after every death: the witness's `bytes` are all that is left. */
static void check(const char *name, long at, uint64_t bytes)
{
    sweep();
    if (test_total(ledger, 0, 0) != bytes || test_slots_in_use(ledger) != 2)
        fail_msg("%s, killed at instruction %ld: total %llu, not %llu; %d slots", name, at,
                 (unsigned long long)test_total(ledger, 0, 0), (unsigned long long)bytes,
                 test_slots_in_use(ledger));
    test_assert_consistent(ledger);
    if (outer) {
        assert_int_equal(test_total(outer, 0, 0), bytes);
        assert_int_equal(test_slots_in_use(outer), 2);
        test_assert_consistent(outer);
    }
    struct ull__account_view view;
    assert_true(ull__ledger_account(ledger, 0, &view));
    /* Twice a part: of the child and the witness. A wrapped counter would be astronomic. */
    assert_true(view.usage[0].peak_bytes <= BUDGET);
    for (int c = 0; c < ULL_CLASSES; c++)
        assert_true(view.usage[0].peak_by_class[c] <= view.usage[0].peak_bytes);
}

static void check_all_is_free(const char *name, long at)
{
    check(name, at, 0);
    assert_int_equal(test_shares_in_use(ledger), 0);
    assert_int_equal(ull__member_reserve(witness, 0, ULL_CLASS_DATA, BUDGET), ULL_OK);
    assert_int_equal(ull__member_reserve(witness, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__member_release(witness, 0, ULL_CLASS_DATA, BUDGET);
    assert_int_equal(test_total(ledger, 0, 0), 0);
}

static int join_and_take_all(void *data)
{
    (void)data;
    struct ull__member *self = join_as_listed();
    return !self || ull__member_reserve(self, 0, ULL_CLASS_DATA, BUDGET) != ULL_OK;
}

static pid_t start(const struct kind *kind)
{
    if (kind->prepare == import)
        owner_exports();
    pid_t child = step_start(run_kind, (void *)kind);
    assert_true(child > 0);
    if (kind->meanwhile)
        kind->meanwhile();
    return child;
}

static struct step_trace trace;

/* After the death of a child in the middle of the change, or at its end. */
static void bury(const struct kind *kind, pid_t child, long n, bool overwrite)
{
    if (overwrite)
        ull__member_charge(witness, 0, ULL_CLASS_POOL, 1);
    step_kill(child);
    check(kind->name, n, kind->lives_on + overwrite);
    if (overwrite)
        ull__member_release(witness, 0, ULL_CLASS_POOL, 1);
    if (kind->clean_up)
        kind->clean_up();
    check_all_is_free(kind->name, n);
}

static void skip_if_impossible(void)
{
    if (TEST_TSAN || TEST_ASAN) {
        print_message(
            "skipped: a sanitizer's own instructions, ten times as many, would be stepped\n");
        skip();
    }
    if (!step_possible()) {
        print_message("skipped: no process can be traced here, or not on this processor\n");
        skip();
    }
}

static void kill_at_every_instruction(void **state)
{
    (void)state;
    skip_if_impossible();
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const struct kind *kind = &kinds[k];
        long missed = 0;
        set_up(kind->nested);
        /* The second one takes the way that all others take, unless it was disturbed. */
        for (long warm = 0, last = 0; warm < 2 || (warm < WARM && trace.count != last); warm++) {
            last = trace.count;
            pid_t child = start(kind);
            step_record(child, &trace);
            bury(kind, child, -1, false);
        }
        for (long n = 0; n < trace.count; n++) {
            for (int overwrite = 0; overwrite < (kind->join_too ? 1 : 2); overwrite++) {
                bool there = false;
                for (int i = 0; i < TRIES && !there; i++) {
                    pid_t child = start(kind);
                    there = step_run_to(child, &trace, n);
                    bury(kind, child, n, overwrite);
                }
                missed += !there;
            }
            if (n % 64 == 0) {
                assert_int_equal(test_wait(test_fork(join_and_take_all, NULL)), 0);
                check_all_is_free("a new process", n);
            }
        }
        print_message("%-32s killed at %ld instructions (%ld missed)\n", kind->name, trace.count,
                      missed);
        assert_true(trace.count > 20);
        assert_true(missed * 10 < trace.count);
        tear_down();
    }
}

/* --- a recovery that is killed ------------------------------------------------------------------ */

static struct step_trace victim_trace;

/* A process that dies right after the swap, before its books say so; for -1: at the end. */
static void make_victim(const struct kind *kind, long n)
{
    pid_t child = start(kind);
    if (n >= 0)
        step_run_to(child, &victim_trace, n);
    else
        step_run_to(child, &victim_trace, victim_trace.count - 1);
    step_kill(child);
}

/* The first instruction after the swap: from there on the cell's tag is another one. */
static long find_swap(const struct kind *kind)
{
    long before = 0, after = victim_trace.count - 1;
    while (after - before > 1) {
        long middle = (before + after) / 2;
        pid_t child = start(kind);
        union ull__cell *cell = &ledger->file->accounts[0].devices[0].cell;
        uint64_t tag = atomic_load(&cell->tag);
        step_run_to(child, &victim_trace, middle);
        if (atomic_load(&cell->tag) == tag)
            before = middle;
        else
            after = middle;
        bury(kind, child, middle, false);
    }
    return after;
}

static int recover(void *data)
{
    (void)data;
    step_begin();
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    step_end();
    return 0;
}

static void finish(const struct kind *kind, pid_t recoverer, long n)
{
    step_kill(recoverer);
    check(kind->name, n, kind->lives_on);
    if (kind->clean_up)
        kind->clean_up();
    check_all_is_free(kind->name, n);
}

static void kill_recoverer_of(const struct kind *kind, bool cut_off)
{
    set_up(false);
    pid_t child = start(kind);
    step_record(child, &victim_trace);
    bury(kind, child, -1, false);
    long swap = cut_off ? find_swap(kind) : -1;
    long missed = 0;
    for (long warm = 0, last = 0; warm < 2 || (warm < WARM && trace.count != last); warm++) {
        last = trace.count;
        make_victim(kind, swap);
        pid_t recoverer = step_start(recover, NULL);
        step_record(recoverer, &trace);
        finish(kind, recoverer, -1);
    }
    for (long n = 0; n < trace.count; n++) {
        bool there = false;
        for (int i = 0; i < TRIES && !there; i++) {
            make_victim(kind, swap);
            pid_t recoverer = step_start(recover, NULL);
            there = step_run_to(recoverer, &trace, n);
            finish(kind, recoverer, n);
        }
        missed += !there;
    }
    print_message("recovery of a dead \"%s\" (%s): killed at %ld instructions (%ld missed)\n",
                  kind->name, cut_off ? "cut off" : "whole", trace.count, missed);
    assert_true(missed * 10 < trace.count);
    tear_down();
}

static void kill_recoverer_at_every_instruction(void **state)
{
    (void)state;
    skip_if_impossible();
    static const char *const victims[] = {"charge", "release exported", "release exported, heir",
                                          "import closed, inherited"};
    for (size_t v = 0; v < sizeof victims / sizeof victims[0]; v++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (strcmp(kinds[k].name, victims[v]) == 0)
                kill_recoverer_of(&kinds[k], true);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (strcmp(kinds[k].name, "export") == 0 || strcmp(kinds[k].name, "charge") == 0)
            kill_recoverer_of(&kinds[k], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_at_every_instruction),
        cmocka_unit_test(kill_recoverer_at_every_instruction),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
