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
