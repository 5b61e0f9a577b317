/*
 * passing.c: with `run --suspendable`, cuIpcGetMemHandle and cuIpcOpenMemHandle for blocks of ours, which the
 * driver has no such names for, since they are mappings (backing.c).
 *
 * The name's 64 bytes say whose block it is and hold a secret of that process. Whoever opens it connects to a
 * socket of the owner (abstract, so that no file is left behind) and gets a descriptor of the piece of memory
 * that the block lies in; it maps the whole piece, and its address is where the block is in it. A thread of the
 * owner answers, to processes of its own user only. A piece that was named once stays on the device.
 *
 * Limits: both processes must be in one network namespace, which is where abstract sockets are. Names made by
 * processes that are not suspendable are the driver's, and this one's mean nothing to such a process.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "suspend.h"

enum { SECRET_BYTES = 24, PATIENCE_S = 10, QUEUE = 64 };
static const uint64_t name_magic = 0x3167617373617055ull;

struct name {
    uint64_t magic;
    uint32_t pid;
    uint32_t unused;
    unsigned char secret[SECRET_BYTES];
    uint64_t address, bytes; /* of the block, in the owner */
    uint64_t serial;         /* of the piece: its address may be another's by now */
};
_Static_assert(sizeof(struct name) == sizeof(CUipcMemHandle), "a name is a handle");

/* What comes with the descriptor. */
struct answer {
    uint64_t piece_bytes, offset;
    char uuid[ULL_UUID_TEXT];
};

/* A block of another process, mapped here. */
struct passed {
    struct name name;
    CUdeviceptr base; /* of the piece */
    uint64_t piece_bytes, offset;
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    uint32_t uses;
    struct passed *next;
};

static struct {
    pthread_mutex_t lock;
    bool serving;
    int socket;
    struct name own;
    struct passed *passed;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1};

static socklen_t address_of(const struct name *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "ullage-block-%u-", name->pid);
    for (int i = 0; i < 8; i++)
        length += snprintf(address->sun_path + 1 + length,
                           sizeof address->sun_path - 1 - (size_t)length, "%02x", name->secret[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The program may close what it does not know, and get the number for something else. */
static bool is_the_socket(int fd)
{
    struct sockaddr_un wanted, found = {0};
    socklen_t length = address_of(&books.own, &wanted), size = sizeof found;
    return fd >= 0 && getsockname(fd, (struct sockaddr *)&found, &size) == 0 && size == length &&
           memcmp(&found, &wanted, length) == 0;
}

void ull__passing_forget(void)
{
    int fd = books.socket;
    if (is_the_socket(fd))
        close(fd); /* the parent's: nobody would answer here once it is gone */
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
    books.socket = -1;
}

/* --- the owner's side --------------------------------------------------------------------------------------- */

static void limit_waiting(int fd)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

static bool is_own_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static int listen_here(void)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&books.own, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, QUEUE) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The piece, as long as it is still the one that was named. */
static bool find_named(const struct name *name, struct ull__piece *piece)
{
    CUdeviceptr start;
    uint64_t bytes;
    return ull__backing_find(name->address, &start, &bytes, piece) && start == name->address &&
           piece->stays && piece->serial == name->serial;
}

/* A descriptor of the memory that a name means, or -1. */
static int descriptor_of(const struct name *name, struct answer *answer)
{
    struct ull__piece piece, again;
    int fd = -1;
    if (memcmp(name->secret, books.own.secret, SECRET_BYTES) != 0 || !find_named(name, &piece) ||
        ull__driver->cuMemExportToShareableHandle(
            &fd, piece.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return -1;
    if (!find_named(name, &again)) { /* freed meanwhile, and the handle may have been another's */
        close(fd);
        return -1;
    }
    *answer = (struct answer){.piece_bytes = piece.bytes, .offset = name->address - piece.base};
    memcpy(answer->uuid, ull__state.gpus[piece.ordinal].uuid, sizeof answer->uuid);
    return fd;
}

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_answer(int peer, struct answer *answer, int fd)
{
    union control control = {0};
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sendmsg(peer, &message, MSG_NOSIGNAL);
}

static void answer_one(int peer)
{
    struct name name;
    struct answer answer;
    limit_waiting(peer);
    if (!is_own_user(peer) || recv(peer, &name, sizeof name, 0) != (ssize_t)sizeof name)
        return;
    int fd = descriptor_of(&name, &answer);
    if (fd < 0)
        return; /* closed without an answer: there is no such block any more */
    send_answer(peer, &answer, fd);
    close(fd);
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&books.lock);
        if (!is_the_socket(books.socket))
            books.socket = listen_here();
        int fd = books.socket;
        pthread_mutex_unlock(&books.lock);
        int peer = fd >= 0 ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (peer >= 0) {
            answer_one(peer);
            close(peer);
        } else if (errno != EINTR && errno != ECONNABORTED) { /* no descriptors: others come free */
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        }
    }
    return NULL;
}

/* Under the lock. */
static bool start_serving(void)
{
    if (books.serving)
        return true;
    books.own = (struct name){.magic = name_magic, .pid = (uint32_t)getpid()};
    if (syscall(SYS_getrandom, books.own.secret, sizeof books.own.secret, 0) != SECRET_BYTES)
        return false;
    books.socket = listen_here();
    books.serving = books.socket >= 0 && ull__own_thread(serve, NULL) == 0;
    if (!books.serving && books.socket >= 0) {
        close(books.socket);
        books.socket = -1;
    }
    return books.serving;
}

bool ull__pass_name(CUdeviceptr at, CUipcMemHandle *handle, CUresult *result)
{
    struct ull__piece piece;
    CUdeviceptr start;
    uint64_t bytes;
    int fd = -1;
    if (!ull__backing_find(at, &start, &bytes, &piece))
        return false;
    struct ull__block block;
    if (ull__block_find(start, &block)) /* what was asked for, not whole units */
        bytes = block.bytes;
    *result = CUDA_ERROR_NOT_SUPPORTED;
    if (piece.spilled || !ull__backing_share(at, &piece))
        return true;
    if (ull__driver->cuMemExportToShareableHandle(
            &fd, piece.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return true; /* memory of this device cannot be passed on */
    close(fd);
    pthread_mutex_lock(&books.lock);
    bool serving = start_serving();
    struct name name = books.own;
    pthread_mutex_unlock(&books.lock);
    if (!serving) {
        *result = CUDA_ERROR_OPERATING_SYSTEM;
        return true;
    }
    name.address = start;
    name.bytes = bytes;
    name.serial = piece.serial;
    memcpy(handle, &name, sizeof name);
    *result = CUDA_SUCCESS;
    return true;
}

/* --- the other side ------------------------------------------------------------------------------------------ */

/* The descriptor and what is said with it; -1: the owner or the block is gone. */
static int receive(int peer, struct answer *answer)
{
    union control control = {0};
    struct iovec part = {answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(peer, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    int fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    if (fd >= 0 && got != (ssize_t)sizeof *answer) {
        close(fd);
        fd = -1;
    }
    answer->uuid[sizeof answer->uuid - 1] = '\0';
    return fd;
}

static int ask(const struct name *name, struct answer *answer)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
    if (peer < 0)
        return -1;
    limit_waiting(peer);
    if (connect(peer, (struct sockaddr *)&address, length) == 0 && is_own_user(peer) &&
        send(peer, name, sizeof *name, MSG_NOSIGNAL) == (ssize_t)sizeof *name)
        fd = receive(peer, answer);
    close(peer);
    return fd;
}

/* For the device that is current, and the one that the memory is of. */
static CUresult give_access(const struct passed *passed, const char *uuid)
{
    CUmemAccessDesc access[2];
    CUdevice current = -1;
    size_t count = 0;
    ull__driver->cuCtxGetDevice(&current);
    for (int i = 0; i < atomic_load(&ull__state.gpu_count); i++)
        if (count < 2 && (i == current || strcmp(ull__state.gpus[i].uuid, uuid) == 0))
            access[count++] = (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, i},
                                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return ull__driver->cuMemSetAccess(passed->base, passed->piece_bytes, access, count);
}

static void unmap(const struct passed *passed)
{
    ull__driver->cuMemUnmap(passed->base, passed->piece_bytes);
    ull__driver->cuMemRelease(passed->handle);
    ull__driver->cuMemAddressFree(passed->base, passed->piece_bytes);
}

static CUresult map(struct passed *passed, int fd, const char *uuid)
{
    const union ull__cuda *real = ull__driver;
    uint64_t size = passed->piece_bytes;
    CUresult result = real->cuMemImportFromShareableHandle(&passed->handle, (void *)(intptr_t)fd,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuMemAddressReserve(&passed->base, size, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = real->cuMemMap(passed->base, size, 0, passed->handle, 0);
        if (result == CUDA_SUCCESS) {
            result = give_access(passed, uuid);
            if (result == CUDA_SUCCESS)
                return result;
            real->cuMemUnmap(passed->base, size);
        }
        real->cuMemAddressFree(passed->base, size);
    }
    real->cuMemRelease(passed->handle);
    return result;
}

/* One use more of what is open already. Else false, and `first`, unless it is NULL, is open from now on. */
static bool open_again(const struct name *name, CUdeviceptr *dptr, struct passed *first)
{
    struct passed *p;
    pthread_mutex_lock(&books.lock);
    for (p = books.passed; p && memcmp(&p->name, name, sizeof *name) != 0;)
        p = p->next;
    if (p) {
        p->uses++;
    } else if (first) {
        first->next = books.passed;
        books.passed = first;
    }
    if (p || first)
        *dptr = (p ? p : first)->base + (p ? p : first)->offset;
    pthread_mutex_unlock(&books.lock);
    return p != NULL;
}

static CUresult open_first(const struct name *name, CUdeviceptr *dptr)
{
    struct answer answer = {0};
    int fd = ask(name, &answer);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE; /* as the driver says of a block that is gone */
    struct passed *passed = calloc(1, sizeof *passed);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (passed) {
        *passed = (struct passed){
            .name = *name, .piece_bytes = answer.piece_bytes, .offset = answer.offset, .uses = 1};
        ull__driver->cuCtxGetCurrent(&passed->context);
        result = map(passed, fd, answer.uuid);
    }
    close(fd);
    if (result != CUDA_SUCCESS) {
        free(passed);
        return result;
    }
    if (open_again(name, dptr, passed)) { /* another thread was first */
        unmap(passed);
        free(passed);
    }
    return CUDA_SUCCESS;
}

bool ull__pass_open(CUdeviceptr *dptr, const CUipcMemHandle *handle, CUresult *result)
{
    struct name name;
    CUcontext context = NULL;
    memcpy(&name, handle, sizeof name);
    if (name.magic != name_magic)
        return false;
    pthread_mutex_lock(&books.lock);
    bool own = books.serving && memcmp(name.secret, books.own.secret, SECRET_BYTES) == 0;
    pthread_mutex_unlock(&books.lock);
    if (ull__driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context || own)
        *result = CUDA_ERROR_INVALID_CONTEXT; /* also of its own, as the driver says */
    else if (!dptr)
        *result = CUDA_ERROR_INVALID_VALUE;
    else
        *result = open_again(&name, dptr, NULL) ? CUDA_SUCCESS : open_first(&name, dptr);
    return true;
}

bool ull__pass_close(CUdeviceptr dptr, CUresult *result)
{
    struct passed *gone = NULL;
    bool known = false;
    pthread_mutex_lock(&books.lock);
    for (struct passed **at = &books.passed; *at && !known; at = known ? at : &(*at)->next) {
        known = (*at)->base + (*at)->offset == dptr;
        if (known && --(*at)->uses == 0) {
            gone = *at;
            *at = gone->next;
        }
    }
    pthread_mutex_unlock(&books.lock);
    *result = CUDA_SUCCESS;
    if (gone) {
        ull__driver->cuCtxSynchronize(); /* as the driver does: work may still use it */
        unmap(gone);
        free(gone);
    }
    return known;
}

bool ull__pass_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, CUcontext *context)
{
    bool known = false;
    pthread_mutex_lock(&books.lock);
    for (struct passed *p = books.passed; p && !known; p = p->next) {
        CUdeviceptr first = p->base + p->offset;
        known = at >= first && at - first < p->name.bytes;
        if (known) {
            *start = first;
            *bytes = p->name.bytes;
            *context = p->context;
        }
    }
    pthread_mutex_unlock(&books.lock);
    return known;
}
