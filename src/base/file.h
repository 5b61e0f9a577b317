/*
 * file.h: files written whole or not at all, and where a user's files live.
 *
 * A file is written without a name (where the file system has no such files, under a temporary one beside its place), flushed
 * to the disk and then named, so that a reader never sees half of it and an error leaves what was there before. A kill leaves
 * at most one whole file that is called as the other with ULL_FILE_SECOND behind, until that is written again. What is no regular file (a
 * terminal, a pipe, /dev/null), and what is the process's own descriptor whatever is behind it (/dev/stdout, /dev/fd/N), is
 * written to directly. Paths may be relative to the working folder.
 */
#ifndef ULLAGE_FILE_H
#define ULLAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "ullage/status.h"

enum { ULL_FILE_PATH = 4096 };
#define ULL_FILE_SECOND ".ullage-new"

/* ULL_E_SYSTEM, ULL_E_PERMISSION, ULL_E_NOT_FOUND (no such folder), with what to do in err. */
ull_status ull__file_write(const char *path, const char *data, size_t size, struct ull_error *err);

/*
 * The number of this process's own descriptor that a path stands for, as /dev/stdout or /dev/fd/7; -1: of none. Through such a path the
 * file behind it would be replaced, so that what else is written to the descriptor is lost; and where that file has no
 * name any more, the link in /dev.
 */
int ull__own_descriptor(const char *path);

/* A file in memory without a name, that nobody is to execute: where the system forbids others (vm.memfd_noexec) too. -1: errno. */
int ull__memory_file(const char *name);

/* Is it of an error of the system's that nothing could be opened, whatever is there? No descriptor or memory was left for it. */
bool ull__no_descriptor(int error);

/* Finds out whether ull__file_write could succeed, by making and removing a file there. */
ull_status ull__file_check(const char *path, struct ull_error *err);

/*
 * Reads a whole file of at most `limit` bytes; *data ends with a 0 byte and is the caller's to free.
 * ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_FORMAT (larger than limit, or a folder), ULL_E_SYSTEM.
 */
ull_status ull__file_read(const char *path, size_t limit, char **data, size_t *size,
                          struct ull_error *err);

/* Creates a folder and the folders above it (mode 0700 as the XDG specification asks). */
ull_status ull__folder_create(const char *path, struct ull_error *err);

/*
 * $XDG_CONFIG_HOME/ullage and $XDG_STATE_HOME/ullage, by default in ~/.config and ~/.local/state;
 * relative values are ignored, as the specification says. False if neither variable nor HOME is set,
 * or the path is too long. Nothing is created.
 */
bool ull__config_folder(char path[ULL_FILE_PATH]);
bool ull__state_folder(char path[ULL_FILE_PATH]);

#endif
