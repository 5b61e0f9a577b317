/*
 * account_share.c: memory that several processes of a job have open, and their deaths.
 *
 * Usage: account_share SCENE | account_share random SEED STEPS
 *
 * The first process directs: it makes actors (children that call the driver as it tells them) and
 * compares what ullage says the job holds with what the card says, after every step. While the two
 * come to agree, ullage may say more than the card, since the dead are charged until they are gone,
 * but never less.
 */
#include "account.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACTORS = 4, MEMORIES = 64, SLOTS = 64 };

struct order {
    char what;
    int slot, device;
    uint64_t bytes;
    CUipcMemHandle name;
};

/* --- an actor: does as it is told, until it is killed or its director is gone ----------------------------- */

struct place {
    CUdeviceptr address;
    uint64_t bytes;
    CUmemGenericAllocationHandle handle;
};

static void send_descriptor(int socket, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        fail("no descriptor sent");
}

static int receive_descriptor(int socket)
{
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        fail("no descriptor received");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void map(struct place *place)
{
    OK(cuMemAddressReserve(&place->address, place->bytes, 0, 0, 0));
    OK(cuMemMap(place->address, place->bytes, 0, place->handle, 0));
}

static void act(int socket, struct order *order)
{
    static struct place places[SLOTS];
    struct place *place = &places[order->slot];
    CUmemAllocationProp prop;
    int fd;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    switch (order->what) {
    case 'd': { /* make a device current */
        CUcontext context;
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, order->device));
        OK(cuCtxSetCurrent(context));
        break;
    }
    case 'a':
        OK(cuMemAlloc(&place->address, order->bytes));
        break;
    case 'e':
        OK(cuIpcGetMemHandle(&order->name, place->address));
        break;
    case 'o':
        OK(cuIpcOpenMemHandle(&place->address, order->name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        break;
    case 'c':
        OK(cuIpcCloseMemHandle(place->address));
        break;
    case 'f':
        OK(cuMemFree(place->address));
        break;
    case 'r': /* a refusal: before it, the dead are looked for */
        GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&place->address, 100 * 1024 * MIB));
        break;
    case 'A': /* the same with handles and descriptors */
        place->bytes = order->bytes;
        OK(cuMemCreate(&place->handle, order->bytes, &prop, 0));
        map(place);
        break;
    case 'E':
        OK(cuMemExportToShareableHandle(&fd, place->handle,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        send_descriptor(socket, fd);
        close(fd);
        break;
    case 'O':
        place->bytes = order->bytes;
        fd = receive_descriptor(socket);
        OK(cuMemImportFromShareableHandle(&place->handle, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(fd);
        map(place);
        break;
    case 'F':
    case 'C':
        OK(cuMemUnmap(place->address, place->bytes));
        OK(cuMemRelease(place->handle));
        OK(cuMemAddressFree(place->address, place->bytes));
        break;
    default:
        exit(0);
    }
    say(socket, order, sizeof *order);
}

static int line;

static void agree_at(int at)
{
    uint64_t ours = 0, cards = 0;
    line = at;
    for (int tries = 0; tries < 800; tries++) {
        ours = held_by_nvml(0);
        cards = card_job(0);
        if (ours < cards)
            fail("line %d: %llu are charged, the card has %llu", line, (unsigned long long)ours,
                 (unsigned long long)cards);
        if (ours == cards)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail("line %d: %llu stay charged, the card has %llu", line, (unsigned long long)ours,
         (unsigned long long)cards);
}
#define AGREE() agree_at(__LINE__)

/* --- the director --------------------------------------------------------------------------------------------- */

struct actor {
    pid_t pid;
    int socket;
};
static struct actor actors[ACTORS];

static struct order tell(int actor, struct order order)
{
    say(actors[actor].socket, &order, sizeof order);
    if (order.what != 'O' && order.what != 'E')
        hear(actors[actor].socket, &order, sizeof order);
    return order;
}

static void engage(int i, int device)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        fail("no sockets");
    actors[i].socket = ends[0];
    actors[i].pid = fork();
    if (actors[i].pid == 0) {
        struct order order;
        for (int k = 0; k < ACTORS; k++)
            if (actors[k].socket > 0)
                close(actors[k].socket);
        for (;;) {
            hear(ends[1], &order, sizeof order);
            act(ends[1], &order);
        }
    }
    close(ends[1]);
    tell(i, (struct order){.what = 'd', .device = device});
}

static void dismiss(int i, int signal)
{
    struct order order = {.what = 'x'};
    if (signal)
        kill(actors[i].pid, signal);
    else
        say(actors[i].socket, &order, sizeof order);
    waitpid(actors[i].pid, NULL, 0);
    close(actors[i].socket);
    actors[i] = (struct actor){0, 0};
    AGREE();
    while (card_has_dead())
        usleep(5000);
    AGREE();
}

/* Memory `slot` of an actor becomes open in another, in the same slot. */
static void share(int owner, int importer, int slot, uint64_t bytes, bool by_descriptor)
{
    struct order order = {.slot = slot, .bytes = bytes};
    if (!by_descriptor) {
        order.what = 'e';
        order.name = tell(owner, order).name;
        order.what = 'o';
        tell(importer, order);
        return;
    }
    order.what = 'E';
    tell(owner, order);
    int fd = receive_descriptor(actors[owner].socket);
    hear(actors[owner].socket, &order, sizeof order);
    order.what = 'O';
    tell(importer, order);
    send_descriptor(actors[importer].socket, fd);
    close(fd);
    hear(actors[importer].socket, &order, sizeof order);
}

static void make(int owner, int slot, uint64_t bytes, bool by_descriptor)
{
    tell(owner, (struct order){.what = by_descriptor ? 'A' : 'a', .slot = slot, .bytes = bytes});
}

static void end(int actor, int slot, bool importer, bool by_descriptor)
{
    char what = importer ? 'c' : 'f';
    if (by_descriptor)
        what = importer ? 'C' : 'F';
    tell(actor, (struct order){.what = what, .slot = slot});
}

/* The dead are gone from the card too after a while, and then so much is held. */
static void come_to(uint64_t bytes, int at)
{
    for (int tries = 0; tries < 400 && card_job(0) != bytes; tries++)
        usleep(5000);
    if (card_job(0) != bytes)
        fail("line %d: the card has %llu, not %llu", at, (unsigned long long)card_job(0),
             (unsigned long long)bytes);
    agree_at(at);
}
#define COMES_TO(bytes) come_to(bytes, __LINE__)

static void all_orders(bool by_descriptor)
{
    const uint64_t bytes = 40 * MIB;
    engage(0, 0);
    engage(1, 0);
    AGREE();
    uint64_t idle = card_job(0);

    /* The owner frees first. */
    make(0, 0, bytes, by_descriptor);
    share(0, 1, 0, bytes, by_descriptor);
    AGREE();
    end(0, 0, false, by_descriptor);
    AGREE();
    COMES_TO(idle + bytes);
    end(1, 0, true, by_descriptor);
    AGREE();
    COMES_TO(idle);

    /* The importer closes first; then once more, and is killed. */
    make(0, 0, bytes, by_descriptor);
    share(0, 1, 0, bytes, by_descriptor);
    end(1, 0, true, by_descriptor);
    AGREE();
    share(0, 1, 0, bytes, by_descriptor);
    dismiss(1, SIGKILL);
    AGREE();
    end(0, 0, false, by_descriptor);
    AGREE();

    /* The owner dies first, killed or by exit. */
    for (int way = 0; way < 2; way++) {
        engage(1, 0);
        make(0, 0, bytes, by_descriptor);
        make(0, 1, bytes, by_descriptor); /* not shared: goes with it */
        share(0, 1, 0, bytes, by_descriptor);
        dismiss(0, way ? SIGKILL : 0);
        AGREE();
        engage(0, 0);
        AGREE();
        end(1, 0, true, by_descriptor);
        AGREE();
        COMES_TO(idle);
        dismiss(1, 0);
    }

    /* Two importers; the owner frees, one importer is killed, the other closes. */
    engage(1, 0);
    engage(2, 0);
    make(0, 0, bytes, by_descriptor);
    share(0, 1, 0, bytes, by_descriptor);
    share(0, 2, 0, bytes, by_descriptor);
    end(0, 0, false, by_descriptor);
    AGREE();
    dismiss(1, SIGKILL);
    AGREE();
    end(2, 0, true, by_descriptor);
    AGREE();
    COMES_TO(idle);
    dismiss(2, 0);
    dismiss(0, 0);
    AGREE();
}

static void scene_names(void)
{
    all_orders(false);
}

static void scene_descriptors(void)
{
    all_orders(true);
}

/* Opened twice by one process: closed at the second close. */
static void scene_twice(void)
{
    engage(0, 0);
    engage(1, 0);
    make(0, 0, 40 * MIB, false);
    share(0, 1, 0, 40 * MIB, false);
    share(0, 1, 0, 40 * MIB, false);
    AGREE();
    end(0, 0, false, false);
    AGREE();
    end(1, 0, true, false);
    AGREE();
    end(1, 0, true, false);
    AGREE();
    dismiss(0, 0);
    dismiss(1, 0);
    AGREE();
}

/* Two small allocations lie in one page, of which one is shared: the page stays while it is open. */
static void scene_packed(void)
{
    engage(0, 0);
    engage(1, 0);
    make(0, 0, 1000, false);
    make(0, 1, 1000, false);
    share(0, 1, 0, 1000, false);
    AGREE();
    end(0, 0, false, false);
    AGREE();
    end(0, 1, false, false);
    AGREE();
    end(1, 0, true, false);
    AGREE();
    dismiss(0, 0);
    dismiss(1, 0);
    AGREE();
}

/* Both of two in one page have names, and only one of them is open: whichever it is, and whichever is freed first. */
static void scene_neighbours(void)
{
    engage(0, 0);
    engage(1, 0);
    for (int way = 0; way < 8; way++) {
        int open = way & 1, first = way >> 1 & 1, last = way >> 2;
        make(0, 0, 1000, false);
        make(0, 1, 1000, false);
        share(0, 1, open, 1000, false);
        tell(0, (struct order){.what = 'e', .slot = !open});
        AGREE();
        end(0, first, false, false);
        make(0, first, 1000, false); /* there again, and by the same name */
        tell(0, (struct order){.what = 'e', .slot = first});
        end(0, !last, false, false);
        AGREE();
        end(0, last, false, false);
        AGREE();
        end(1, open, true, false);
        AGREE();
    }
    dismiss(0, 0);
    dismiss(1, 0);
}

/* The owner is killed, and the importer closes before the card has let go of the dead. */
static void scene_at_once(void)
{
    for (int way = 0; way < 2; way++) {
        engage(0, 0);
        engage(1, 0);
        make(0, 0, 40 * MIB, way);
        share(0, 1, 0, 40 * MIB, way);
        AGREE();
        kill(actors[0].pid, SIGKILL);
        waitpid(actors[0].pid, NULL, 0);
        tell(1, (struct order){.what = 'r'});
        AGREE();
        end(1, 0, true, way);
        for (int i = 0; i < 100; i++) {
            AGREE();
            usleep(2000);
        }
        actors[0] = (struct actor){0, 0};
        dismiss(1, 0);
    }
}

/* A descriptor comes back to the process that made it: its memory ends with the second handle. */
static void scene_back(void)
{
    engage(0, 0);
    make(0, 0, 40 * MIB, true);
    struct order order = {.what = 'E', .slot = 0, .bytes = 40 * MIB};
    tell(0, order);
    int fd = receive_descriptor(actors[0].socket);
    hear(actors[0].socket, &order, sizeof order);
    order.what = 'O';
    order.slot = 1;
    tell(0, order);
    send_descriptor(actors[0].socket, fd);
    close(fd);
    hear(actors[0].socket, &order, sizeof order);
    AGREE();
    end(0, 0, false, true);
    AGREE();
    end(0, 1, true, true);
    AGREE();
    dismiss(0, 0);
}

/* The importer's device is another one than the memory's. */
static void scene_two_cards(void)
{
    engage(0, 0);
    engage(1, 1);
    make(0, 0, 40 * MIB, false);
    share(0, 1, 0, 40 * MIB, false);
    end(0, 0, false, false);
    AGREE();
    SAME(held_by_nvml(1), card_job(1));
    end(1, 0, true, false);
    AGREE();
    dismiss(0, 0);
    dismiss(1, 0);
    AGREE();
}

/* --- at random -------------------------------------------------------------------------------------------------- */

struct memory {
    bool used, by_descriptor, owned;
    int owner;
    bool open[ACTORS];
};

static bool is_open(const struct memory *memory)
{
    bool any_open = memory->owned;
    for (int i = 0; i < ACTORS; i++)
        any_open |= memory->open[i];
    return any_open;
}

static void step(struct memory *memories)
{
    int slot = (int)any(16), actor = (int)any(ACTORS);
    struct memory *memory = &memories[slot];
    uint64_t bytes = (uint64_t)(2 + 2 * slot) * PAGE; /* two of a size would be told apart by nobody */
    if (any(12) == 0) {
        dismiss(actor, any(2) ? SIGKILL : 0);
        for (int i = 0; i < 16; i++) {
            memories[i].open[actor] = false;
            memories[i].owned &= memories[i].owner != actor;
            memories[i].used = is_open(&memories[i]);
        }
        engage(actor, 0);
    } else if (!memory->used) {
        *memory =
            (struct memory){.used = true, .owned = true, .owner = actor, .by_descriptor = any(2)};
        make(actor, slot, bytes, memory->by_descriptor);
    } else if (memory->open[actor]) {
        end(actor, slot, true, memory->by_descriptor);
        memory->open[actor] = false;
    } else if (memory->owned && memory->owner != actor) {
        share(memory->owner, actor, slot, bytes, memory->by_descriptor);
        memory->open[actor] = true;
    } else if (memory->owned) {
        end(actor, slot, false, memory->by_descriptor);
        memory->owned = false;
    }
    memory->used = is_open(memory);
}

static void at_random(uint64_t seed, long steps)
{
    static struct memory memories[16];
    seed_with(seed);
    for (int i = 0; i < ACTORS; i++)
        engage(i, 0);
    for (long i = 0; i < steps; i++) {
        step(memories);
        agree_at((int)i);
    }
    for (int i = 0; i < ACTORS; i++)
        dismiss(i, any(2) ? SIGKILL : 0);
    AGREE();
    COMES_TO(0);
}

int main(int argc, char **argv)
{
    const char *scene = argc > 1 ? argv[1] : "";
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(scene, "random") == 0 && argc == 4)
        at_random(strtoull(argv[2], NULL, 10), strtol(argv[3], NULL, 10));
    else if (strcmp(scene, "names") == 0)
        scene_names();
    else if (strcmp(scene, "descriptors") == 0)
        scene_descriptors();
    else if (strcmp(scene, "twice") == 0)
        scene_twice();
    else if (strcmp(scene, "packed") == 0)
        scene_packed();
    else if (strcmp(scene, "neighbours") == 0)
        scene_neighbours();
    else if (strcmp(scene, "at_once") == 0)
        scene_at_once();
    else if (strcmp(scene, "back") == 0)
        scene_back();
    else if (strcmp(scene, "two_cards") == 0)
        scene_two_cards();
    else
        fail("no scene '%s'", scene);
    return 0;
}
