/*
 * account_kill.c: kills processes at random moments. Usage: account_kill PROGRAM ROUNDS SEED
 *
 * Keeps six processes at work at the edge of the budget (account_edge) and kills one of them, ROUNDS
 * times, between 0 and 12 ms after the last. When all are dead nothing may stay charged, and until the
 * card has let go of their memory, not less than the card has.
 */
#include "account.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 6 };

static pid_t engage(const char *program, unsigned int seed)
{
    char text[16];
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    snprintf(text, sizeof text, "%u", seed);
    execl(program, program, "mixed", "2", "1000000", text, "endless", (char *)NULL);
    _exit(127);
}

int main(int argc, char **argv)
{
    pid_t pids[PROCESSES];
    if (argc != 4)
        return 2;
    long rounds = strtol(argv[2], NULL, 10), killed = 0;
    unsigned int seed = (unsigned int)strtoul(argv[3], NULL, 10);
    seed_with(seed);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = engage(argv[1], ++seed);
    for (long round = 0; round < rounds; round++) {
        int i = (int)any(PROCESSES), status;
        usleep((useconds_t)any(12000));
        kill(pids[i], SIGKILL);
        waitpid(pids[i], &status, 0);
        if (!WIFSIGNALED(status))
            fail("a process ended with %d", WEXITSTATUS(status));
        killed++;
        pids[i] = engage(argv[1], ++seed);
    }
    for (int i = 0; i < PROCESSES; i++)
        kill(pids[i], SIGKILL);
    for (int i = 0; i < PROCESSES; i++)
        waitpid(pids[i], NULL, 0);
    for (int tries = 0; tries < 600; tries++) {
        uint64_t ours = held_by_nvml(0), cards = card_job(0);
        if (ours < cards)
            fail("%llu are charged, the card has %llu", (unsigned long long)ours,
                 (unsigned long long)cards);
        if (ours == 0) {
            printf("killed %ld\n", killed);
            return 0;
        }
        usleep(5000);
    }
    fail("%llu stay charged, the card has %llu", (unsigned long long)held_by_nvml(0),
         (unsigned long long)card_job(0));
}
