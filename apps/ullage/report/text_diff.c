/* text_diff.c: what grew from one record to another, for people. */
#include <string.h>

#include "size.h"
#include "table.h"
#include "text.h"
#include "words.h"

enum { ROWS = 8 };

static const char *change_text(uint64_t before, uint64_t after, char text[WORDS_TEXT])
{
    char size[ULL_SIZE_TEXT];
    uint64_t change = after > before ? after - before : before - after;
    snprintf(text, WORDS_TEXT, "%s%s",
             after > before   ? "+"
             : after < before ? "-"
                              : "",
             ull__size_text(change, size));
    return text;
}

static void show_row(const struct text *text, const char *name, uint64_t before, uint64_t after,
                     uint64_t before_count, uint64_t after_count)
{
    char size[ULL_SIZE_TEXT], change[WORDS_TEXT], count[2 * WORDS_TEXT], one[WORDS_TEXT],
        other[WORDS_TEXT];
    fputs("  ", text->out);
    table_cell(text->out, change_text(before, after, change), 11, true);
    table_cell(text->out, ull__size_text(before, size), 11, true);
    table_cell(text->out, ull__size_text(after, size), 11, true);
    snprintf(count, sizeof count, "%s to %s", words_count(before_count, one),
             words_count(after_count, other));
    table_cell(text->out, before_count || after_count ? count : "", 18, true);
    fputs("  ", text->out);
    words_wrap(text->out, name, 55, text->look->width);
}

/* What changed most, at either end. */
static void show_way(const struct text *text, const struct ull__diff *diff, enum ull__diff_by way)
{
    size_t count = diff->counts[way], shown = 0, changed = 0;
    char heading[64];
    for (size_t i = 0; i < count; i++)
        changed += diff->rows[way][i].before_bytes != diff->rows[way][i].after_bytes;
    if (changed == 0)
        return;
    snprintf(heading, sizeof heading, "what changed by %s", ull__diff_way(way));
    text_heading(text, heading);
    for (size_t i = 0; i < count; i++) {
        const struct ull__diff_row *row = &diff->rows[way][i];
        bool grew = row->after_bytes > row->before_bytes;
        if (row->before_bytes == row->after_bytes || (grew ? i >= ROWS : i + ROWS < count))
            continue;
        shown++;
        show_row(text, row->name, row->before_bytes, row->after_bytes, row->before_count,
                 row->after_count);
    }
    if (changed > shown)
        fprintf(text->out, "  and %zu more\n", changed - shown);
}

static const struct ull__course *main_course(const struct report_input *input)
{
    const struct ull__figures *figures = input->figures;
    return figures->main < 0 ? &figures->all : &figures->devices[figures->main].course;
}

ull_status text_diff(const struct text *text, struct ull_error *err)
{
    const struct report_input *after = text->input, *before = after->before;
    const struct ull__course *now = main_course(after), *then = main_course(before);
    struct ull__diff *diff;
    ull_status status =
        ull__diff_create(before->facts, before->figures, after->facts, after->figures, &diff, err);
    if (status != ULL_OK)
        return status;
    text_heading(text, "since the other record");
    text_line(text, "compared with", "%s", before->path);
    fputs("       change     before      after            blocks  at the peaks\n", text->out);
    show_row(text, "peak of what is held", then->peak_bytes, now->peak_bytes, 0, 0);
    show_row(text, "peak of what is live", then->live_peak_bytes, now->live_peak_bytes, 0, 0);
    show_row(text, "average held", then->average_bytes, now->average_bytes, 0, 0);
    for (int way = 0; way < ULL_DIFF_WAYS; way++)
        show_way(text, diff, (enum ull__diff_by)way);
    ull__diff_destroy(diff);
    return ULL_OK;
}
