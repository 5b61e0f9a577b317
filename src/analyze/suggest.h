/*
 * suggest.h: which limit to set next time, from what was needed this time. The one place of that rule.
 */
#ifndef ULLAGE_SUGGEST_H
#define ULLAGE_SUGGEST_H

#include <stdint.h>

enum ull__role { ULL_ROLE_TRAINING, ULL_ROLE_INFERENCE };

/*
 * needed x 1.2 for training, x 1.4 for inference, whose load is less even; at least 0.5 GiB more than needed,
 * rounded up to 0.1 GiB, never above the card (total 0: not known). 0 if nothing was needed.
 */
uint64_t ull__suggest(uint64_t needed_bytes, uint64_t total_bytes, enum ull__role role);

/* As -m takes it: "4.1GiB"; "100%" where tenths do not fit, which is only the card's own size. */
#define ULL_SUGGEST_TEXT 32
const char *ull__suggest_text(uint64_t bytes, char buffer[ULL_SUGGEST_TEXT]);

/* Up to the next tenth of a GiB, as a person would write a limit. */
uint64_t ull__round_up_tenth(uint64_t bytes);

#endif
