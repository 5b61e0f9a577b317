/*
 * layout.h: what lies in a ledger's file. Private to this module.
 *
 * Everything is in fixed tables, so that the file never grows and a reader needs no lock. Fields are
 * written by: (S) the supervisor, (O) the owner of the slot or whoever holds the slot's mutex after
 * the owner's death, and `changing` in both cases, (A) anybody, atomically, (L) under the lock named,
 * (M) whoever moves the process's memory: its owner if it is gated, else the one who suspends it.
 */
#ifndef ULLAGE_LEDGER_LAYOUT_H
#define ULLAGE_LEDGER_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "control.h"
#include "ledger.h"

#define LEDGER_MAGIC 0x6c6c756765676c3cull /* changes with every change of this layout */

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
    union ull__cell cell;                        /* (A) ull__change only */
    _Atomic uint64_t peak;                       /* (A) */
    _Atomic uint64_t peak_by_class[ULL_CLASSES]; /* (A) */
    _Atomic uint64_t first_largest;              /* (A) among the early ones */
    _Atomic uint64_t sampled_ns;                 /* (S) time with anything held */
    _Atomic uint64_t sampled_kib_ms;             /* (S) its integral */
};

struct ull__account {
    _Atomic uint32_t root_pid;   /* (L) accounts_lock; account 0 has none */
    _Atomic uint64_t root_ticks; /* (L) its start, so that a reused pid is no relative; 0: unknown */
    struct ull__account_device devices[ULL_MAX_DEVICES];
};

/* A change under way: enough to decide, after a kill at any instruction, what the books must say. */
struct ull__intent {
    _Atomic uint64_t sequence; /* 0: none under way */
    uint64_t held_before;
    int64_t total_delta;
    int64_t held_delta;
    uint32_t class;
    uint32_t account; /* whose total; not the slot's own where memory of another account was passed */
    uint32_t share;   /* entry that ends with this change, plus one; 0: none */
};

struct ull__slot_device {
    _Atomic uint64_t held[ULL_CLASSES];          /* (O) */
    _Atomic uint64_t peak_by_class[ULL_CLASSES]; /* (O) */
    _Atomic uint64_t peak;                       /* (O) */
    _Atomic uint32_t grants;                     /* (O) requests that succeeded, while few */
    _Atomic uint64_t sequence;   /* (O) last used; never goes back, also when the slot is reused */
    _Atomic uint64_t applied;    /* (A) highest sequence of this slot whose tag was overwritten */
    struct ull__intent intent;   /* (O) */
    _Atomic uint64_t evicted;    /* (M) of what is held: moved to the host */
    _Atomic uint64_t spilled;    /* (O) in host memory from the start; not in held */
    _Atomic uint64_t want;       /* (O) allocations that wait for room, added up */
    _Atomic uint64_t hidden;     /* (O) of what is held by contexts: in no process's figure */
    _Atomic uint64_t idle;       /* (A) that the process could give back; its parts added up */
    _Atomic uint64_t trim_asked; /* (A) number << 48 | KiB to give back (idle.c) */
    _Atomic uint64_t trim_done;  /* (A) number of the last that was carried out */
};

enum ull__slot_state { SLOT_FREE, SLOT_LIVE, SLOT_DRAINING };

struct ull__slot {
    pthread_mutex_t owner; /* robust; held by the parked thread of a living process */
    /*
     * Robust; held during every change of the slot. A process's threads do not die at one instant: it
     * keeps a recovery away from a change that another thread than the parked one is still making.
     */
    pthread_mutex_t changing;
    _Atomic uint32_t generation; /* (O) times that the slot was claimed */
    _Atomic uint32_t state;
    _Atomic uint32_t pid;
    _Atomic uint32_t driver_pid;
    _Atomic uint32_t account;
    _Atomic uint64_t start_ticks;
    _Atomic uint64_t death_ns;      /* when the death was seen */
    _Atomic uint32_t bell;          /* (A) futex: the parked thread sleeps on it */
    _Atomic uint32_t settle_asked;  /* (A) */
    _Atomic uint32_t settle_served; /* (O) */
    _Atomic uint32_t settle_missed; /* (A) settle_served when it was last waited for in vain, and 1; or 0 */
    _Atomic uint32_t measured; /* (O) bit d: context on d by the process's figure; d + 16: the card's */
    _Atomic uint32_t unsurvived; /* (O) refusals since the last success */
    _Atomic uint32_t gated;      /* (O) carries out commands itself */
    _Atomic uint32_t ties;       /* (O) enum ull__tie */
    _Atomic uint32_t residency;  /* (M) enum ull__residency | enum ull__moved_by << 2 */
    _Atomic uint64_t done; /* (M) number of the last command that was carried out or refused */
    _Atomic uint64_t moved_bytes, to_move_bytes; /* (M) progress */
    _Atomic uint64_t moving_ns;                  /* (M) that the bytes took so far */
    _Atomic uint64_t pinned;                     /* (M) host memory that is kept for moves */
    _Atomic uint64_t stand_asked;                /* (A) of who stands by (stand.c) */
    _Atomic uint64_t stand_said;                 /* (M) */
    _Atomic uint32_t answers;   /* (A) futex: + 2 for every answer of the daemon to its wants */
    _Atomic uint32_t denials;   /* (A) of these, the last that said no; 0: none did */
    _Atomic uint32_t trim_bell; /* (A) futex: + 1 for every trim that is asked for */
    _Atomic uint32_t trouble_version; /* (M) odd while trouble is written */
    char trouble[ULL_TROUBLE_TEXT];   /* (M) why the last command was refused */
    char command[ULL_COMMAND_TEXT];
    struct ull__slot_device devices[ULL_MAX_DEVICES];
};

/* One 64-bit word decides what a share entry is: kind, slot, and for imports the link (share.c). */
enum ull__share_kind {
    SHARE_FREE,
    SHARE_FILLING,
    SHARE_EXPORT, /* named by its owner, in whose books the bytes are */
    SHARE_PASSED, /* still in those books, but an heir's to give back */
    SHARE_IMPORT, /* opened; inherits once what it is linked to has passed */
    SHARE_LEFT    /* an import that inherited, closed while others have the memory open */
};
struct ull__share {
    _Atomic uint64_t word;
    uint64_t key;
    uint64_t bytes;
    uint32_t device;
    uint32_t class;
    uint32_t account; /* in whose total the bytes are */
};

struct ull__refusal_entry {
    _Atomic uint64_t written; /* number of the refusal once the entry is whole */
    _Atomic uint32_t slot;    /* of the process that asked, and the slot's generation */
    _Atomic uint32_t generation;
    struct ull__refusal refusal;
};

struct ull__ledger_file {
    _Atomic uint64_t magic; /* written last */
    uint64_t size;
    char id[16];
    uint64_t start_unix_ns;
    uint32_t supervisor_pid;
    pthread_mutex_t supervisor;       /* robust; held by `ullage run` */
    _Atomic uint32_t supervisor_gone; /* (A) once seen, so that nobody need try its mutex again */
    _Atomic uint64_t last_sample_ns;  /* (S) */
    struct ull__job_spec spec;
    _Atomic uint64_t command;        /* (A) number << 8 | enum ull__wanted */
    _Atomic uint64_t stand_until_ms; /* (A) CLOCK_MONOTONIC; ULL_WANT_STAND_BY holds until then */
    _Atomic uint32_t waiting;        /* (S) the command has not started yet */
    _Atomic uint64_t served;         /* (A) milliseconds << 24 | pid of a daemon */
    _Atomic uint32_t flags;          /* (A) enum ull__ledger_flag */
    _Atomic uint64_t soft_bytes[ULL_MAX_DEVICES];    /* (A) in force while it is served */
    _Atomic int32_t priority;                        /* (A) */
    _Atomic uint64_t budget_bytes[ULL_MAX_DEVICES];  /* (A) */
    _Atomic uint64_t context_bytes[ULL_MAX_DEVICES]; /* (A) last measured, by the process's figure */
    _Atomic uint64_t hidden_bytes[ULL_MAX_DEVICES]; /* (A) what a context takes beyond it; 0: unknown */
    _Atomic uint64_t hidden_seen[ULL_MAX_DEVICES]; /* (A) smallest that was measured for sure; 0: none */
    _Atomic uint32_t preallocated;                 /* (A) bit per device */
    pthread_mutex_t accounts_lock;                 /* robust */
    pthread_mutex_t spill_lock;                    /* robust */
    _Atomic uint64_t spilled_peak;                 /* (L) spill_lock; all devices together */
    struct ull__account accounts[ULL_MAX_ACCOUNTS];
    struct ull__slot slots[ULL_MAX_SLOTS];
    _Atomic uint32_t slots_used; /* (A) no slot from here on was ever used */
    pthread_mutex_t shares_lock; /* robust */
    struct ull__share shares[ULL_MAX_SHARES];
    _Atomic uint32_t shares_used;       /* (A) likewise */
    _Atomic uint64_t refusals;          /* (A) */
    _Atomic uint64_t survived;          /* (A) */
    _Atomic uint64_t last_line_ns;      /* (A) */
    _Atomic uint64_t last_line_refusal; /* (A) */
    struct ull__refusal_entry refusal_ring[ULL_MAX_REFUSALS];
    _Atomic uint32_t variant_count; /* (A) */
    char variants[ULL_MAX_VARIANTS][ULL_NAME_TEXT];
};

struct ull__ledger {
    struct ull__ledger_file *file;
    bool supervisor; /* this process holds the supervisor's mutex */
    bool pinned;     /* a thread of this process holds a mutex in it: may not be unmapped */
    bool copy;       /* a private copy of another user's ledger: to look at only */
    uint32_t uid;    /* of the owner, if it was opened by ull__ledger_look */
    int fd;          /* of the file, kept by the supervisor; -1 */
    char path[ULL_PATH_TEXT];
};

/* --- change.c ------------------------------------------------------------------------------- */

struct ull__change {
    int slot;
    int device;
    uint32_t account; /* see ull__intent */
    enum ull__class class;
    int64_t total_delta;
    int64_t held_delta;
    uint32_t share; /* see ull__intent */
    bool check;     /* refuse what would pass the budget */
};

/*
 * Makes one change, or refuses it (ULL_E_NO_MEMORY, nothing changed). The caller alone may change
 * this slot at the moment: it holds `changing`, and is the owner or holds the slot's mutex after the
 * owner's death.
 */
ull_status ull__change_apply(struct ull__ledger_file *file, const struct ull__change *change);
/* Peaks are raised to what is held now; see ull__member_settled_to. */
void ull__change_peaks(struct ull__ledger_file *file, int slot, int device, enum ull__class class);
/* Decides a change that was cut off, and completes the slot's books accordingly. Idempotent. */
void ull__change_recover(struct ull__ledger_file *file, int slot, int device);

/* --- share.c -------------------------------------------------------------------------------- */

/* Ends an entry if it is (still) this slot's. */
void ull__share_free(struct ull__ledger_file *file, int slot, uint32_t entry);
/*
 * Where the driver has freed what a dead process had open (a bit per device): passes on what can be passed of its named
 * and inherited memory; the rest stays with it. Before that only links left half-way are settled.
 * False if the table was busy for long: nothing was done, to be called again.
 */
bool ull__share_owner_died(struct ull__ledger_file *file, int slot, uint32_t freed);
/* Bytes of the dead slot that others hold now, and bytes that it holds as an heir. */
uint64_t ull__share_passed(struct ull__ledger_file *file, int slot, int device,
                           enum ull__class class);
uint64_t ull__share_inherited(struct ull__ledger_file *file, int slot, int device,
                              enum ull__class class);
/* The slot ends: its entries end too, inherited bytes are given back. False as above. */
bool ull__share_slot_ends(struct ull__ledger_file *file, int slot);

/* --- view.c ----------------------------------------------------------------------------------- */

/* Brings every number of a private copy that is used as an index or a count into its range. */
void ull__sanitize(struct ull__ledger_file *file);

/* --- control.c ------------------------------------------------------------------------------- */

/* The command's number, and what is asked for now: to stand by only as long as somebody goes on asking. */
uint64_t ull__file_commanded(struct ull__ledger_file *file, enum ull__wanted *wanted);
void ull__slot_forget_residency(struct ull__slot *slot);
void ull__slot_read_residency(struct ull__slot *slot, struct ull__process_view *view);
/* What all its processes together are doing. */
enum ull__job_state ull__file_state(struct ull__ledger_file *file);
/* Wakes the parked thread of the slot's process, if it sleeps there (member.c). */
void ull__slot_ring(struct ull__slot *slot);

/* --- idle.c ----------------------------------------------------------------------------------- */

void ull__slot_forget_idle(struct ull__slot *slot);
/* After the usage was read. */
void ull__slot_read_idle(struct ull__slot *slot, struct ull__process_view *view);

/* --- served.c --------------------------------------------------------------------------------- */

bool ull__file_is_served(const struct ull__ledger_file *file);
/* Writes one word of the file of a private copy. */
bool ull__write_word(struct ull__ledger *ledger, size_t offset, const void *word, size_t size);

/* --- name.c ------------------------------------------------------------------------------------ */

/* Does it belong to this user or root? Root takes everybody's. */
bool ull__ledger_is_ours(int fd);
/* Removes a link that leads nowhere, for its supervisor is gone; nothing else, and not one of others. */
void ull__ledger_remove_dead_link(const char *path);

/* --- make.c ------------------------------------------------------------------------------------ */

/* Removes the file of a ledger whose maker was killed before it was whole; nothing else, and not one of others. */
void ull__ledger_remove_half_made(const char *path);

/* --- ledger.c, recover.c ----------------------------------------------------------------------- */

uint64_t ull__monotonic_ns(void);
void ull__robust_init(pthread_mutex_t *mutex);
/* trylock of a robust mutex: true if taken; *died tells that its last owner died holding it. */
bool ull__robust_trylock(pthread_mutex_t *mutex, bool *died);
/* Waits for at most a second: whoever holds it may be stopped, and that must stop nobody else. */
bool ull__robust_lock_soon(pthread_mutex_t *mutex);
void ull__sweep_file(struct ull__ledger_file *file, ull__listed_fn *listed, void *data);
/* For those who cannot ask the driver: recovers, but leaves to others when bytes are free. */
int ull__assume_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used_bytes);

#endif
