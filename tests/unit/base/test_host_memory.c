/* test_host_memory.c: what a host has left, by texts of the kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "folder.h"
#include "host_memory.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static const char plain[] =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"
    "Buffers:          50 kB\nCached:          400 kB\nActive:          700 kB\n"
    "Active(file):    200 kB\nInactive(file):  150 kB\nShmem:           100 kB\n";
/* As before, with 300 kB more on the files' list, which are no cache. */
static const char given_back[] =
    "MemAvailable:    900 kB\nBuffers:          50 kB\nCached:          400 kB\n"
    "Active(file):    200 kB\nInactive(file):  450 kB\nShmem:           100 kB\n";

static void the_machine(void **state)
{
    (void)state;
    assert_int_equal(ull__host_memory_of_machine(plain, 0), 600 * KIB);
    assert_int_equal(ull__host_memory_of_machine(plain, 50 * KIB), 600 * KIB);
    /* Not known to be free: they count as used. */
    assert_int_equal(ull__host_memory_of_machine(given_back, 0), 600 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 100 * KIB), 700 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 300 * KIB), 900 * KIB);
    assert_int_equal(ull__host_memory_of_machine(given_back, 1000 * KIB), 900 * KIB);
    assert_int_equal(ull__host_memory_of_machine("MemFree: 5 kB\n", 0), UINT64_MAX);
    assert_int_equal(ull__host_memory_of_machine("", 0), UINT64_MAX);
}

static void a_group(void **state)
{
    (void)state;
    const char *stat = "anon 500\nfile 300\nkernel 10\nshmem 100\n";
    assert_int_equal(ull__host_memory_of_group("max\n", "5\n", stat, 0), UINT64_MAX);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", "", 0), 100);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 0), 300); /* caches go */
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 150), 450);
    assert_int_equal(ull__host_memory_of_group("1000\n", "900\n", stat, 5000), 1000);
    assert_int_equal(ull__host_memory_of_group("1000\n", "1200\n", stat, 0), 0);
}

/* What this process gives back is known, and no more once it is used again. */
static void this_machine(void **state)
{
    (void)state;
    assert_true(ull__host_memory_left(0) > MIB);
    assert_int_equal(ull__host_memory_lazy("0"), 0);
    const size_t bytes = 16 * MIB;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    uint64_t before = ull__host_memory_lazy("self");
    if (madvise(memory, bytes, MADV_FREE) != 0 || ull__host_memory_lazy("self") == before) {
        munmap(memory, bytes);
        print_message("skipped: this kernel gives nothing back lazily, or does not tell\n");
        skip();
    }
    assert_true(ull__host_memory_lazy("self") >= before + bytes / 2);
    memset(memory, 2, bytes);
    assert_true(ull__host_memory_lazy("self") < before + bytes / 2);
    munmap(memory, bytes);
}

/* --- Made-up trees: what the kernel shows on machines of several kinds --- */

static char root[256];

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    file_write(whole, text, strlen(text));
}

/* A tree, and what is found in it: "total:left total:left". */
struct tree {
    const char *what, *cgroup, *mountinfo;
    const char *files[10][2];
    const char *found;
};

#define PLAIN_MOUNTS                                                                               \
    "22 1 0:20 / /proc rw - proc proc rw\n23 1 0:21 / /sys rw,nosuid - sysfs sysfs rw\n"
#define CGROUP2                                                                                    \
    PLAIN_MOUNTS "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 "               \
                 "rw,nsdelegate\n"
#define NO_V1 "9223372036854771712\n"

static const struct tree trees[] = {
    {"no groups at all", "", PLAIN_MOUNTS, {{NULL, NULL}}, "1024000:614400"},
    {"no limit",
     "0::/a\n",
     CGROUP2,
     {{"/sys/fs/cgroup/a/memory.max", "max\n"},
      {"/sys/fs/cgroup/a/memory.high", "max\n"},
      {"/sys/fs/cgroup/a/memory.current", "5000\n"}},
     "1024000:614400"},
    {"limits up the tree, the lower of two, caches that go",
     "0::/user.slice/a.scope\n",
     CGROUP2,
     {{"/sys/fs/cgroup/user.slice/a.scope/memory.max", "400000\n"},
      {"/sys/fs/cgroup/user.slice/a.scope/memory.high", "300000\n"},
      {"/sys/fs/cgroup/user.slice/a.scope/memory.current", "250000\n"},
      {"/sys/fs/cgroup/user.slice/a.scope/memory.stat", "anon 1\nfile 100000\nshmem 20000\n"},
      {"/sys/fs/cgroup/user.slice/memory.max", "200000\n"},
      {"/sys/fs/cgroup/user.slice/memory.high", "max\n"},
      {"/sys/fs/cgroup/user.slice/memory.current", "260000\n"},
      {"/sys/fs/cgroup/user.slice/memory.stat", "file 0\nshmem 0\n"}},
     "1024000:614400 300000:130000 200000:0"},
    {"a container with a namespace of its own",
     "0::/\n",
     CGROUP2,
     {{"/sys/fs/cgroup/memory.max", "100000\n"}, {"/sys/fs/cgroup/memory.current", "40000\n"}},
     "1024000:614400 100000:60000"},
    {"one without, of which a part is mounted, behind a line that is too long",
     "0::/docker/abc/in\n",
     "25 1 0:9 / / rw - overlay overlay LONG\n"
     "30 23 0:26 /docker/abc /sys/fs/c\\040group rw - cgroup2 cgroup2 rw\n",
     {{"/sys/fs/c group/in/memory.max", "90000\n"},
      {"/sys/fs/c group/in/memory.current", "10000\n"},
      {"/sys/fs/c group/memory.max", "70000\n"},
      {"/sys/fs/c group/memory.current", "30000\n"}},
     "1024000:614400 90000:80000 70000:40000"},
    {"a group outside of what is mounted",
     "0::/../other\n",
     CGROUP2,
     {{"/sys/fs/cgroup/memory.max", "100000\n"}, {"/sys/fs/cgroup/memory.current", "40000\n"}},
     "1024000:614400 100000:60000"},
    {"version 1 beside a version 2 without memory",
     "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/x\n",
     PLAIN_MOUNTS "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                  "32 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct\n"
                  "33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n",
     {{"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "50000\n"},
      {"/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "45000\n"},
      {"/sys/fs/cgroup/memory/a/b/memory.stat", "cache 9\ntotal_cache 10000\ntotal_shmem 4000\n"},
      {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", NO_V1},
      {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "45000\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_V1},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "95000\n"}},
     "1024000:614400 50000:11000"},
    {"a container of version 1",
     "4:memory:/docker/abc\n",
     "33 23 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
     {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "50000\n"},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "45000\n"}},
     "1024000:614400 50000:5000"},
};

static void made_up_trees(void **state)
{
    (void)state;
    static char mounts[16384], many[9000];
    memset(many, 'x', sizeof many - 1);
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        struct ull__host_scope scopes[ULL_HOST_SCOPES];
        char found[512] = "";
        folder_make(root);
        const char *gap = strstr(trees[i].mountinfo, "LONG");
        snprintf(mounts, sizeof mounts, "%.*s%s%s",
                 gap ? (int)(gap - trees[i].mountinfo) : (int)strlen(trees[i].mountinfo),
                 trees[i].mountinfo, gap ? many : "", gap ? gap + 4 : "");
        put("/proc/meminfo", plain);
        put("/proc/self/cgroup", trees[i].cgroup);
        put("/proc/self/mountinfo", mounts);
        for (int j = 0; j < 10 && trees[i].files[j][0]; j++)
            put(trees[i].files[j][0], trees[i].files[j][1]);
        int count = ull__host_scopes(root, 0, scopes);
        for (int j = 0; j < count; j++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%llu:%llu", j ? " " : "",
                     (unsigned long long)scopes[j].total, (unsigned long long)scopes[j].left);
        folder_remove(root);
        if (strcmp(found, trees[i].found) != 0)
            fail_msg("%s: %s, not %s", trees[i].what, found, trees[i].found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine),
        cmocka_unit_test(a_group),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(made_up_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
