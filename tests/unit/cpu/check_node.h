/*
 * check_node.h: one node of a graph by its kernel, on what the reference has, and the reference's results beside it. For
 * the tests beside it.
 */
#ifndef ULLAGE_TEST_CPU_CHECK_NODE_H
#define ULLAGE_TEST_CPU_CHECK_NODE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "cases.h"

enum { GUARD = 64, OPERANDS = 256 };

/* Bytes between guards. */
struct buffer {
    unsigned char *all, *bytes;
    size_t size;
};

struct operand {
    int tensor;
    struct buffer own; /* NULL: in another one's */
    unsigned char *bytes;
};

struct running {
    struct ull__backend *backend;
    const struct cases *c;
    struct ref *ref;
    uint8_t *layouts;
    int node;
    struct operand in[OPERANDS], out[OPERANDS];
    bool poisoned;
    const char *what;
};

/* By place in ull__ops: there was no kernel for some node. */
extern bool is_missing[128];

/*
 * Runs the kernel of r->node twice, the second time in place if it may be and should, compares guards, bits and values,
 * and leaves in the reference what a kernel would have stored. Without a kernel it notes that, and runs the reference.
 */
void check_node(struct running *r, bool in_place);

#endif
