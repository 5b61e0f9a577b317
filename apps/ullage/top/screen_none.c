/*
 * screen_none.c: in a build without ncurses (ULLAGE_EXTRAS=OFF) no terminal can be taken over, so `ullage top` is
 * its plain table.
 */
#include "screen.h"

bool screen_open(bool colors)
{
    (void)colors;
    return false;
}

void screen_close(void)
{
}

void screen_leave(void)
{
}

void screen_return(void)
{
}

void screen_resize(void)
{
}

void screen_size(int *width, int *height)
{
    *width = 80;
    *height = 24;
}

void screen_spoil(void)
{
}

void screen_draw(const struct grid *grid)
{
    (void)grid;
}

int screen_key(void)
{
    return -2;
}
