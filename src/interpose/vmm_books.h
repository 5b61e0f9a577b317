/*
 * vmm_books.h: what hooks_vmm.c knows of handles and mappings; hooks_multicast.c holds them in other ways, vmm_move.c
 * moves what can be moved.
 */
#ifndef ULLAGE_VMM_BOOKS_H
#define ULLAGE_VMM_BOOKS_H

#include "suspend.h"
#include "table.h"

struct mapping;

struct object {
    uint64_t handle; /* as the program knows it */
    /*
     * As the driver does: with --suspendable another one than the program's for what this process made, since it
     * changes when the memory is moved. One reference to it is kept for as long as the object lives.
     */
    uint64_t real;
    uint64_t size; /* 0: imported and not mapped yet */
    uint64_t key;  /* of a fabric handle, 0 for a descriptor */
    const struct ull__gpu *gpu;
    uint32_t refs, maps;
    uint32_t leaving; /* references that the driver is just giving back */
    bool imported, exported;
    bool spilled;             /* host memory in the device's place */
    bool stays;               /* something holds it that cannot be moved */
    CUmemAllocationProp prop; /* that it was made with */
    struct mapping *mappings; /* at addresses */
    struct ull__piece piece;  /* for moving it */
};

struct mapping {
    uint64_t address, size;
    struct object *object;
    struct mapping *next;               /* of its object */
    unsigned char access[MAX_ORDINALS]; /* by device, while it is moved */
};

struct ull__vmm_books {
    pthread_mutex_t lock;
    struct ull__table objects; /* handle -> struct object * */
    struct ull__table exported; /* real -> struct object *: of those whose handle is not the driver's */
    struct ull__table mappings; /* address, or name of a binding -> struct mapping * */
    uint64_t largest;           /* mapping that there ever was */
};
extern struct ull__vmm_books ull__vmm_books;

/* The object that the program knows by this handle, or NULL. Under the lock. */
struct object *ull__vmm_find(uint64_t handle);
/* What the driver knows it by: the same for all that is not ours. 0: there is none. Without the lock. */
CUmemGenericAllocationHandle ull__vmm_real(CUmemGenericAllocationHandle handle);
/* One more mapping (at an address) or binding (by another name) of what `handle` names. Without the lock. */
void ull__vmm_add_mapping(uint64_t name, uint64_t size, uint64_t handle, bool at_address);
/* Takes it out of the table, under the lock; NULL: there is none. Then ends it, without the lock. */
struct mapping *ull__vmm_take_mapping(uint64_t name);
void ull__vmm_end_mapping(struct mapping *mapping, const struct ull__moment *moment);

/* Does the program know it by a handle of ours? */
static inline bool ull__is_virtual(const struct object *object)
{
    return object->handle != object->real;
}

#endif
