/* aim.c: see aim.h. The C library may be older than the calls, so they are made by number. */
#include "aim.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "error.h"
#include "procfs.h"

ull_status aim_open(uint32_t pid, uint64_t start_ticks, int *fd, struct ull_error *err)
{
    struct proc_stat stat;
    int opened = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (opened < 0 && errno == ESRCH)
        return ull__fail(err, ULL_E_NOT_FOUND, "process %u is gone", pid);
    if (opened < 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot hold on to process %u: %s%s", pid,
                         strerror(errno), errno == ENOSYS ? " (Linux 5.3 is needed)" : "");
    if (!proc_stat(pid, &stat) || stat.start_ticks != start_ticks) {
        close(opened);
        return ull__fail(err, ULL_E_NOT_FOUND, "the process is gone, and another one is %u now", pid);
    }
    *fd = opened;
    return ULL_OK;
}

ull_status aim_send(int fd, int signal, struct ull_error *err)
{
    if (syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) == 0)
        return ULL_OK;
    if (errno == ESRCH)
        return ull__fail(err, ULL_E_NOT_FOUND, "it has ended already");
    if (errno == EPERM)
        return ull__fail(err, ULL_E_PERMISSION, "not permitted: it belongs to another user");
    return ull__fail(err, ULL_E_SYSTEM, "%s", strerror(errno));
}
