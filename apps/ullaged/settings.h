/*
 * settings.h: what the daemon was told: by its command line over the configuration file (conf.h).
 */
#ifndef ULLAGED_SETTINGS_H
#define ULLAGED_SETTINGS_H

#include <stdbool.h>
#include <sys/types.h>

#include "arbiter.h"
#include "connection.h"
#include "file.h"

struct settings {
    struct ull__arbiter_options arbiter; /* without devices */
    double host_percent;                 /* host_memory is this share of what was free; 0: a size */
    bool suspend_all;                    /* also jobs that were not started with --suspendable */
    bool has_operators;
    gid_t operators; /* members may act on everybody's jobs and take any priority */
    int max_priority;
    char socket[ULL_IPC_PATH];
    char listen[64]; /* ADDRESS:PORT of the page and the metrics; "": none */
    char token_file[ULL_FILE_PATH];
    char history[ULL_FILE_PATH]; /* "": none is kept */
    bool processes;              /* metrics of single processes too */
};

/* 0 to go on, -1 after --help or --version, else the exit code (a message was printed). */
int settings_parse(int argc, char **argv, struct settings *settings);

#endif
