/*
 * environ.h: the environment that makes a program and its children members of a job.
 */
#ifndef ULLAGE_ENVIRON_H
#define ULLAGE_ENVIRON_H

#include <stdbool.h>

#include "file.h"
#include "ullage/status.h"

struct preload_paths {
    char preload[ULL_FILE_PATH]; /* libullage-preload.so */
    char nvml[ULL_FILE_PATH];    /* libullage-nvml.so */
};

/*
 * Finds both libraries in $ULLAGE_LIBDIR, beside this executable, or in ../lib/ullage beside its folder.
 * ULL_E_NOT_FOUND; ULL_E_INVALID if the path has a blank or colon, which LD_PRELOAD cannot express.
 */
ull_status environ_find_libraries(struct preload_paths *paths, struct ull_error *err);

/* The value of LD_PRELOAD: our two in front of what is there, none of them twice. Caller frees. */
char *environ_preload_value(const struct preload_paths *paths, const char *present);

/* Sets ULLAGE_JOB, LD_PRELOAD, ULLAGE_LIBCUDA and ULLAGE_LIBNVML in this process. */
ull_status environ_enter_job(const struct preload_paths *paths, const char *ledger,
                             struct ull_error *err);

/*
 * --growth: what makes frameworks start small. Sets what the user did not set, says on standard error
 * which (unless quiet), and warns where the user's own value speaks against it.
 */
void environ_set_growth(bool quiet);

#endif
