/*
 * make_optima.c: writes optima.csv: for random models of a size, the least time of a step within some budgets.
 *
 *     make_optima FIRST_SEED LAST_SEED NODES >>optima.csv
 *
 * Takes seconds to minutes for each model of 25 nodes. What needs too long is left out, and said on standard error.
 */
#include "exact.h"

enum { NODES_MOST = 60000000 };

/* The least peak of all decisions, at most `most`. */
static int64_t smallest_peak(const struct ull__program *program, int64_t most)
{
    int64_t low = 0, high = most;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        long looked;
        if (exact_best(program, middle, 1e9, NODES_MOST, &looked) < 1e9) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return high;
}

static void find(uint64_t seed, int nodes)
{
    static const double shares[] = {0.02, 0.25, 0.6};
    struct ull__graph *model = random_model(seed, nodes);
    struct ull__program *program = exact_program(model, OPTIMA_BATCH);
    struct ull__search_options options = {.fastest = true};
    struct ull__frontier frontier = {NULL, 0, 0};
    if (program == NULL || ull__search(program, &exact_device, &options, &frontier, NULL) != ULL_OK) {
        fprintf(stderr, "seed %d: no plan\n", (int)seed);
        exit(1);
    }
    int64_t most = frontier.entries[0].cost.peak_bytes;
    int64_t least = frontier.entries[frontier.count - 1].cost.peak_bytes;
    int64_t smallest = smallest_peak(program, least);
    if (smallest < least) {
        fprintf(stderr, "seed %d: ours needs %.2f %% more than what is possible\n", (int)seed,
                100 * ((double)least / (double)smallest - 1));
    }
    long looked;
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]) && most > least; ++i) {
        int64_t budget = smallest + (int64_t)(shares[i] * (double)(most - smallest));
        double ours = best_within(&frontier, budget);
        /* What only is as good need not be found again. */
        double below = ours * (1 - 1e-9);
        double best = exact_best(program, budget, below, NODES_MOST, &looked);
        best = best < below ? best : ours;
        if (looked >= NODES_MOST) {
            fprintf(stderr, "seed %d, budget %lld: left out\n", (int)seed, (long long)budget);
            continue;
        }
        printf("%d,%d,%lld,%.17g\n", (int)seed, nodes, (long long)budget, best);
        fflush(stdout);
        fprintf(stderr, "seed %d: %ld nodes, ours is %.3f %% above\n", (int)seed, looked,
                100 * (ours / best - 1));
    }
    ull__frontier_finish(&frontier);
    ull__program_destroy(program);
    ull__graph_destroy(model);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "expected FIRST_SEED LAST_SEED NODES\n");
        return 2;
    }
    for (int seed = atoi(argv[1]); seed <= atoi(argv[2]); ++seed) {
        find((uint64_t)seed, atoi(argv[3]));
    }
    return 0;
}
