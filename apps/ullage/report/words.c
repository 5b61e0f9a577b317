/* words.c: see words.h. */
#include "words.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "table.h"

const char *words_count(uint64_t count, char text[WORDS_TEXT])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

const char *words_time(double seconds, char text[WORDS_TEXT])
{
    if (isnan(seconds))
        snprintf(text, WORDS_TEXT, "-");
    else if (seconds > 0 && seconds < 0.9995e-6)
        snprintf(text, WORDS_TEXT, "%.0f ns", seconds * 1e9);
    else if (seconds < 0.9995e-3)
        snprintf(text, WORDS_TEXT, "%.3g us", seconds * 1e6);
    else if (seconds < 0.9995)
        snprintf(text, WORDS_TEXT, "%.3g ms", seconds * 1e3);
    else if (seconds < 120)
        snprintf(text, WORDS_TEXT, "%.1f s", seconds);
    else if (seconds < 7200)
        snprintf(text, WORDS_TEXT, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, WORDS_TEXT, "%.0f h %d min", floor(seconds / 3600),
                 (int)(fmod(seconds, 3600) / 60));
    return text;
}

const char *words_percent(double ratio, char text[WORDS_TEXT])
{
    if (isnan(ratio))
        snprintf(text, WORDS_TEXT, "-");
    else
        snprintf(text, WORDS_TEXT, "%.0f %%", ratio * 100);
    return text;
}

const char *words_device(const struct ull__history *history, uint32_t device, char text[WORDS_TEXT])
{
    const struct ull__history_device *about = &history->devices[device];
    if (about->logical >= 0)
        snprintf(text, WORDS_TEXT, "device %d", about->logical);
    else
        snprintf(text, WORDS_TEXT, "%.60s", ull__history_string(history, about->uuid));
    return text;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

void words_stack(const struct ull__history *history, uint32_t number, int frames, char *text,
                 size_t size)
{
    const struct ull__stack *stack = &history->stacks[number];
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < stack->count && i < (uint32_t)frames && used < size; i++) {
        const struct ull__frame *frame = &history->frames[stack->first + i];
        const char *function = ull__history_string(history, frame->function);
        const char *file = base_name(ull__history_string(history, frame->file));
        char line[16] = "";
        if (frame->line)
            snprintf(line, sizeof line, ":%u", frame->line);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " < " : "",
                                 function[0] ? function : "?");
        if (file[0] && used < size)
            used += (size_t)snprintf(text + used, size - used, " (%s%s)", file, line);
    }
}

void words_wrap(FILE *out, const char *text, int indent, int width)
{
    int column = indent;
    while (*text) {
        size_t length = strcspn(text, " ");
        char word[512];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        int columns = table_width(word);
        if (column > indent && column + 1 + columns > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        words_plain(out, word);
        column += columns;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void words_plain(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
}
