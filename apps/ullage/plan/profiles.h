/* profiles.h: devices by name: built in, or a file of one's own. */
#ifndef ULLAGE_PLAN_PROFILES_H
#define ULLAGE_PLAN_PROFILES_H

#include "profile.h"
#include "ullage/status.h"

/* The text of the built-in profile i, NULL after the last. */
const char *plan_profile_text(int i);
/* Reads a profile: every figure has to be there and in range. `name` is for messages. ULL_E_INVALID. */
ull_status plan_profile_read(const char *text, const char *name, struct ull__profile *profile,
                             struct ull_error *err);
/*
 * A built-in device, or a file whose name has a '/' or ends in ".json". ULL_E_NOT_FOUND: no such device (the message has the
 * nearest names); ULL_E_INVALID: a bad file.
 */
ull_status plan_profile_find(const char *name, struct ull__profile *profile, struct ull_error *err);

#endif
