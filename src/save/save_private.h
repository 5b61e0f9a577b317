/* save_private.h: what writing and reading share: names in a folder, and the state as JSON. */
#ifndef ULLAGE_SAVE_PRIVATE_H
#define ULLAGE_SAVE_PRIVATE_H

#include "save.h"

enum { ULL_SAVE_PATH = 4096 };

#define ULL_SAVE_MODEL "model.safetensors"
#define ULL_SAVE_REST "state.safetensors"
#define ULL_SAVE_STATE "state.json"

/* One file that the state vouches for. */
struct ull__save_file {
    uint64_t bytes;
    uint32_t checksum;
};

/* state.c. The text ends with a newline; caller frees. ULL_E_INVALID: data or options are no JSON. */
ull_status ull__save_state_write(const struct ull__save_state *state, struct ull__save_file model,
                                 struct ull__save_file rest, char **text, struct ull_error *err);
/* Texts and switches of the state are in *own, which ull__save_state_free frees. ULL_E_FORMAT. */
ull_status ull__save_state_read(const char *text, size_t size, struct ull__save_state *state,
                                struct ull__save_file *model, struct ull__save_file *rest,
                                void **own, struct ull_error *err);
void ull__save_state_free(void *own);

/* A save in a folder: step-NNNNNNNN, or step-NNNNNNNN.R where that step was saved once more. */
struct ull__save_name {
    uint64_t step, again;
    char text[64];
};

/* folder.c. */
bool ull__save_name_parse(const char *text, struct ull__save_name *name);
void ull__save_name_make(uint64_t step, uint64_t again, struct ull__save_name *name);
/* All saves of an open folder, the newest first. Caller frees. */
ull_status ull__save_list(int folder, const char *path, struct ull__save_name **names,
                          size_t *count, struct ull_error *err);
/* Removes a folder and the files in it; false with errno. */
bool ull__save_remove(int folder, const char *name);
/* The same for all that begin so, as far as it goes. */
void ull__save_remove_all(int folder, const char *prefix);

/* load.c. Opens one save and verifies all of it. ULL_E_NOT_FOUND: it is gone. */
ull_status ull__save_verify(const char *path, struct ull__saved *saved, struct ull_error *err);

#endif
