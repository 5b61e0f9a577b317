/*
 * test_verdict.c: verdicts on the labelled set.
 *
 * `test_verdict` plays every scene with a few seeds, whose verdicts must all be right, then with seeds that were
 * not looked at while the method was made, of which 97 of 100 must be. `test_verdict NAME SEED` explains one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "scenes.h"

enum { KNOWN = 3, HELD_OUT_FIRST = 50000 };

static const char *names_of(unsigned int mask)
{
    static char text[64];
    text[0] = 0;
    for (int k = 0; k < 4; k++) {
        if (mask >> k & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] ? " or " : "",
                     ull__verdict_name((enum ull__verdict_kind)k));
    }
    return text;
}

static void explain(const struct ull__verdict *verdict)
{
    printf("#   %s, %.3f\n", ull__verdict_name(verdict->kind), verdict->confidence);
    for (int i = 0; i < verdict->evidence_count; i++)
        printf("#   - %s\n", verdict->evidence[i]);
}

/* True if the verdict is right; else, or if `loud`, it is explained. */
static bool judge(const struct scene *scene, uint64_t seed, bool loud)
{
    struct ull__history *history = scene->play(seed);
    struct ull__facts *facts = ull__facts_create(history);
    struct ull__verdict verdict;
    struct ull_error err = {""};
    ull_status status = ULL_E_SYSTEM;
    if (facts)
        status = scene->device ? ull__verdict_device(facts, &verdict, &err)
                               : ull__verdict_host(facts, &verdict, &err);
    unsigned int wanted = scene->device ? scene->device : scene->host;
    if (scene->varies && facts && facts->processes[0].chunks)
        wanted |= IS(CACHE);
    bool right = status == ULL_OK && (wanted >> verdict.kind & 1);
    if (right && verdict.kind == ULL_VERDICT_LEAK)
        right = verdict.process == scene->leaker && verdict.confidence > 0.5;
    /* Whatever is said has a reason. */
    right = right && verdict.evidence_count > 0 && verdict.confidence >= 0 && verdict.confidence <= 1;
    if (!right || loud) {
        printf("# %s, seed %llu, %zu events: expected %s\n", scene->name, (unsigned long long)seed,
               history->event_count, names_of(wanted));
        if (status == ULL_OK)
            explain(&verdict);
        else
            printf("#   %s\n", err.message);
    }
    ull__facts_destroy(facts);
    ull__history_destroy(history);
    return right;
}

static int explain_one(const char *name, uint64_t seed)
{
    for (int s = 0; s < scene_count; s++) {
        if (strcmp(scenes[s].name, name) == 0)
            return judge(&scenes[s], seed, true) ? 0 : 1;
    }
    fprintf(stderr, "no scene '%s'\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return explain_one(argv[1], strtoull(argv[2], NULL, 10));
    int held_out = argc == 2 ? atoi(argv[1]) : 8, number = 0, failed = 0, wrong = 0, total = 0;
    for (int s = 0; s < scene_count; s++) {
        int right = 0;
        for (uint64_t seed = 1; seed <= KNOWN; seed++)
            right += judge(&scenes[s], seed, false);
        failed += right != KNOWN;
        printf("%s %d - %s\n", right == KNOWN ? "ok" : "not ok", ++number, scenes[s].name);
    }
    for (int s = 0; s < scene_count; s++) {
        int bad = 0;
        for (int i = 0; i < held_out; i++)
            bad += !judge(&scenes[s], (uint64_t)(HELD_OUT_FIRST + i), false);
        if (bad)
            printf("# %s: %d of %d wrong\n", scenes[s].name, bad, held_out);
        wrong += bad;
        total += held_out;
    }
    double accuracy = total ? 1 - (double)wrong / total : 1;
    bool enough = accuracy >= 0.97;
    failed += !enough;
    printf("# %d of %d recordings that were not looked at are judged rightly: %.2f %%\n",
           total - wrong, total, accuracy * 100);
    printf("%s %d - at least 97 of 100 others are right\n", enough ? "ok" : "not ok", ++number);
    printf("1..%d\n", number);
    return failed ? 1 : 0;
}
