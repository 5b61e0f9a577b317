/* procfs.h: what /proc says of other processes. All answers may be out of date at once. */
#ifndef ULLAGE_PROCFS_H
#define ULLAGE_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose it is (its effective user); false if there is no such process. */
bool proc_user(uint32_t pid, uint32_t *uid);
/* The parent, or 0 if there is no such process. */
uint32_t proc_parent(uint32_t pid);
struct proc_stat {
    uint32_t parent;
    char state;           /* 'Z': dead, and not waited for yet */
    uint64_t start_ticks; /* after boot */
    uint64_t begin_ns;    /* the same by CLOCK_MONOTONIC */
    uint64_t resident_bytes;
    char name[64];
};
/* False if there is no such process. */
bool proc_stat(uint32_t pid, struct proc_stat *stat);
/* The children of a process: a list that the caller frees, and how many; -1 if this kernel does not tell. */
int proc_children(uint32_t pid, uint32_t **children);
/* Whether ancestor is among the parents of pid. */
bool proc_descends(uint32_t pid, uint32_t ancestor);
/* Whether the environment that the process started with has this exact NAME=VALUE. */
bool proc_has_variable(uint32_t pid, const char *assignment);
/* Whether any process that may be read started with this exact NAME=VALUE. */
bool proc_anyone_has_variable(const char *assignment);
/*
 * Where a process is that a driver names by its pid: in this pid namespace, in one below it (as in a
 * container), or not to be seen from here, so that nothing more can be told of it.
 */
enum proc_place { PROC_HERE, PROC_INSIDE, PROC_UNSEEN };
enum proc_place proc_place(uint32_t pid);
/* Command line with blanks between words, cut to size; false if there is no such process. */
bool proc_command(uint32_t pid, char *text, size_t size);

/* Whether this is the process that started then (field 22 of its stat); 0: any that has the pid. */
bool proc_is(uint32_t pid, uint64_t start_ticks);
/*
 * Host memory that can be had without swapping, within this process's control group. What processes gave back and may use
 * again (MADV_FREE) is not in it; of one, it is this much.
 */
uint64_t proc_memory_available(void);
uint64_t proc_memory_given_back(uint32_t pid);

#endif
