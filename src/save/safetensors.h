/*
 * safetensors.h: named tensors in one file, in the format that Hugging Face's tools read and write.
 *
 * Eight bytes with the length of a JSON object, the object (for each tensor dtype, shape and where its
 * bytes are; "__metadata__" has texts by name), then the bytes. Tensors are written from where they lie
 * and read into where they go, so nothing is held twice. Reading is strict: every byte of the file
 * belongs to exactly one tensor of a known type whose shape has that size. Little-endian machines only.
 */
#ifndef ULLAGE_SAVE_SAFETENSORS_H
#define ULLAGE_SAVE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

/* Name, text in the file, bytes of an element. */
#define ULL_SAVE_TYPE_MAP(X)                                                                       \
    X(F64, "F64", 8)                                                                               \
    X(I64, "I64", 8)                                                                               \
    X(F32, "F32", 4)                                                                               \
    X(I32, "I32", 4)                                                                               \
    X(F16, "F16", 2)                                                                               \
    X(BF16, "BF16", 2)                                                                             \
    X(U8, "U8", 1)

enum ull__save_type {
#define X(name, text, bytes) ULL_SAVE_##name,
    ULL_SAVE_TYPE_MAP(X)
#undef X
        ULL_SAVE_TYPES
};

enum { ULL_SAVE_RANK = 8, ULL_SAVE_NAME = 256 };

struct ull__save_tensor {
    const char *name; /* 1 to ULL_SAVE_NAME - 1 bytes of UTF-8, no other one's */
    enum ull__save_type type;
    int rank; /* 0: one element */
    int64_t shape[ULL_SAVE_RANK];
    void *data; /* where it lies; only read when it is written */
};

/* A text that goes into the file beside the tensors. */
struct ull__save_text {
    const char *key, *value;
};

/* Bytes of a tensor's data; false: rank or shape make no sense, or more than 2^62 bytes. */
bool ull__save_tensor_bytes(const struct ull__save_tensor *tensor, uint64_t *bytes);
const char *ull__save_type_text(enum ull__save_type type);

/*
 * Writes to an open file from its current place on. *size and *checksum (crc32) are of all that was
 * written. The caller flushes. ULL_E_INVALID (a name twice, a shape), ULL_E_SYSTEM with the reason, as a
 * disk that is full; then the file has some part of it. `path` is for messages.
 */
ull_status ull__safetensors_write(int fd, const char *path, const struct ull__save_tensor *tensors,
                                  size_t count, const struct ull__save_text *texts, size_t text_count,
                                  uint64_t *size, uint32_t *checksum, struct ull_error *err);

struct ull__safetensors;

/* Reads and checks the head. ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM, ULL_E_FORMAT. Caller closes. */
ull_status ull__safetensors_open(const char *path, struct ull__safetensors **file,
                                 struct ull_error *err);
void ull__safetensors_close(struct ull__safetensors *file);

size_t ull__safetensors_count(const struct ull__safetensors *file);
/* The i-th, in the order of their bytes, with data NULL; the file's. */
const struct ull__save_tensor *ull__safetensors_at(const struct ull__safetensors *file, size_t i);
/* NULL: none of that name. */
const struct ull__save_tensor *ull__safetensors_find(const struct ull__safetensors *file,
                                                     const char *name);
const char *ull__safetensors_text(const struct ull__safetensors *file, const char *key);

/*
 * Reads the tensor of that name into tensor->data; name, type and shape must be those of the file.
 * ULL_E_NOT_FOUND, ULL_E_FORMAT with both shapes, ULL_E_SYSTEM. Several threads may read one file.
 */
ull_status ull__safetensors_read(const struct ull__safetensors *file,
                                 const struct ull__save_tensor *tensor, struct ull_error *err);
/* All of them; with `exact`, the file has no other. Nothing is read if one does not fit. */
ull_status ull__safetensors_read_all(const struct ull__safetensors *file,
                                     const struct ull__save_tensor *tensors, size_t count,
                                     bool exact, struct ull_error *err);

/* crc32 of a whole file and its size. */
ull_status ull__safetensors_checksum(const char *path, uint64_t *size, uint32_t *checksum,
                                     struct ull_error *err);

#endif
