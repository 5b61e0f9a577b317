/*
 * history.c: what the cards held, in an sqlite database: a row a card every ten seconds for a day, then the mean of
 * ten minutes for 90 days. A thread writes, since a disk may be slow; what does not fit its short queue is left out.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "say.h"
#include "web.h"

enum {
    WAITING = 64,
    FINE_S = 86400,
    COARSE_S = 600,
    KEEP_S = 90 * 86400,
    TIDY_EVERY = 60,
    ROWS = 20000
};

struct history {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_t thread;
    struct history_sample queue[WAITING];
    int count;
    bool stop;
    char path[ULL_FILE_PATH];
    sqlite3 *db; /* the thread's */
};

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "CREATE TABLE IF NOT EXISTS use (time INTEGER NOT NULL, uuid TEXT NOT NULL, used INTEGER, held "
    "INTEGER, capacity INTEGER, jobs INTEGER, coarse INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX IF NOT EXISTS by_time ON use (time);";

static void tidy(sqlite3 *db, int64_t now)
{
    char sql[800];
    snprintf(sql, sizeof sql,
             "BEGIN;"
             "INSERT INTO use SELECT time/%d*%d, uuid, avg(used), avg(held), avg(capacity), "
             "max(jobs), 1 "
             "FROM use WHERE coarse=0 AND time/%d < %" PRId64 "/%d GROUP BY time/%d, uuid;"
             "DELETE FROM use WHERE coarse=0 AND time/%d < %" PRId64 "/%d;"
             "DELETE FROM use WHERE time < %" PRId64 ";"
             "COMMIT;",
             COARSE_S, COARSE_S, COARSE_S, now - FINE_S, COARSE_S, COARSE_S, COARSE_S, now - FINE_S,
             COARSE_S, now - KEEP_S);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
}

static void store(sqlite3 *db, const struct history_sample *s)
{
    sqlite3_stmt *row = NULL;
    if (sqlite3_prepare_v2(db, "INSERT INTO use VALUES (?,?,?,?,?,?,0)", -1, &row, NULL) != SQLITE_OK)
        return;
    sqlite3_bind_int64(row, 1, (sqlite3_int64)time(NULL));
    sqlite3_bind_text(row, 2, s->uuid, -1, SQLITE_STATIC);
    sqlite3_bind_int64(row, 3, (sqlite3_int64)s->used_bytes);
    sqlite3_bind_int64(row, 4, (sqlite3_int64)s->held_bytes);
    sqlite3_bind_int64(row, 5, (sqlite3_int64)s->capacity_bytes);
    sqlite3_bind_int(row, 6, s->jobs);
    sqlite3_step(row);
    sqlite3_finalize(row);
}

static void *run(void *data)
{
    struct history *h = data;
    struct history_sample take[WAITING];
    unsigned int rounds = 0;
    for (;;) {
        pthread_mutex_lock(&h->lock);
        while (h->count == 0 && !h->stop)
            pthread_cond_wait(&h->more, &h->lock);
        int count = h->count;
        bool stop = h->stop;
        memcpy(take, h->queue, (size_t)count * sizeof *take);
        h->count = 0;
        pthread_mutex_unlock(&h->lock);
        for (int i = 0; i < count; i++)
            store(h->db, &take[i]);
        if (count && rounds++ % TIDY_EVERY == 0)
            tidy(h->db, (int64_t)time(NULL));
        if (stop)
            return NULL;
    }
}

struct history *history_open(const char *path)
{
    struct history *h = path[0] ? calloc(1, sizeof *h) : NULL;
    if (!h)
        return NULL;
    snprintf(h->path, sizeof h->path, "%s", path);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    bool good = sqlite3_open(path, &h->db) == SQLITE_OK &&
                sqlite3_busy_timeout(h->db, 2000) == SQLITE_OK &&
                sqlite3_exec(h->db, schema, NULL, NULL, NULL) == SQLITE_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (good && pthread_create(&h->thread, NULL, run, h) == 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return h;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    say(LOG_WARN, "no history is kept: %s: %s", path, h->db ? sqlite3_errmsg(h->db) : "no memory");
    sqlite3_close(h->db);
    free(h);
    return NULL;
}

void history_close(struct history *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    sqlite3_close(h->db);
    free(h);
}

void history_add(struct history *h, const struct history_sample *samples, int count)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < count && h->count < WAITING; i++)
        h->queue[h->count++] = samples[i];
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static void add_row(struct ull_json *json, sqlite3_stmt *row)
{
    static const char *const keys[] = {"used_bytes", "held_bytes", "for_jobs_bytes", "jobs"};
    ull__json_object(json);
    ull__json_key(json, "time");
    ull__json_i64(json, sqlite3_column_int64(row, 0));
    ull__json_key(json, "uuid");
    ull__json_string(json, (const char *)sqlite3_column_text(row, 1));
    for (int k = 0; k < 4; k++) {
        ull__json_key(json, keys[k]);
        ull__json_i64(json, sqlite3_column_int64(row, 2 + k));
    }
    ull__json_object_end(json);
}

char *history_json(struct history *h, uint64_t seconds)
{
    struct ull_json json;
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    char *text = NULL;
    ull__json_init(&json, NULL);
    ull__json_array(&json);
    if (h && sqlite3_open_v2(h->path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db,
                           "SELECT time, uuid, used, held, capacity, jobs FROM use WHERE time >= ? "
                           "ORDER BY time LIMIT ?",
                           -1, &row, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(row, 1, (sqlite3_int64)time(NULL) - (sqlite3_int64)seconds);
        sqlite3_bind_int(row, 2, ROWS);
        while (sqlite3_step(row) == SQLITE_ROW)
            add_row(&json, row);
    }
    sqlite3_finalize(row);
    sqlite3_close(db);
    ull__json_array_end(&json);
    if (ull__json_finish(&json))
        text = strndup(json.text, json.size);
    ull__json_free(&json);
    return text;
}
