/* calibrate.c: what this machine's processor and memory do in a second. See calibrate.h. */
#include "calibrate.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli.h"
#include "../json_keys.h"
#include "error.h"
#include "file.h"
#include "host_memory.h"
#include "json.h"

enum {
    THREADS_MOST = 256,
    ROWS = 1024,           /* of the matrices */
    COPY_BYTES = 64 << 20, /* of each thread, more than caches hold */
    CACHED = 4096,         /* floats of each thread that stay in its caches */
    ROUNDS = 2000,         /* over those */
    WAKE_UPS = 2000,
    TRIES = 4,
};

/* cblas_sgemm(order, transpose A, transpose B, rows, columns, inner, ...) */
typedef void sgemm_fn(int, int, int, int, int, int, float, const float *, int, const float *, int,
                      float, float *, int);
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111 };

struct measuring {
    int threads;
    sgemm_fn *sgemm; /* NULL: an own loop */
    float *a, *b, *c;
    uint16_t *a_half, *b_half, *c_half;
    char *from[THREADS_MOST], *to[THREADS_MOST];
    float *cached[THREADS_MOST];
};

/* Threads that begin together, or not at all. */
struct start {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int go; /* 0: not yet; -1: not at all */
};

/* Work of one thread of several. */
struct part {
    struct measuring *measuring;
    void (*work)(struct measuring *measuring, int thread);
    int thread;
    struct start *start;
};

static void *run_part(void *argument)
{
    struct part *part = argument;
    pthread_mutex_lock(&part->start->lock);
    while (part->start->go == 0) {
        pthread_cond_wait(&part->start->changed, &part->start->lock);
    }
    bool go = part->start->go > 0;
    pthread_mutex_unlock(&part->start->lock);
    if (go) {
        part->work(part->measuring, part->thread);
    }
    return NULL;
}

/* Seconds until all threads have done a work that they begin together. Below 0: there were not so many threads. */
static double together(struct measuring *measuring, void (*work)(struct measuring *, int))
{
    struct part parts[THREADS_MOST];
    pthread_t ids[THREADS_MOST];
    struct start start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    int made = 1;
    for (; made < measuring->threads; ++made) {
        parts[made] = (struct part){measuring, work, made, &start};
        if (pthread_create(&ids[made], NULL, run_part, &parts[made]) != 0) {
            break;
        }
    }
    bool all = made == measuring->threads;
    pthread_mutex_lock(&start.lock);
    start.go = all ? 1 : -1;
    pthread_cond_broadcast(&start.changed);
    pthread_mutex_unlock(&start.lock);
    uint64_t begin = cli_monotonic_ns();
    if (all) {
        work(measuring, 0);
    }
    for (int i = 1; i < made; ++i) {
        pthread_join(ids[i], NULL);
    }
    return all ? (double)(cli_monotonic_ns() - begin) / 1e9 : -1;
}

static double best_of(struct measuring *measuring, void (*work)(struct measuring *, int))
{
    double best = -1;
    for (int i = 0; i < TRIES; ++i) {
        double seconds = together(measuring, work);
        best = seconds > 0 && (best < 0 || seconds < best) ? seconds : best;
    }
    return best;
}

/* --- What is measured --- */

static void copy(struct measuring *measuring, int thread)
{
    memcpy(measuring->to[thread], measuring->from[thread], COPY_BYTES);
}

/* A chain of a multiplication and an addition for each float. */
static void compute(struct measuring *measuring, int thread)
{
    float *values = measuring->cached[thread];
    for (int round = 0; round < ROUNDS; ++round) {
        for (int i = 0; i < CACHED; ++i) {
            values[i] = values[i] * 0.999f + 0.001f;
        }
    }
}

/* Rows from first to last of c = a * b, for where there is no library. */
static void multiply_rows(const struct measuring *measuring, int first, int last)
{
    for (int i = first; i < last; ++i) {
        float *row = measuring->c + (size_t)i * ROWS;
        memset(row, 0, ROWS * sizeof(*row));
        for (int k = 0; k < ROWS; ++k) {
            float factor = measuring->a[(size_t)i * ROWS + (size_t)k];
            const float *other = measuring->b + (size_t)k * ROWS;
            for (int j = 0; j < ROWS; ++j) {
                row[j] += factor * other[j];
            }
        }
    }
}

static void multiply_part(struct measuring *measuring, int thread)
{
    multiply_rows(measuring, ROWS * thread / measuring->threads,
                  ROWS * (thread + 1) / measuring->threads);
}

static double multiply_once(struct measuring *measuring)
{
    if (measuring->sgemm == NULL) {
        return together(measuring, multiply_part);
    }
    uint64_t begin = cli_monotonic_ns();
    measuring->sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, ROWS, ROWS, ROWS, 1, measuring->a, ROWS,
                     measuring->b, ROWS, 0, measuring->c, ROWS);
    return (double)(cli_monotonic_ns() - begin) / 1e9;
}

static void widen(const uint16_t *from, float *to, int first, int last)
{
    for (int i = first; i < last; ++i) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof(bits));
    }
}

static void narrow(const float *from, uint16_t *to, int first, int last)
{
    for (int i = first; i < last; ++i) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof(bits));
        to[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    }
}

static void turn_part(struct measuring *measuring, int thread)
{
    int all = ROWS * ROWS, first = all / measuring->threads * thread;
    int last = thread + 1 == measuring->threads ? all : all / measuring->threads * (thread + 1);
    widen(measuring->a_half, measuring->a, first, last);
    widen(measuring->b_half, measuring->b, first, last);
    narrow(measuring->c, measuring->c_half, first, last);
}

/* Products of bf16: operands are made f32, and the result bf16, in as many threads. */
static double multiply_half_once(struct measuring *measuring)
{
    double turning = together(measuring, turn_part);
    double multiplying = multiply_once(measuring);
    return turning > 0 && multiplying > 0 ? turning + multiplying : -1;
}

static double best_product(struct measuring *measuring, double (*once)(struct measuring *))
{
    double best = -1;
    for (int i = 0; i <= TRIES; ++i) {
        double seconds = once(measuring);
        /* The first one starts the library's threads. */
        best = seconds > 0 && i > 0 && (best < 0 || seconds < best) ? seconds : best;
    }
    return best;
}

struct waking {
    pthread_barrier_t barrier;
};

static void *wake(void *argument)
{
    struct waking *waking = argument;
    for (int i = 0; i < 2 * WAKE_UPS; ++i) {
        pthread_barrier_wait(&waking->barrier);
    }
    return NULL;
}

/* Seconds to give all threads work and to hear of its end. */
static double waking_seconds(const struct measuring *measuring)
{
    struct waking waking;
    pthread_t id;
    if (measuring->threads < 2) {
        return 1e-7;
    }
    pthread_barrier_init(&waking.barrier, NULL, 2);
    double seconds = 1e-5;
    if (pthread_create(&id, NULL, wake, &waking) == 0) {
        uint64_t begin = cli_monotonic_ns();
        wake(&waking);
        seconds = (double)(cli_monotonic_ns() - begin) / 1e9 / WAKE_UPS;
        pthread_join(id, NULL);
    }
    pthread_barrier_destroy(&waking.barrier);
    return seconds;
}

/* --- The machine --- */

static sgemm_fn *find_library(char name[64])
{
    static const char *const names[] = {"libopenblas.so.0", "libblis.so.4", "libcblas.so.3",
                                        "libblas.so.3", NULL};
    for (int i = 0; names[i] != NULL; ++i) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        sgemm_fn *found = NULL;
        if (library != NULL) {
            *(void **)&found = dlsym(library, "cblas_sgemm");
        }
        if (found != NULL) {
            snprintf(name, 64, "%s", names[i]);
            return found; /* stays loaded: it has threads of its own */
        }
        if (library != NULL) {
            dlclose(library);
        }
    }
    name[0] = '\0';
    return NULL;
}

static int usable_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < THREADS_MOST ? count : THREADS_MOST;
}

/* A figure of a file in kB, as /proc has them; 0: it is not there. */
static uint64_t kilobytes(const char *path, const char *name)
{
    char line[256];
    unsigned long long value = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), ": %llu", &value) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (uint64_t)value << 10;
}

static ull_status prepare(struct measuring *measuring, struct ull_error *err)
{
    size_t all = (size_t)ROWS * ROWS;
    measuring->a = calloc(all, sizeof(float));
    measuring->b = calloc(all, sizeof(float));
    measuring->c = calloc(all, sizeof(float));
    measuring->a_half = calloc(all, sizeof(uint16_t));
    measuring->b_half = calloc(all, sizeof(uint16_t));
    measuring->c_half = calloc(all, sizeof(uint16_t));
    bool fine = measuring->a != NULL && measuring->b != NULL && measuring->c != NULL &&
                measuring->a_half != NULL && measuring->b_half != NULL && measuring->c_half != NULL;
    for (int i = 0; i < measuring->threads && fine; ++i) {
        measuring->from[i] = malloc(COPY_BYTES);
        measuring->to[i] = malloc(COPY_BYTES);
        measuring->cached[i] = malloc(CACHED * sizeof(float));
        fine = measuring->from[i] != NULL && measuring->to[i] != NULL && measuring->cached[i] != NULL;
        if (fine) {
            memset(measuring->from[i], 1, COPY_BYTES);
            memset(measuring->to[i], 2, COPY_BYTES);
            memset(measuring->cached[i], 0, CACHED * sizeof(float));
        }
    }
    for (size_t i = 0; i < all && fine; ++i) {
        measuring->a_half[i] = (uint16_t)(0x3f00 + i % 61);
        measuring->b_half[i] = (uint16_t)(0x3f00 + i % 53);
    }
    if (fine) {
        widen(measuring->a_half, measuring->a, 0, (int)all);
        widen(measuring->b_half, measuring->b, 0, (int)all);
    }
    return fine ? ULL_OK
                : ull__fail(err, ULL_E_NO_MEMORY, "no memory to measure with: expected %d MiB free",
                            measuring->threads * (COPY_BYTES >> 19) + 32);
}

static void finish(struct measuring *measuring)
{
    free(measuring->a);
    free(measuring->b);
    free(measuring->c);
    free(measuring->a_half);
    free(measuring->b_half);
    free(measuring->c_half);
    for (int i = 0; i < THREADS_MOST; ++i) {
        free(measuring->from[i]);
        free(measuring->to[i]);
        free(measuring->cached[i]);
    }
    free(measuring);
}

static ull_status measure(struct measuring *measuring, struct ull__profile *profile,
                          struct ull_error *err)
{
    double threads = measuring->threads, product = 2.0 * ROWS * ROWS * ROWS;
    double copying = best_of(measuring, copy), computing = best_of(measuring, compute);
    double multiplying = best_product(measuring, multiply_once);
    double half = best_product(measuring, multiply_half_once);
    if (copying <= 0 || computing <= 0 || multiplying <= 0 || half <= 0) {
        return ull__fail(err, ULL_E_SYSTEM, "%d threads could not be started to measure with",
                         (int)threads);
    }
    profile->link_per_second = threads * COPY_BYTES / copying;
    profile->bytes_per_second = profile->host_bytes_per_second = 2 * profile->link_per_second;
    profile->flops_per_second = threads * 2.0 * CACHED * ROUNDS / computing;
    profile->matrix_per_second = product / multiplying;
    profile->matrix_half_per_second = product / half;
    profile->launch_seconds = waking_seconds(measuring);
    return ULL_OK;
}

ull_status plan_calibrate(struct calibration *calibration, struct ull_error *err)
{
    struct calibration made = {
        .profile = {.name = "cpu", .bf16 = true, .f16 = true, .lean_convolution = 1, .alignment = 64}};
    struct measuring *measuring = calloc(1, sizeof(*measuring));
    uint64_t before = kilobytes("/proc/self/status", "VmRSS");
    if (measuring == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to measure with");
    }
    made.threads = measuring->threads = usable_threads();
    made.profile.memory_bytes = ull__host_memory_total();
    made.profile.host_bytes = made.profile.memory_bytes;
    ull_status status = prepare(measuring, err);
    /* OpenBLAS waits for ever for threads of its own that could not be started. */
    if (status == ULL_OK && together(measuring, copy) < 0) {
        status = ull__fail(err, ULL_E_SYSTEM, "%d threads could not be started to measure with",
                           made.threads);
    }
    if (status == ULL_OK) {
        measuring->sgemm = find_library(made.library);
        status = measure(measuring, &made.profile, err);
    }
    finish(measuring);
    /* The program and its libraries, when they have worked. */
    uint64_t after = kilobytes("/proc/self/status", "VmRSS");
    made.profile.outside_bytes = after > before ? after : before;
    if (status == ULL_OK) {
        *calibration = made;
    }
    return status;
}

/* --- The file --- */

static void put_figures(struct ull_json *json, const struct ull__profile *profile)
{
    const struct {
        const char *name;
        double value;
    } rates[] = {{"bytes_per_second", profile->bytes_per_second},
                 {"matrix_per_second", profile->matrix_per_second},
                 {"matrix_half_per_second", profile->matrix_half_per_second},
                 {"flops_per_second", profile->flops_per_second},
                 {"link_per_second", profile->link_per_second},
                 {"host_bytes_per_second", profile->host_bytes_per_second},
                 {"launch_seconds", profile->launch_seconds},
                 {"lean_convolution", profile->lean_convolution}};
    key_i64(json, "version", 1);
    key_string(json, "name", profile->name);
    key_u64(json, "memory_bytes", profile->memory_bytes);
    key_u64(json, "host_bytes", profile->host_bytes);
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); ++i) {
        key_number(json, rates[i].name, rates[i].value);
    }
    key_bool(json, "bf16", profile->bf16);
    key_bool(json, "f16", profile->f16);
    key_u64(json, "outside_bytes", profile->outside_bytes);
    key_u64(json, "alignment", profile->alignment);
}

static void put_sources(struct ull_json *json, const struct calibration *calibration)
{
    char products[128], copies[128];
    snprintf(products, sizeof(products), "measured: products of %d x %d with %s", ROWS, ROWS,
             calibration->library[0] != '\0' ? calibration->library : "an own loop");
    snprintf(copies, sizeof(copies), "measured: %d threads copy %d MiB each, read and written",
             calibration->threads, COPY_BYTES >> 20);
    const char *const sources[][2] = {
        {"memory_bytes", "the memory of this machine"},
        {"host_bytes", "the same memory"},
        {"bytes_per_second", copies},
        {"matrix_per_second", products},
        {"matrix_half_per_second",
         "measured: the same, operands and result turned from and to bf16"},
        {"flops_per_second", "measured: multiplications and additions within the caches"},
        {"link_per_second", "a copy within the same memory"},
        {"host_bytes_per_second", "the same memory"},
        {"launch_seconds", "measured: waking a thread and waiting for it"},
        {"lean_convolution", "there is one way only"},
        {"outside_bytes", "this program and its libraries after the measurement"}};
    ull__json_key(json, "sources");
    ull__json_object(json);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); ++i) {
        key_string(json, sources[i][0], sources[i][1]);
    }
    ull__json_object_end(json);
}

ull_status plan_calibration_write(const struct calibration *calibration, const char *path,
                                  struct ull_error *err)
{
    struct ull_json json;
    ull_status status = ULL_OK;
    ull__json_init(&json, NULL);
    ull__json_object(&json);
    put_figures(&json, &calibration->profile);
    put_sources(&json, calibration);
    ull__json_object_end(&json);
    if (!ull__json_finish(&json)) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a profile");
    } else if (strcmp(path, "-") != 0) {
        status = ull__file_write(path, json.text, json.size, err);
    } else if (fwrite(json.text, 1, json.size, stdout) != json.size || fflush(stdout) != 0) {
        status = ull__fail(err, ULL_E_SYSTEM, "the profile could not be written");
    }
    ull__json_free(&json);
    return status;
}
