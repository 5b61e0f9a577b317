/* safetensors_private.h: what writing and reading of tensors share. */
#ifndef ULLAGE_SAVE_SAFETENSORS_PRIVATE_H
#define ULLAGE_SAVE_SAFETENSORS_PRIVATE_H

#include "safetensors.h"

/* The format's own bound on the head; what is written or read at once. */
enum { ULL_SAVE_MOST_HEAD = 100000000, ULL_SAVE_CHUNK = 1 << 20 };

unsigned int ull__save_type_bytes(enum ull__save_type type);
bool ull__save_is_name(const char *name);
ull_status ull__save_fail(struct ull_error *err, int error, const char *what, const char *path);
ull_status ull__save_no_memory(struct ull_error *err, const char *path);

#endif
