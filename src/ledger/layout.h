/*
 * layout.h: what lies in a ledger's file. Private to this module.
 *
 * Everything is in fixed tables, so that the file never grows and a reader needs no lock. Fields are
 * written by: (S) the supervisor, (O) the owner of the slot or whoever holds the slot's mutex after
 * the owner's death, (A) anybody, atomically.
 */
#ifndef ULLAGE_LEDGER_LAYOUT_H
#define ULLAGE_LEDGER_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "ledger.h"

#define LEDGER_MAGIC 0x6c6c756765676c31ull /* changes with every change of this layout */

enum { SHARE_LINK_SETTLED = 0x7fffffff };

/* A total and the change that made it. tag = (slot + 1) << 48 | sequence; 0: never changed. */
__extension__ typedef unsigned __int128 ull__word16;
union ull__cell {
    ull__word16 word;
    struct {
        _Atomic uint64_t total;
        _Atomic uint64_t tag;
    };
};
_Static_assert(sizeof(union ull__cell) == 16, "a cell is one 16-byte word");

struct ull__account_device {
    union ull__cell cell;           /* (A) ull__change only */
    _Atomic uint64_t peak;          /* (A) */
    _Atomic uint64_t held_by_class[ULL_CLASSES]; /* (A) for the peaks below; may lag after a kill */
    _Atomic uint64_t peak_by_class[ULL_CLASSES]; /* (A) */
    _Atomic uint32_t grants;        /* (A) successful requests so far */
    _Atomic uint64_t first_largest; /* (A) among the early ones */
    _Atomic uint64_t sampled_ns;    /* (S) time with anything held */
    _Atomic uint64_t sampled_kib_ms; /* (S) its integral */
};

struct ull__account {
    _Atomic uint32_t root_pid; /* (A) claimed by compare-and-swap; account 0 has none */
    uint64_t root_ticks;       /* start of that process, so that a reused pid is no relative */
    struct ull__account_device devices[ULL_MAX_DEVICES];
};

/* A change under way: enough to decide, after a kill at any instruction, what the books must say. */
struct ull__intent {
    _Atomic uint64_t sequence; /* 0: none under way */
    uint64_t held_before;
    int64_t total_delta;
    int64_t held_delta;
    uint32_t class;
    uint32_t share; /* entry that ends with this change, plus one; 0: none */
};

struct ull__slot_device {
    _Atomic uint64_t held[ULL_CLASSES];          /* (O) */
    _Atomic uint64_t peak_by_class[ULL_CLASSES]; /* (O) */
    _Atomic uint64_t peak;                       /* (O) */
    _Atomic uint64_t sequence;  /* (O) last used; never goes back, also when the slot is reused */
    _Atomic uint64_t applied;   /* (A) highest sequence of this slot whose tag was overwritten */
    struct ull__intent intent;  /* (O) */
};

enum ull__slot_state { SLOT_FREE, SLOT_LIVE, SLOT_DRAINING };

struct ull__slot {
    pthread_mutex_t owner; /* robust; held by the parked thread of a living process */
    _Atomic uint32_t state;
    _Atomic uint32_t pid;
    _Atomic uint32_t driver_pid;
    _Atomic uint32_t account;
    _Atomic uint64_t start_ticks;
    _Atomic uint64_t death_ns; /* when the death was seen */
    _Atomic uint32_t bell;     /* (A) futex: the parked thread sleeps on it */
    _Atomic uint32_t settle_asked;  /* (A) */
    _Atomic uint32_t settle_served; /* (O) */
    _Atomic uint32_t measured; /* (O) bit per device: its context was measured */
    _Atomic uint32_t unsurvived; /* (O) refusals since the last success */
    char command[ULL_COMMAND_TEXT];
    struct ull__slot_device devices[ULL_MAX_DEVICES];
};

/* One 64-bit word decides what a share entry is: kind, slot, and for imports the link (share.c). */
enum ull__share_kind { SHARE_FREE, SHARE_FILLING, SHARE_EXPORT, SHARE_PASSED, SHARE_IMPORT };
struct ull__share {
    _Atomic uint64_t word;
    uint64_t key;
    uint64_t bytes;
    uint32_t device;
    uint32_t class;
};

struct ull__refusal_entry {
    _Atomic uint64_t written; /* number of the refusal once the entry is whole */
    struct ull__refusal refusal;
};

struct ull__ledger_file {
    _Atomic uint64_t magic; /* written last */
    uint64_t size;
    char id[16];
    uint64_t start_unix_ns;
    uint32_t supervisor_pid;
    pthread_mutex_t supervisor; /* robust; held by `ullage run` */
    _Atomic uint64_t last_sample_ns; /* (S) */
    struct ull__job_spec spec;
    _Atomic uint64_t budget_bytes[ULL_MAX_DEVICES];  /* (A) */
    _Atomic uint64_t context_bytes[ULL_MAX_DEVICES]; /* (A) last measured */
    _Atomic uint32_t preallocated; /* (A) bit per device */
    struct ull__account accounts[ULL_MAX_ACCOUNTS];
    struct ull__slot slots[ULL_MAX_SLOTS];
    _Atomic uint32_t slots_used; /* (A) no slot from here on was ever used */
    pthread_mutex_t shares_lock; /* robust */
    struct ull__share shares[ULL_MAX_SHARES];
    _Atomic uint32_t shares_used; /* (A) likewise */
    _Atomic uint64_t refusals;    /* (A) */
    _Atomic uint64_t survived;    /* (A) */
    _Atomic uint64_t last_line_ns;      /* (A) */
    _Atomic uint64_t last_line_refusal; /* (A) */
    struct ull__refusal_entry refusal_ring[ULL_MAX_REFUSALS];
    _Atomic uint32_t variant_count; /* (A) */
    char variants[ULL_MAX_VARIANTS][ULL_NAME_TEXT];
};

struct ull__ledger {
    struct ull__ledger_file *file;
    bool supervisor; /* this process holds the supervisor's mutex */
    char path[ULL_PATH_TEXT];
};

/* --- change.c ------------------------------------------------------------------------------- */

struct ull__change {
    int slot;
    int device;
    enum ull__class class;
    int64_t total_delta;
    int64_t held_delta;
    uint32_t share;  /* see ull__intent */
    bool check;      /* refuse what would pass the budget */
};

/*
 * Makes one change, or refuses it (ULL_E_NO_MEMORY, nothing changed). The caller alone may change
 * this slot at the moment: it is the owner and holds its process's lock, or holds the slot's mutex
 * after the owner's death.
 */
ull_status ull__change_apply(struct ull__ledger_file *file, const struct ull__change *change);
/* Decides a change that was cut off, and completes the slot's books accordingly. Idempotent. */
void ull__change_recover(struct ull__ledger_file *file, int slot, int device);

/* --- share.c -------------------------------------------------------------------------------- */

void ull__share_free(struct ull__ledger_file *file, uint32_t entry);
/* Passes on what can be passed of a dead process's named memory; the rest stays in its books. */
void ull__share_owner_died(struct ull__ledger_file *file, int slot);
/* Bytes of the dead slot that others hold now, and bytes that it holds as an heir. */
uint64_t ull__share_passed(struct ull__ledger_file *file, int slot, int device, enum ull__class class);
uint64_t ull__share_inherited(struct ull__ledger_file *file, int slot, int device,
                              enum ull__class class);
/* The slot ends: its entries end too, inherited bytes are given back. */
void ull__share_slot_ends(struct ull__ledger_file *file, int slot);

/* --- ledger.c, recover.c ----------------------------------------------------------------------- */

uint64_t ull__monotonic_ns(void);
/* trylock of a robust mutex: true if taken; *died tells that its last owner died holding it. */
bool ull__robust_trylock(pthread_mutex_t *mutex, bool *died);
void ull__sweep_file(struct ull__ledger_file *file, ull__listed_fn *listed, void *data);

#endif
