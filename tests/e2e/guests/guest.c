/*
 * guest.c: a CUDA program that does what its arguments say, word by word, and prints each result.
 *
 *   init             cuInit                        device N       retain its primary context, use it
 *   ctx              init device 0                 count          how many devices there are
 *   uuid N, total N  of device N                   info           free and total memory
 *   alloc SIZE       prints the CUresult           free           the newest allocation
 *   pool SIZE        allocate asynchronously       fill SIZE      pieces until one is refused
 *   release N        the primary context           label X        in front of what is printed
 *   via WAY          how the driver is found, before anything else; see find_driver()
 *   fork ... end     the words in a child, waited for; also raw (the bare system call), spawn, vfork
 *                    (both execute this program), double (a grandchild whose parent is gone)
 *   exec ...         this program again, with the words that follow; run PROG ... another one
 *   hold             until a signal ends it        wait FILE      until it exists; touch FILE
 *   sleep MS, exit N, kill (itself by SIGKILL), setsid, uid N, closeall (all descriptors, or from
 *   2 up with closeall2), env NAME VALUE, unset NAME, quit (without exit handlers), pid
 *
 * A missing entry point or a failed look-up ends it with code 90. With LINKED it is linked with -lcuda.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

extern char **environ;

enum { MAX_BLOCKS = 4096, FAILED = 90 };

static struct {
    CUresult (*init)(unsigned int);
    CUresult (*count)(int *);
    CUresult (*uuid)(CUuuid *, CUdevice);
    CUresult (*total)(size_t *, CUdevice);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*use)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*info)(size_t *, size_t *);
    CUresult (*pool)(CUdeviceptr *, size_t, CUstream);
} cu;

static CUdeviceptr blocks[MAX_BLOCKS];
static int block_count;
static const char *label = "";
static char *self;

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *format, ...)
{
    char line[512];
    va_list args;
    int length = snprintf(line, sizeof line, "%s%s", label, label[0] ? ": " : "");
    va_start(args, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(FAILED);
}

static void fail(const char *what, const char *why)
{
    tell("failed %s: %s", what, why ? why : "?");
    exit(FAILED);
}

/* --- ways to the driver --------------------------------------------------------------------------- */

typedef void *look_up_fn(void *data, const char *symbol, const char *base);

static void *by_dlsym(void *data, const char *symbol, const char *base)
{
    (void)base;
    return dlsym(data, symbol);
}

/* As a static CUDA runtime: one dlsym, and the driver is asked for all else. */
struct asking {
    CUresult (*ask)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    int version;
    cuuint64_t flags;
};

static void *by_asking(void *data, const char *symbol, const char *base)
{
    struct asking *asking = data;
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    (void)symbol;
    if (asking->ask(base, &address, asking->version, asking->flags, &found) != CUDA_SUCCESS ||
        found != CU_GET_PROC_ADDRESS_SUCCESS)
        return NULL;
    return address;
}

static void fill_table(look_up_fn *look_up, void *data)
{
    static const struct {
        const char *symbol, *base;
        void **to;
    } wanted[] = {
        {"cuInit", "cuInit", (void **)&cu.init},
        {"cuDeviceGetCount", "cuDeviceGetCount", (void **)&cu.count},
        {"cuDeviceGetUuid_v2", "cuDeviceGetUuid", (void **)&cu.uuid},
        {"cuDeviceTotalMem_v2", "cuDeviceTotalMem", (void **)&cu.total},
        {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", (void **)&cu.retain},
        {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease", (void **)&cu.release},
        {"cuCtxSetCurrent", "cuCtxSetCurrent", (void **)&cu.use},
        {"cuMemAlloc_v2", "cuMemAlloc", (void **)&cu.alloc},
        {"cuMemFree_v2", "cuMemFree", (void **)&cu.free},
        {"cuMemGetInfo_v2", "cuMemGetInfo", (void **)&cu.info},
        {"cuMemAllocAsync", "cuMemAllocAsync", (void **)&cu.pool},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].to = look_up(data, wanted[i].symbol, wanted[i].base);
        if (!*wanted[i].to)
            fail(wanted[i].symbol, "not found");
    }
}

static void ask_for_all(void *handle, const char *how)
{
    struct asking asking = {.version = atoi(how)};
    const char *flags = strchr(how, ':');
    asking.flags = flags ? strtoull(flags + 1, NULL, 0) : 0;
    *(void **)&asking.ask = dlsym(handle, "cuGetProcAddress_v2");
    if (!asking.ask)
        fail("cuGetProcAddress_v2", dlerror());
    fill_table(by_asking, &asking);
}

static void *need(void *handle, const char *what)
{
    if (!handle)
        fail(what, dlerror());
    return handle;
}

/*
 *   open:NAME deepbind:NAME global:NAME noload:NAME newlm:NAME    dlopen or dlmopen, then dlsym
 *   default: next:                                                dlsym(RTLD_DEFAULT or RTLD_NEXT)
 *   asked:VERSION:FLAGS                                           cuGetProcAddress for everything
 *   lib:PATH deeplib:PATH                                         its function "guest_open" gives it
 */
static void find_driver(const char *way)
{
    const char *rest = strchr(way, ':');
    size_t length = rest ? (size_t)(rest - way) : strlen(way);
    rest = rest ? rest + 1 : "";
    if (strncmp(way, "default", length) == 0)
        fill_table(by_dlsym, RTLD_DEFAULT);
    else if (strncmp(way, "next", length) == 0)
        fill_table(by_dlsym, RTLD_NEXT);
    else if (strncmp(way, "open", length) == 0)
        fill_table(by_dlsym, need(dlopen(rest, RTLD_NOW | RTLD_LOCAL), way));
    else if (strncmp(way, "global", length) == 0)
        fill_table(by_dlsym, need(dlopen(rest, RTLD_LAZY | RTLD_GLOBAL), way));
    else if (strncmp(way, "deepbind", length) == 0)
        fill_table(by_dlsym, need(dlopen(rest, RTLD_NOW | RTLD_DEEPBIND), way));
    else if (strncmp(way, "noload", length) == 0)
        fill_table(by_dlsym, need(dlopen(rest, RTLD_NOW | RTLD_NOLOAD), way));
    else if (strncmp(way, "newlm", length) == 0)
        fill_table(by_dlsym, need(dlmopen(LM_ID_NEWLM, rest, RTLD_NOW), way));
    else if (strncmp(way, "asked", length) == 0)
        ask_for_all(need(dlopen("libcuda.so.1", RTLD_NOW), way), rest);
    else if (strncmp(way, "lib", length) == 0 || strncmp(way, "deeplib", length) == 0) {
        void *(*guest_open)(void);
        int flags = way[0] == 'd' ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW;
        *(void **)&guest_open = dlsym(need(dlopen(rest, flags), way), "guest_open");
        fill_table(by_dlsym, need(guest_open ? guest_open() : NULL, way));
    } else
        fail("via", way);
}

static void find_default(void)
{
    if (cu.init)
        return;
#ifdef LINKED
    cu.init = cuInit;
    cu.count = cuDeviceGetCount;
    cu.uuid = cuDeviceGetUuid;
    cu.total = cuDeviceTotalMem;
    cu.retain = cuDevicePrimaryCtxRetain;
    cu.release = cuDevicePrimaryCtxRelease;
    cu.use = cuCtxSetCurrent;
    cu.alloc = cuMemAlloc;
    cu.free = cuMemFree;
    cu.info = cuMemGetInfo;
    cu.pool = cuMemAllocAsync;
#else
    find_driver("open:libcuda.so.1");
#endif
}

/* --- words -------------------------------------------------------------------------------------------- */

static size_t size_of(const char *text)
{
    char *unit;
    double value = strtod(text, &unit);
    return (size_t)(value * (*unit == 'G'   ? 1 << 30
                             : *unit == 'M' ? 1 << 20
                             : *unit == 'K' ? 1024
                                            : 1));
}

static void use_device(CUdevice ordinal)
{
    CUcontext context = NULL;
    CUresult result = cu.retain(&context, ordinal);
    if (result == CUDA_SUCCESS)
        result = cu.use(context);
    tell("device %d %d", ordinal, result);
}

static CUresult take(size_t bytes)
{
    CUresult result =
        block_count < MAX_BLOCKS ? cu.alloc(&blocks[block_count], bytes) : CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS)
        block_count++;
    return result;
}

static void fill(size_t piece)
{
    size_t sum = 0;
    CUresult result;
    while ((result = take(piece)) == CUDA_SUCCESS)
        sum += piece;
    tell("fill %zu %d", sum, result);
}

static void show_uuid(CUdevice ordinal)
{
    CUuuid uuid;
    char text[33] = "";
    if (cu.uuid(&uuid, ordinal) == CUDA_SUCCESS)
        for (int i = 0; i < 16; i++)
            snprintf(text + 2 * i, 3, "%02x", (unsigned char)uuid.bytes[i]);
    tell("uuid %d %.8s-%.4s-%.4s-%.4s-%s", ordinal, text, text + 8, text + 12, text + 16, text + 20);
}

static void show_memory(const char *word, CUdevice ordinal)
{
    size_t free_bytes = 0, total = 0;
    CUresult result = ordinal >= 0 ? cu.total(&total, ordinal) : cu.info(&free_bytes, &total);
    if (ordinal >= 0)
        tell("%s %d %zu %d", word, ordinal, total, result);
    else
        tell("%s %zu %zu %d", word, free_bytes, total, result);
}

/* True if the word was one of these. */
static bool driver_word(const char *word, char ***at)
{
    size_t bytes;
    CUdeviceptr pointer;
    find_default();
    if (strcmp(word, "init") == 0) {
        tell("init %d", cu.init(0));
    } else if (strcmp(word, "ctx") == 0) {
        tell("init %d", cu.init(0));
        use_device(0);
    } else if (strcmp(word, "device") == 0) {
        use_device(atoi(*(*at)++));
    } else if (strcmp(word, "release") == 0) {
        tell("release %d", cu.release(atoi(*(*at)++)));
    } else if (strcmp(word, "count") == 0) {
        int count = 0;
        CUresult result = cu.count(&count);
        tell("count %d %d", count, result);
    } else if (strcmp(word, "uuid") == 0) {
        show_uuid(atoi(*(*at)++));
    } else if (strcmp(word, "total") == 0) {
        show_memory(word, atoi(*(*at)++));
    } else if (strcmp(word, "info") == 0) {
        show_memory(word, -1);
    } else if (strcmp(word, "alloc") == 0) {
        bytes = size_of(*(*at)++);
        tell("alloc %d", take(bytes));
    } else if (strcmp(word, "pool") == 0) {
        tell("pool %d", cu.pool(&pointer, size_of(*(*at)++), NULL));
    } else if (strcmp(word, "fill") == 0) {
        fill(size_of(*(*at)++));
    } else if (strcmp(word, "free") == 0) {
        tell("free %d", cu.free(block_count ? blocks[--block_count] : 0));
    } else {
        return false;
    }
    return true;
}

/* --- processes ------------------------------------------------------------------------------------------- */

static bool opens_block(const char *word)
{
    static const char *const words[] = {"fork", "raw", "spawn", "vfork", "double"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* Cuts off the words up to the matching "end", which becomes NULL; returns what follows it. */
static char **cut_block(char **at)
{
    for (int depth = 1; *at; at++) {
        depth += opens_block(*at) - (strcmp(*at, "end") == 0);
        if (depth == 0) {
            *at = NULL;
            return at + 1;
        }
    }
    fail("block", "no end");
    return NULL;
}

static void interpret(char **at);

static char **own_arguments(char **words)
{
    static char *arguments[512];
    int count = 0;
    arguments[count++] = self;
    while (*words && count < 511)
        arguments[count++] = *words++;
    arguments[count] = NULL;
    return arguments;
}

/* The grandchild is not waited for by its parent, which is gone; a pipe tells its end. */
static pid_t start_double(char **words, int *ends)
{
    if (pipe(ends) != 0)
        fail("pipe", "");
    pid_t child = fork();
    if (child == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            close(ends[0]);
            while (getppid() == parent)
                usleep(1000);
            interpret(words);
            _exit(0);
        }
        _exit(0);
    }
    close(ends[1]);
    return child;
}

static void run_block(const char *how, char **words)
{
    int status = 0, ends[2] = {-1, -1};
    pid_t child = -1;
    char **arguments = own_arguments(words);
    if (strcmp(how, "fork") == 0)
        child = fork();
    else if (strcmp(how, "raw") == 0)
        child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    else if (strcmp(how, "double") == 0)
        child = start_double(words, ends);
    else if (strcmp(how, "spawn") == 0 &&
             posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
        fail("spawn", "");
    else if (strcmp(how, "vfork") == 0 && (child = vfork()) == 0) {
        execv("/proc/self/exe", arguments);
        _exit(FAILED);
    }
    if (child == 0) {
        interpret(words);
        exit(0);
    }
    waitpid(child, &status, 0);
    char rest;
    if (ends[0] >= 0)
        while (read(ends[0], &rest, 1) > 0)
            ;
    if (status != 0)
        tell("%s ended %d", how, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void become_user(uid_t uid)
{
    if (syscall(SYS_setgroups, 0, NULL) != 0 || setresgid(uid, uid, uid) != 0 ||
        setresuid(uid, uid, uid) != 0)
        fail("uid", "not permitted");
}

static bool process_word(const char *word, char ***at)
{
    if (strcmp(word, "hold") == 0) {
        tell("ready");
        for (;;)
            pause();
    } else if (strcmp(word, "wait") == 0) {
        while (access(**at, F_OK) != 0)
            usleep(2000);
        ++*at;
    } else if (strcmp(word, "touch") == 0) {
        close(open(*(*at)++, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    } else if (strcmp(word, "sleep") == 0) {
        usleep((useconds_t)atoi(*(*at)++) * 1000);
    } else if (strcmp(word, "exit") == 0) {
        exit(atoi(**at));
    } else if (strcmp(word, "quit") == 0) {
        _exit(0);
    } else if (strcmp(word, "kill") == 0) {
        kill(getpid(), SIGKILL);
    } else if (strcmp(word, "setsid") == 0) {
        setsid();
    } else if (strcmp(word, "uid") == 0) {
        become_user((uid_t)atoi(*(*at)++));
    } else if (strcmp(word, "closeall") == 0) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        syscall(SYS_close_range, 3, ~0u, 0);
    } else if (strcmp(word, "closeerr") == 0) {
        close(STDERR_FILENO);
    } else if (strcmp(word, "env") == 0) {
        setenv((*at)[0], (*at)[1], 1);
        *at += 2;
    } else if (strcmp(word, "unset") == 0) {
        unsetenv(*(*at)++);
    } else if (strcmp(word, "pid") == 0) {
        tell("pid %d", (int)getpid());
    } else if (strcmp(word, "label") == 0) {
        label = *(*at)++;
    } else if (strcmp(word, "via") == 0) {
        find_driver(*(*at)++);
    } else if (strcmp(word, "exec") == 0) {
        execv("/proc/self/exe", own_arguments(*at));
        fail("exec", "");
    } else if (strcmp(word, "run") == 0) {
        execvp(**at, *at);
        fail("run", **at);
    } else {
        return false;
    }
    return true;
}

static void interpret(char **at)
{
    while (*at) {
        const char *word = *at++;
        if (opens_block(word)) {
            char **words = at;
            at = cut_block(at);
            run_block(word, words);
        } else if (!process_word(word, &at) && !driver_word(word, &at)) {
            fail("word", word);
        }
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    (void)argc;
    interpret(argv + 1);
    return 0;
}
