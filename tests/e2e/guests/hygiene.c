/*
 * hygiene.c: shows everything of itself that a preload library must leave alone, at three moments:
 * at the start of main, after cuInit, and after an allocation. One "MOMENT NAME VALUE" a line, on
 * standard output; whoever runs it twice compares. Descriptors and threads are told apart by what the
 * driver itself opens, so they are listed as they are.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"

extern char **environ;

static void on_signal(int number)
{
    (void)number;
}

static void show_signals(const char *moment)
{
    sigset_t mask;
    char text[65] = "";
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0)
            continue;
        printf("%s disposition.%d %s flags %x\n", moment, number,
               action.sa_handler == SIG_DFL     ? "default"
               : action.sa_handler == SIG_IGN   ? "ignored"
               : action.sa_handler == on_signal ? "ours"
                                                : "strange",
               (unsigned)action.sa_flags);
    }
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < 65; number++)
        text[number - 1] = sigismember(&mask, number) == 1 ? '1' : '0';
    printf("%s mask %s\n", moment, text);
}

static void show_descriptors(const char *moment)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[64], target[256] = "";
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) < 0)
            continue;
        printf("%s fd.%d %s%s\n", moment, fd, target,
               fcntl(fd, F_GETFD) & FD_CLOEXEC ? " cloexec" : "");
    }
    closedir(dir);
}

static void show_threads(const char *moment)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;
    while (dir && (entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    closedir(dir);
    printf("%s threads %d\n", moment, count);
}

/* Of the other threads: none may take the program's signals. */
static void show_masks(const char *moment)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[64 + sizeof entry->d_name], line[256];
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file))
            if (strncmp(line, "SigBlk:", 7) == 0)
                printf("%s thread takes %s\n", moment,
                       (strtoull(line + 7, NULL, 16) & 0x7ffbfeff) == 0x7ffbfeff ? "nothing" : line);
        if (file)
            fclose(file);
    }
    closedir(dir);
}

static void show(const char *moment)
{
    char folder[4096];
    mode_t mask = umask(0);
    umask(mask);
    show_signals(moment);
    show_descriptors(moment);
    show_threads(moment);
    show_masks(moment);
    printf("%s umask %o\n", moment, (unsigned)mask);
    printf("%s locale %s\n", moment, setlocale(LC_ALL, NULL));
    printf("%s folder %s\n", moment, getcwd(folder, sizeof folder));
    printf("%s stdin %lld\n", moment, (long long)lseek(STDIN_FILENO, 0, SEEK_CUR));
    for (char **variable = environ; *variable; variable++)
        printf("%s env %s\n", moment, *variable);
}

int main(void)
{
    static const int ours[] = {SIGSEGV, SIGUSR1, SIGUSR2, SIGINT, SIGPIPE};
    show("start");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        signal(ours[i], on_signal);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 90;
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))dlsym(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*use)(CUcontext) = (CUresult(*)(CUcontext))dlsym(driver, "cuCtxSetCurrent");
    CUresult (*alloc)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    CUcontext context;
    CUdeviceptr pointer;
    show("opened");
    errno = EXDEV;
    if (init(0) != CUDA_SUCCESS)
        return 91;
    printf("init errno %d\n", errno);
    show("init");
    if (retain(&context, 0) != CUDA_SUCCESS || use(context) != CUDA_SUCCESS)
        return 92;
    errno = EXDEV;
    if (alloc(&pointer, 5 << 20) != CUDA_SUCCESS)
        return 93;
    printf("alloc errno %d\n", errno);
    errno = EXDEV;
    /* Far too much, under any budget. */
    CUresult refused = alloc(&pointer, (size_t)1 << 45);
    printf("refused %d errno %d\n", refused, errno);
    show("alloc");
    return 0;
}
