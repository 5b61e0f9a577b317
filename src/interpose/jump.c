/*
 * jump.c: what the jumps of jump.S lead to, and which library a program gets for which name.
 *
 * The stand-in is found under the SONAME libcuda.so.1 by whoever links against it or opens it by that
 * name. "libcuda.so" and paths would go past it, so dlopen answers those with the stand-in too. A path
 * that names an existing driver is remembered: it is the one that the program wants behind it.
 *
 * Not reached: a program that opens the driver by path out of a library which was itself opened with
 * RTLD_DEEPBIND (its dlopen is the C library's), static programs, and setuid programs. `ullage ps`
 * shows the processes that the driver lists and no ledger knows.
 */
#include "jump.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "interpose.h"
#include "suspend.h"

extern void *ull__jump_table[ULL_CU_COUNT];
void *ull__jump_resolve(long index);
const char *ull__open_route(const char *path, int flags);
const char *ull__open_route_in(long namespace, const char *path, int flags);

/* Found at load time, or when another library's constructor comes earlier. */
__attribute__((visibility("hidden"))) void *ull__linker_dlopen;
__attribute__((visibility("hidden"))) void *ull__linker_dlmopen;
static char wanted_path[1024]; /* of a driver that the program named */
static char own_path[1024];

static void *missing_dlopen(const char *path, int flags)
{
    (void)path;
    (void)flags;
    return NULL;
}

__attribute__((constructor)) static void find_linker(void)
{
    Dl_info info;
    void *found = dlsym(RTLD_NEXT, "dlopen");
    ull__linker_dlmopen = dlsym(RTLD_NEXT, "dlmopen");
    if (dladdr((void *)ull__jump_table, &info) && strlen(info.dli_fname) < sizeof own_path)
        strcpy(own_path, info.dli_fname);
    /* glibc before 2.34 keeps it in libdl, which may come later in the search order, or not yet. */
    ull__linker_dlopen = found ? found : (void *)missing_dlopen;
}

/* Libraries behind this one in LD_PRELOAD are initialized first, and may open others at once. */
static inline void need_linker(void)
{
    if (unlikely(!ull__linker_dlopen))
        find_linker();
}

void *ull__real_open(const char *path, int flags)
{
    need_linker();
    return ((void *(*)(const char *, int))ull__linker_dlopen)(path, flags);
}

/* "libcuda.so", "libcuda.so.1" or "libcuda.so.580.65.06", with or without folders. */
static bool names_driver(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strncmp(name, "libcuda.so", 10) == 0 && (name[10] == '\0' || name[10] == '.');
}

const char *ull__open_route(const char *path, int flags)
{
    (void)flags;
    need_linker();
    if (!path || path[0] == '\0' || !names_driver(path))
        return path;
    if (strchr(path, '/')) {
        if (access(path, R_OK) != 0)
            return path; /* the program looks for it elsewhere when this fails, as it should */
        if (!wanted_path[0] && strlen(path) < sizeof wanted_path && strcmp(path, own_path) != 0)
            strcpy(wanted_path, path);
    }
    return "libcuda.so.1"; /* this very library */
}

/* In another namespace nothing is loaded yet: give it a copy of the stand-in of its own. */
const char *ull__open_route_in(long namespace, const char *path, int flags)
{
    need_linker();
    if (namespace == LM_ID_BASE)
        return ull__open_route(path, flags);
    return path && names_driver(path) && own_path[0] ? own_path : path;
}

const union ull__cuda *_Atomic ull__driver;

const union ull__cuda *ull__jump_driver(void)
{
    const union ull__cuda *driver = atomic_load_explicit(&ull__driver, memory_order_acquire);
    if (likely(driver != NULL))
        return driver;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    driver = ull__cuda_load(ull__real_open, wanted_path[0] ? wanted_path : NULL);
    if (driver && !atomic_load(&ull__driver)) {
        ull__route_build(driver);
        atomic_store_explicit(&ull__driver, driver, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return driver;
}

static CUresult no_driver(void)
{
    return CUDA_ERROR_NO_DEVICE;
}

static CUresult not_in_this_driver(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

void *ull__jump_resolve(long index)
{
    const union ull__cuda *real = ull__jump_driver();
    if (!real)
        return (void *)no_driver;
    void *target = real->all[index] ? real->all[index] : (void *)not_in_this_driver;
    if (real->all[index] && ull__gated((int)index))
        target = ull__gated((int)index);
    __atomic_store_n(&ull__jump_table[index], target, __ATOMIC_RELEASE);
    return target;
}
