/*
 * keys.h: what a key does to the view. Pure: whatever touches the world comes back as an action.
 */
#ifndef ULLAGE_TOP_KEYS_H
#define ULLAGE_TOP_KEYS_H

#include "rows.h"

/* Characters are themselves; other keys are above them. */
enum key {
    KEYS_FIRST = 0x200000,
    KEYS_UP,
    KEYS_DOWN,
    KEYS_LEFT,
    KEYS_RIGHT,
    KEYS_PAGE_UP,
    KEYS_PAGE_DOWN,
    KEYS_HOME,
    KEYS_END,
    KEYS_ENTER,
    KEYS_ESCAPE,
    KEYS_BACKSPACE,
    KEYS_TAB,
    KEYS_CLEAR /* what is typed in a prompt (Ctrl-U) */
};

enum action {
    ACTION_NONE,
    ACTION_QUIT,
    ACTION_AIM, /* make sure that view->target is still the process that was shown, and hold on to it */
    ACTION_SIGNAL,  /* send it view->signal */
    ACTION_LET_GO,  /* it will not be sent */
    ACTION_SECONDS, /* view->seconds is new */
    ACTION_REDRAW   /* the whole screen, whatever is on it */
};

enum { SECONDS_DIGITS = 6 };
#define SECONDS_LEAST 0.1
#define SECONDS_MOST 3600.0

/*
 * One key. sample may be NULL before the first one. room: rows that fit on the main page, or lines on another.
 */
enum action keys_press(struct view *view, const struct sample *sample, int room, int key);

/*
 * Keeps the selection and the scrolling inside of what there is, after a key, a new sample or another size.
 * A row that is gone leaves the selection at its place.
 */
void keys_follow(struct view *view, const struct sample *sample, int room);

/* "SIGTERM" and so on, of the signals that can be sent. */
const char *keys_signal_name(int signal);

/* Seconds between rounds as people write them: SECONDS_LEAST to SECONDS_MOST. */
bool keys_parse_seconds(const char *text, double *seconds);

#endif
