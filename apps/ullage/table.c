/* table.c: see table.h. Control characters are shown as '?', so that a command's name cannot play tricks. */
#include "table.h"

#include <string.h>

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

int table_width(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += !continues(*text);
    return width;
}

void table_cell(FILE *out, const char *text, int width, bool right)
{
    int columns = table_width(text);
    int shown = columns > width ? width - 1 : columns;
    for (int i = columns; right && i < width; i++)
        fputc(' ', out);
    for (int i = -1; *text; text++) {
        if (!continues(*text) && ++i == shown)
            break;
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
    }
    if (columns > width)
        fputs("…", out);
    for (int i = columns; !right && i < width; i++)
        fputc(' ', out);
}
