/*
 * screen.h: a terminal, by ncurses. Draws grids and reads keys; knows nothing of what they mean.
 *
 * While it is open the terminal is in another mode, so every way out of the program must go through
 * screen_close.
 */
#ifndef ULLAGE_TOP_SCREEN_H
#define ULLAGE_TOP_SCREEN_H

#include "grid.h"

/*
 * Takes the terminal over; standard input and output must be one. False, with nothing changed, if it cannot
 * place a cursor (TERM=dumb, unknown).
 */
bool screen_open(bool colors);
void screen_close(void);
/* Gives the terminal back for a while (a stop), and takes it again. */
void screen_leave(void);
void screen_return(void);

/* Asks the terminal for its size, as after SIGWINCH. */
void screen_resize(void);
void screen_size(int *width, int *height);
/* Everything is drawn anew at the next screen_draw. */
void screen_spoil(void);
void screen_draw(const struct grid *grid);

/* The next key that waits (see keys.h); -1: none, -2: the terminal is gone. */
int screen_key(void);

#endif
