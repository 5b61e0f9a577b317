/*
 * view.h: what the user has chosen to see. Plain data: keys.c changes it, rows.c and layout.c read it.
 */
#ifndef ULLAGE_TOP_VIEW_H
#define ULLAGE_TOP_VIEW_H

#include "sample.h"

enum view_page { PAGE_MAIN, PAGE_DETAILS, PAGE_HELP };
enum view_prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_SECONDS, PROMPT_SIGNAL };
enum view_cards { CARDS_SOME, CARDS_ALL, CARDS_NONE };

/* In the order of the columns. */
enum view_sort {
    SORT_NAME,
    SORT_PID,
    SORT_USER,
    SORT_BUDGET,
    SORT_HELD,
    SORT_PEAK,
    SORT_USE,
    SORT_TREND,
    SORTS
};

enum { VIEW_TEXT = 64, VIEW_MESSAGE = 200, VIEW_FOLDED = 64 };

/* Names a row from sample to sample. A job has pid 0; a process of no job has no id. */
struct row_key {
    char id[16];
    uint32_t account;
    uint32_t pid;
    uint64_t start_ticks;
};

struct view {
    enum view_page page;
    enum view_prompt prompt;
    enum view_cards cards;
    enum view_sort sort;
    bool reversed; /* the other way round than the column's own, which is largest first for numbers */
    bool flat;     /* no tree */
    bool readonly; /* no signals */
    double seconds;
    char filter[VIEW_TEXT]; /* UTF-8; rows that do not contain it are left out */
    char input[VIEW_TEXT];  /* of a prompt under way */
    char message[VIEW_MESSAGE];
    struct row_key selected;
    int at;                             /* its place in the list when it was last there */
    int top;                            /* first row shown */
    int scroll;                         /* first line shown of another page */
    struct row_key folded[VIEW_FOLDED]; /* jobs whose processes are hidden */
    int folded_count;
    /* Whom a signal will go to, and which. */
    struct row_key target;
    char target_name[VIEW_MESSAGE];
    bool target_is_job;
    int signal;
};

/* As at the start: largest first by what is held, as a tree, every second. */
void view_init(struct view *view);

const char *view_sort_name(enum view_sort sort);
/* False if there is no such column. */
bool view_sort_parse(const char *name, enum view_sort *sort);

#endif
