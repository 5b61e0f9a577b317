/*
 * find.h: where the real driver libraries are.
 *
 * The interposer stands in under the SONAME of the driver, so the real library must be opened by its
 * path: the dynamic linker never takes a name with a slash for a library that is loaded under that
 * name. This looks where the linker would look, without asking it.
 */
#ifndef ULLAGE_FIND_H
#define ULLAGE_FIND_H

#include <stdbool.h>

enum { ULL_LIBRARY_PATH = 1024 };

/*
 * Finds `soname` ("libcuda.so.1"): in the folders of LD_LIBRARY_PATH, then the file that the variable
 * `env_name` (may be NULL) names, then in the usual folders. Only files for this machine's word size and
 * processor count; folders of link-time stubs and the stand-ins of ullage itself are passed over.
 * Writes an absolute path where it can. False if there is none; path is then untouched. Thread safe as
 * long as nobody changes the environment; no allocation.
 */
bool ull__find_library(const char *soname, const char *env_name, char path[ULL_LIBRARY_PATH]);

#endif
