/* run_options.h: what the user of `ullage run` asked for: command line over environment over files. */
#ifndef ULLAGE_RUN_OPTIONS_H
#define ULLAGE_RUN_OPTIONS_H

#include "conf.h"
#include "devices.h"

struct run_options {
    struct ull__conf conf;
    struct budget budget;
    bool budget_from_call; /* -m was given, so a machine without a GPU is an error */
    const char *gpus;      /* -g or NULL */
    bool growth;
    bool each;
    bool quiet;
    uint64_t max_request; /* 0: no limit */
    const char *record;   /* --record or NULL */
    bool stacks;
    bool suspendable;
    bool driver_pools; /* of stream-ordered memory, though it is suspendable */
    uint64_t spill;    /* 0: nothing goes to host memory */
    uint64_t pinned;   /* host memory pinned ahead for suspensions */
    bool never_pins;   /* --pinned none */
    int priority;
    const char *group; /* --group or NULL */
    bool has_collective_timeout;
    unsigned int collective_timeout_s;
    struct budget request; /* --request, empty: none */
    struct budget prewarm; /* --prewarm SIZE, empty: none */
    bool prewarm_last;
    bool wait;        /* --wait */
    double wait_s;    /* 0: as long as it takes */
    const char *name; /* NULL: from the command */
    char **command;
};

/* 0 to go on, -1 after --help, else the exit code (a message was printed). */
int run_options_parse(int argc, char **argv, struct run_options *options);

/* "memory=4GiB (-m on the command line); growth=true (...)" for the ledger and all reports. */
void run_options_describe(const struct run_options *options, char *text, size_t size);

#endif
