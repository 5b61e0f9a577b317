/* documents.c: see documents.h. */
#include "documents.h"

#include <stdlib.h>
#include <string.h>

enum { BEGIN_BITS = 40, CHUNK = 1 << 14 };

struct ull__document {
    uint64_t begin : BEGIN_BITS;     /* of the first token that is predicted */
    uint64_t less : 64 - BEGIN_BITS; /* its length less one */
};

int64_t ull__documents_length(const struct ull__documents_table *table, uint64_t index)
{
    return (int64_t)table->samples[index].less + 1;
}

/* The first mark from `at` on; the length of the row if there is none. */
static ull_status find_mark(const struct ull__sequence *sequence, uint64_t at, int64_t mark,
                            uint64_t *found, struct ull_error *err)
{
    int32_t some[1024];
    while (at < sequence->length) {
        uint64_t left = sequence->length - at;
        size_t now = left < 1024 ? (size_t)left : 1024;
        ull_status status = ull__sequence_fetch(sequence, at, now, some, err);
        if (status != ULL_OK)
            return status;
        for (size_t i = 0; i < now; i++)
            if (some[i] == mark) {
                *found = at + i;
                return ULL_OK;
            }
        at += now;
    }
    *found = sequence->length;
    return ULL_OK;
}

ull_status ull__documents_split(struct ull__sequence parts[ULL_DATA_PARTS], int64_t mark,
                                struct ull_error *err)
{
    struct ull__sequence *train = &parts[ULL_DATA_TRAIN], *eval = &parts[ULL_DATA_EVAL];
    if (!eval->length)
        return ULL_OK;
    uint64_t end, next;
    ull_status status = find_mark(eval, 0, mark, &end, err);
    if (status != ULL_OK)
        return status;
    if (end + 1 < eval->length) {
        train->length += end + 1;
    } else { /* the row ends with a long document: the cut moves to where that begins */
        uint64_t last = 0;
        bool any = false; /* documents before that, or it is all that there is */
        for (uint64_t at = 0; at < train->length; at = next + 1) {
            if ((status = find_mark(train, at, mark, &next, err)) != ULL_OK)
                return status;
            any |= next > at;
            last = any && next < train->length ? next + 1 : last;
        }
        train->length = last ? last : train->length + eval->length;
    }
    uint64_t all = eval->begin + eval->length;
    eval->begin = train->begin + train->length;
    eval->length = all - eval->begin;
    return ULL_OK;
}

static bool put(struct ull__documents_table *table, uint64_t begin, uint64_t length)
{
    if (table->count == table->room) {
        uint64_t room = table->room ? 2 * table->room : 256;
        struct ull__document *grown = realloc(table->samples, room * sizeof *grown);
        if (!grown)
            return false;
        table->samples = grown;
        table->room = room;
    }
    table->samples[table->count].begin = begin & ((UINT64_C(1) << BEGIN_BITS) - 1);
    table->samples[table->count++].less = (length - 1) & 0xffffff;
    if ((int64_t)length > table->longest)
        table->longest = (int64_t)length;
    return true;
}

/* Tokens [begin, end) and the mark behind them, in pieces of a window. */
static bool put_document(struct ull__documents_table *table, uint64_t begin, uint64_t end,
                         uint64_t window)
{
    if (begin == end) {
        table->empty += begin > 0;
        return true;
    }
    table->documents++;
    table->cut += end + 1 - begin > window;
    for (uint64_t at = begin; at <= end; at += window) {
        uint64_t left = end + 1 - at;
        if (!put(table, at, left < window ? left : window))
            return false;
    }
    return true;
}

static ull_status make_table(const struct ull__sequence *sequence, int64_t mark, uint64_t window,
                             struct ull__documents_table *table, struct ull_error *err)
{
    if (sequence->length >> BEGIN_BITS)
        return ull__fail(err, ULL_E_INVALID, "%llu tokens: documents are found in at most 2^%d",
                         (unsigned long long)sequence->length, BEGIN_BITS);
    int32_t *some = malloc(CHUNK * sizeof *some);
    ull_status status = some ? ULL_OK : ULL_E_NO_MEMORY;
    uint64_t begin = 0;
    for (uint64_t at = 0; at < sequence->length && status == ULL_OK;) {
        uint64_t left = sequence->length - at;
        size_t now = left < CHUNK ? (size_t)left : CHUNK;
        if ((status = ull__sequence_fetch(sequence, at, now, some, err)) != ULL_OK)
            break;
        for (size_t i = 0; i < now && status == ULL_OK; i++) {
            if (some[i] != mark)
                continue;
            status = put_document(table, begin, at + i, window) ? ULL_OK : ULL_E_NO_MEMORY;
            begin = at + i + 1;
        }
        at += now;
    }
    free(some);
    if (status == ULL_OK && begin < sequence->length &&
        !put_document(table, begin, sequence->length, window))
        status = ULL_E_NO_MEMORY;
    if (status == ULL_E_NO_MEMORY)
        return ull__data_no_memory(err, 16 * table->room, "a table of documents");
    return status;
}

static void tell(const struct ull__data *data, const struct ull__data_want *want, bool tell_empty,
                 const struct ull__documents_table tables[ULL_DATA_PARTS])
{
    uint64_t cut = 0, empty = 0, all = 0, pieces = 0;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        cut += tables[p].cut;
        empty += tables[p].empty;
        all += tables[p].documents;
        pieces += tables[p].count;
    }
    if (cut)
        ull__data_tell(want,
                       "'%.200s': %llu of %llu documents are longer than the longest sample, %lld "
                       "tokens, and are cut into pieces of that: %llu samples in all",
                       data->spec.path, (unsigned long long)cut, (unsigned long long)all,
                       (long long)want->window, (unsigned long long)pieces);
    if (data->spec.split != 0 && tables[ULL_DATA_EVAL].count == 0)
        ull__data_tell(want, "'%.200s' has %llu documents: none is held out for evaluation",
                       data->spec.path, (unsigned long long)all);
    if (empty && tell_empty)
        ull__data_tell(want, "'%.200s': %llu documents are empty and are left out", data->spec.path,
                       (unsigned long long)empty);
}

ull_status ull__documents_open(struct ull__data *data, const struct ull__data_want *want,
                               const struct ull__sequence parts[ULL_DATA_PARTS], int64_t mark,
                               bool tell_empty, struct ull__documents_table tables[ULL_DATA_PARTS],
                               struct ull_error *err)
{
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        ull_status status = make_table(&parts[p], mark, (uint64_t)want->window, &tables[p], err);
        if (status != ULL_OK)
            return status;
        data->info.samples[p] = tables[p].count;
        data->info.longest[p] = tables[p].longest;
        data->info.resident_bytes += tables[p].room * sizeof *tables[p].samples;
    }
    data->info.documents = true;
    data->info.mark = mark;
    tell(data, want, tell_empty, tables);
    if (data->info.samples[ULL_DATA_TRAIN])
        return ULL_OK;
    return ull__fail(err, ULL_E_FORMAT, "'%.200s' has no document to train on", data->spec.path);
}

void ull__documents_finish(struct ull__documents_table *table)
{
    free(table->samples);
    *table = (struct ull__documents_table){.samples = NULL};
}

ull_status ull__documents_sample(const struct ull__documents_table *table,
                                 const struct ull__sequence *sequence, int64_t window, int64_t mark,
                                 int64_t ignore, uint64_t index, int32_t *x, int32_t *targets,
                                 struct ull_error *err)
{
    uint64_t begin = table->samples[index].begin;
    size_t count = (size_t)ull__documents_length(table, index), first = begin == 0;
    /* The mark before the row's first token and the one behind its last need not be there. */
    size_t there = sequence->length - begin < count ? (size_t)(sequence->length - begin) : count;
    x[0] = (int32_t)mark;
    ull_status status =
        ull__sequence_fetch(sequence, begin - 1 + first, count - first, x + first, err);
    if (status == ULL_OK)
        status = ull__sequence_fetch(sequence, begin, there, targets, err);
    if (status != ULL_OK)
        return status;
    if (there < count)
        targets[there] = (int32_t)mark;
    for (size_t i = 0; ignore >= 0 && i < count; i++)
        if (targets[i] == ignore)
            targets[i] = ULL_DATA_IGNORED;
    for (size_t i = count; i < (size_t)window; i++) {
        x[i] = 0;
        targets[i] = ULL_DATA_IGNORED;
    }
    return ULL_OK;
}

uint64_t ull__documents_valid(const struct ull__documents_table *table,
                              const struct ull__sequence *sequence, int64_t mark, int64_t ignore,
                              uint64_t index)
{
    uint64_t at = table->samples[index].begin;
    uint64_t count = (uint64_t)ull__documents_length(table, index);
    if (ignore < 0)
        return count;
    uint64_t there = sequence->length - at < count ? sequence->length - at : count;
    return ull__sequence_valid(sequence, ignore, at, there) + (there < count && mark != ignore);
}
