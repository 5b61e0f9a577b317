/* load_private.h: what is known while a record is loaded; load_define.c and load.c. */
#ifndef ULLAGE_LOAD_PRIVATE_H
#define ULLAGE_LOAD_PRIVATE_H

#include "history.h"
#include "map.h"
#include "reader.h"

enum {
    UNKNOWN = UINT32_MAX,
    LEFT_OUT = UINT32_MAX - 1, /* a process for which the history has no room */
};

struct numbers {
    uint32_t *of; /* number of the writer -> number in the history */
    uint32_t count, capacity;
};

struct writer {
    uint64_t sequence, dropped;
    struct numbers texts, stacks, devices;
    struct numbers people; /* -> index into load->people, the processes as the system counts them */
    uint32_t own;          /* its own process in the history, UNKNOWN until it is defined */
};

/* A process of the system: several in the history, one after another, if it executed programs. */
struct person {
    uint32_t newest;          /* in the history */
    bool has_writer, watched; /* told of by itself, by a supervisor */
};

/* What is known of the end of a process in the history. */
struct end {
    uint64_t own_ns, seen_ns, last_ns; /* said by itself, by a supervisor; its last event; 0: not */
    bool watched;                      /* by a supervisor, who would say so */
    size_t start;                      /* its START among the events */
    int exit_code;
};

struct load {
    struct ull__history *history;
    struct ull__map writers_by_name, people_by_name; /* by pid and when they began */
    struct writer **writers;
    uint32_t writer_count, writer_capacity;
    struct person *people;
    uint32_t person_count, person_capacity;
    struct end *ends; /* of history->processes */
    uint32_t end_capacity;
    uint64_t job_ns, over_ns; /* monotonic */
    struct writer *job;       /* who told of the job */
    bool no_memory;
};

/* The writer of a block, known or new; NULL without memory. */
struct writer *ull__load_writer(struct load *load, const struct ull__block_head *head);
/* A definition. False if it cannot be right, or without memory (load->no_memory). */
bool ull__load_item(struct load *load, struct writer *writer, struct ull__item *item);
/* What a writer's number is in the history; UNKNOWN, LEFT_OUT. */
uint32_t ull__load_number(const struct numbers *numbers, uint32_t number);
uint32_t ull__load_process(const struct load *load, const struct writer *writer, uint32_t number);

#endif
