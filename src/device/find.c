/* find.c: see find.h. Old libc calls only. */
#include "find.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#error "the CUDA driver exists for x86-64 and aarch64"
#endif

static const char *const usual_folders[] = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
#else
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/tegra",
#endif
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/local/lib",
    "/lib64",
    "/lib",
};

/* The notes of one segment: namesz, descsz, type, name and description, in steps of 4 bytes. */
static bool has_our_note(const char *notes, size_t size)
{
    static const char name[] = "ullage"; /* jump.S */
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) + sizeof name <= size;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        at += sizeof note;
        if (note.n_namesz == sizeof name && memcmp(notes + at, name, sizeof name) == 0)
            return true;
        if (note.n_namesz > size || note.n_descsz > size)
            return false;
        at += ((size_t)note.n_namesz + 3) / 4 * 4 + ((size_t)note.n_descsz + 3) / 4 * 4;
    }
    return false;
}

/*
 * Our own stand-in has the driver's SONAME, and may have its file name too: a copy or a link of it in
 * front of the driver's folder would load itself for ever. So it is known by what is in it.
 */
static bool is_stand_in(int fd, const Elf64_Ehdr *header)
{
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        char notes[1024];
        if (pread(fd, &segment, sizeof segment,
                  (off_t)(header->e_phoff + (uint64_t)i * sizeof segment)) != sizeof segment)
            return false;
        if (segment.p_type != PT_NOTE)
            continue;
        ssize_t got = pread(fd, notes, sizeof notes, (off_t)segment.p_offset);
        size_t size = got > 0 ? (size_t)got : 0;
        if (has_our_note(notes, size < segment.p_filesz ? size : segment.p_filesz))
            return true;
    }
    return false;
}

/* A shared library of this machine, and not one of ours. */
static bool is_wanted(const char *path)
{
    Elf64_Ehdr header;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, &header, sizeof header);
    bool wanted = got == (ssize_t)sizeof header && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                  header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_DYN &&
                  header.e_machine == MACHINE && header.e_phentsize == sizeof(Elf64_Phdr) &&
                  !is_stand_in(fd, &header);
    close(fd);
    return wanted;
}

static bool is_stub_folder(const char *folder, size_t length)
{
    while (length > 1 && folder[length - 1] == '/')
        length--;
    return length >= 6 && strncmp(folder + length - 6, "/stubs", 6) == 0;
}

static bool take(const char *candidate, char path[ULL_LIBRARY_PATH])
{
    char whole[PATH_MAX + ULL_LIBRARY_PATH];
    if (!is_wanted(candidate))
        return false;
    if (candidate[0] == '/') {
        snprintf(whole, sizeof whole, "%s", candidate);
    } else {
        char folder[PATH_MAX];
        if (!getcwd(folder, sizeof folder))
            return false;
        snprintf(whole, sizeof whole, "%s/%s", folder, candidate);
    }
    if (strlen(whole) >= ULL_LIBRARY_PATH)
        return false;
    memcpy(path, whole, strlen(whole) + 1);
    return true;
}

static bool try_folder(const char *folder, size_t length, const char *soname,
                       char path[ULL_LIBRARY_PATH])
{
    char candidate[ULL_LIBRARY_PATH];
    if (is_stub_folder(folder, length))
        return false;
    /* The linker takes an empty entry for the working folder. */
    int size = length ? snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, folder, soname)
                      : snprintf(candidate, sizeof candidate, "./%s", soname);
    return size > 0 && size < (int)sizeof candidate && take(candidate, path);
}

bool ull__find_library(const char *soname, const char *env_name, char path[ULL_LIBRARY_PATH])
{
    /* First what the linker would have taken: a program may bring a driver of its own along. */
    const char *list = getenv("LD_LIBRARY_PATH");
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        if (try_folder(list, length, soname, path))
            return true;
        list += length;
        if (*list)
            list++;
    }
    const char *named = env_name ? getenv(env_name) : NULL;
    if (named && strchr(named, '/') && take(named, path))
        return true;
    for (size_t i = 0; i < sizeof usual_folders / sizeof *usual_folders; i++) {
        if (try_folder(usual_folders[i], strlen(usual_folders[i]), soname, path))
            return true;
    }
    return false;
}
