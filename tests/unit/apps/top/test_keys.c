/* test_keys.c: what keys do to the view, and in which order rows are. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "keys.h"
#include "scene.h"

static struct sample *sample;
static struct view view;

static int set_up(void **state)
{
    (void)state;
    sample = scene_usual();
    view_init(&view);
    keys_follow(&view, sample, 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sample_destroy(sample);
    return 0;
}

static enum action press(int key)
{
    return keys_press(&view, sample, 20, key);
}

static void type(const char *text)
{
    for (; *text; text++)
        press(*text);
}

/* Rows by first words of their names, '(' a headline, as "train/python3/..." */
static const char *order(void)
{
    static char text[1024];
    struct rows rows;
    text[0] = 0;
    assert_true(rows_build(&rows, sample, &view));
    for (int i = 0; i < rows.count; i++) {
        const struct row *row = &rows.row[i];
        char name[16];
        const char *from = row->kind == ROW_JOB ? sample->jobs[row->job].name
                           : row->kind == ROW_STRANGERS
                               ? "("
                               : sample_short_command(&sample->processes[row->process]);
        size_t length = strlen(from);
        /* The end of a name tells workers apart. */
        strcpy(name, length > 8 ? from + length - 8 : from);
        if (i)
            strcat(text, "/");
        for (int d = 0; row->kind == ROW_PROCESS && d <= row->depth; d++)
            strcat(text, ".");
        strcat(text, name);
    }
    rows_finish(&rows);
    return text;
}

static void rows_are_ordered(void **state)
{
    (void)state;
    assert_string_equal(order(), "train/.pochs 90/..worker 0/...0 helper/..worker 1/"
                                 "notebook/.nel.json/inner/.inner/(/.Xorg/.");
    view.sort = SORT_NAME;
    assert_string_equal(order(), "inner/.inner/notebook/.nel.json/"
                                 "train/.pochs 90/..worker 0/...0 helper/..worker 1/(/./.Xorg");
    view.reversed = true;
    assert_string_equal(order(), "train/.pochs 90/..worker 1/..worker 0/...0 helper/"
                                 "notebook/.nel.json/inner/.inner/(/.Xorg/.");
    view.reversed = false;
    view.flat = true;
    view.sort = SORT_HELD;
    assert_string_equal(order(), "train/.pochs 90/.worker 0/.worker 1/.0 helper/"
                                 "notebook/.nel.json/inner/.inner/(/.Xorg/.");
    view.flat = false;
    view.sort = SORT_TREND; /* growing first, then by name */
    assert_memory_equal(order(), "train/", 6);
    view.sort = SORT_USE;
    assert_memory_equal(order(), "notebook/", 9);
}

static void filter(void **state)
{
    (void)state;
    press('/');
    assert_int_equal(view.prompt, PROMPT_FILTER);
    type("HELPER"); /* with what is above it, so that the tree can be read */
    assert_string_equal(order(), "train/.pochs 90/..worker 0/...0 helper");
    press(KEYS_BACKSPACE);
    press(KEYS_ENTER);
    assert_string_equal(view.filter, "HELPE");
    press('/');
    press(KEYS_CLEAR);
    type("q"); /* no command while a filter is typed */
    assert_string_equal(view.filter, "q");
    press(KEYS_ESCAPE);
    assert_string_equal(view.filter, "HELPE");
    press(KEYS_ESCAPE);
    assert_string_equal(view.filter, "");
    strcpy(view.filter, "2006"); /* a pid, whole */
    assert_string_equal(order(), "train/.pochs 90/..worker 1");
    strcpy(view.filter, "200");
    assert_string_equal(order(), "");
    strcpy(view.filter, "xorg");
    assert_string_equal(order(), "(/.Xorg");
    strcpy(view.filter, "notebook"); /* a job with all of its own */
    assert_string_equal(order(), "notebook/.nel.json");
    press('/');
    for (int i = 0; i < 100; i++)
        press(0x5b66);
    assert_true(strlen(view.filter) < sizeof view.filter);
    press(KEYS_BACKSPACE);
    assert_int_equal(strlen(view.filter) % 3, 8 % 3); /* a whole character went */
}

static void selection(void **state)
{
    (void)state;
    assert_string_equal(view.selected.id, "id2");
    assert_int_equal(view.selected.pid, 0);
    press(KEYS_UP);
    assert_int_equal(view.at, 0);
    press(KEYS_DOWN);
    assert_int_equal(view.selected.pid, 2003);
    press(KEYS_END);
    assert_int_equal(view.selected.pid, 2008);
    press(KEYS_UP);
    assert_int_equal(view.selected.pid, 2007);
    press(KEYS_UP); /* over the headline */
    assert_int_equal(view.selected.pid, 2002);
    press(KEYS_DOWN);
    assert_int_equal(view.selected.pid, 2007);
    press(KEYS_PAGE_UP);
    assert_int_equal(view.at, 0);
    /* It stays with the row when that moves. */
    press(KEYS_DOWN);
    view.sort = SORT_NAME;
    keys_follow(&view, sample, 20);
    assert_int_equal(view.selected.pid, 2003);
    assert_int_equal(view.at, 5);
    /* And at the place when the row is gone. */
    sample->processes[2].pid = 7777;
    keys_follow(&view, sample, 20);
    assert_int_equal(view.at, 5);
    assert_int_equal(view.selected.pid, 7777);
}

static void scrolling(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        keys_press(&view, sample, 4, KEYS_DOWN);
    assert_int_equal(view.at, 11);
    assert_int_equal(view.top, 8);
    keys_press(&view, sample, 4, KEYS_HOME);
    assert_int_equal(view.top, 0);
    keys_press(&view, sample, 4, KEYS_END);
    keys_follow(&view, sample, 40); /* a larger window shows all again */
    assert_int_equal(view.top, 0);
}

static void folding(void **state)
{
    (void)state;
    press(KEYS_DOWN);
    press(' ');
    assert_string_equal(order(), "train/notebook/.nel.json/inner/.inner/(/.Xorg/.");
    assert_int_equal(view.selected.pid, 0);
    press(' ');
    assert_memory_equal(order(), "train/.pochs", 12);
    press(KEYS_END);
    press(' '); /* nothing to fold there */
    assert_int_equal(view.folded_count, 0);
    for (int i = 0; i < 3 * VIEW_FOLDED; i++) {
        view.selected = (struct row_key){.id = "x", .account = (uint32_t)i};
        keys_press(&view, NULL, 20, ' ');
    }
    assert_int_equal(view.folded_count, VIEW_FOLDED);
}

static void sorting(void **state)
{
    (void)state;
    press('>');
    assert_int_equal(view.sort, SORT_PEAK);
    press('<');
    press('<');
    assert_int_equal(view.sort, SORT_BUDGET);
    press('r');
    assert_true(view.reversed);
    press('>');
    assert_false(view.reversed);
    view.sort = SORT_NAME;
    press('<');
    assert_int_equal(view.sort, SORT_TREND);
    press('t');
    assert_true(view.flat);
    press('c');
    assert_int_equal(view.cards, CARDS_ALL);
    for (int s = 0; s < SORTS; s++) {
        enum view_sort sort;
        assert_true(view_sort_parse(view_sort_name((enum view_sort)s), &sort));
        assert_int_equal(sort, s);
    }
}

static void seconds(void **state)
{
    (void)state;
    press('d');
    type("0x.5y"); /* only what numbers are made of */
    assert_string_equal(view.input, "0.5");
    assert_int_equal(press(KEYS_ENTER), ACTION_SECONDS);
    assert_true(view.seconds == 0.5);
    press('d');
    type("0.01");
    assert_int_equal(press(KEYS_ENTER), ACTION_NONE);
    assert_non_null(strstr(view.message, "'0.01' is not a number from 0.1 to 3600"));
    assert_true(view.seconds == 0.5);
    press('d');
    type("1234567890");
    assert_int_equal(strlen(view.input), SECONDS_DIGITS);
    assert_int_equal(press(KEYS_ESCAPE), ACTION_NONE);
    double value;
    assert_false(keys_parse_seconds("", &value));
    assert_false(keys_parse_seconds("nan", &value));
    assert_false(keys_parse_seconds("inf", &value));
    assert_false(keys_parse_seconds("1s", &value));
    assert_false(keys_parse_seconds("-1", &value));
    assert_true(keys_parse_seconds("3600", &value));
}

static void killing(void **state)
{
    (void)state;
    press(KEYS_DOWN);
    assert_int_equal(press('k'), ACTION_AIM);
    assert_int_equal(view.prompt, PROMPT_SIGNAL);
    assert_int_equal(view.target.pid, 2003);
    assert_int_equal(view.target.start_ticks, 503);
    assert_string_equal(view.target_name, "2003 (python3 train.py --epochs 90)");
    assert_int_equal(view.signal, SIGTERM);
    press(KEYS_TAB);
    press(KEYS_TAB);
    assert_int_equal(view.signal, SIGKILL);
    assert_int_equal(press('y'), ACTION_SIGNAL);
    assert_int_equal(view.prompt, PROMPT_NONE);
    /* Every other key is a no, Enter too. */
    static const int noes[] = {'n', KEYS_ENTER, KEYS_ESCAPE, 'q', 'k', ' '};
    for (size_t i = 0; i < sizeof noes / sizeof *noes; i++) {
        press('k');
        assert_int_equal(view.signal, SIGTERM);
        assert_int_equal(press(noes[i]), ACTION_LET_GO);
        assert_int_equal(view.prompt, PROMPT_NONE);
    }
    /* A sample that comes while it asks does not change whom. */
    press('k');
    sample->processes[2].pid = 7777;
    keys_follow(&view, sample, 20);
    assert_int_equal(view.target.pid, 2003);
    press('n');
}

static void jobs_are_told_by_their_run(void **state)
{
    (void)state;
    assert_int_equal(press('k'), ACTION_AIM);
    assert_string_equal(view.target_name, "1002 (job train)");
    press(KEYS_LEFT);
    assert_int_equal(view.signal, SIGHUP); /* SIGKILL could not be handed on */
    press(KEYS_LEFT);
    press(KEYS_LEFT);
    assert_int_equal(view.signal, SIGTERM);
    press('n');
    sample->jobs[2].start_ticks = 0;
    assert_int_equal(press('k'), ACTION_NONE);
    assert_non_null(strstr(view.message, "is gone"));
}

static void some_cannot_be_killed(void **state)
{
    (void)state;
    press(KEYS_END);
    assert_int_equal(press('k'), ACTION_NONE);
    assert_non_null(strstr(view.message, "another pid namespace"));
    assert_int_equal(view.prompt, PROMPT_NONE);
    view.selected = (struct row_key){.id = "id2", .pid = 2006, .start_ticks = 506};
    keys_follow(&view, sample, 20);
    assert_int_equal(press('k'), ACTION_NONE);
    assert_non_null(strstr(view.message, "has ended"));
    view.readonly = true;
    press(KEYS_HOME);
    assert_int_equal(press('k'), ACTION_NONE);
    assert_non_null(strstr(view.message, "--readonly"));
    press(KEYS_ENTER);
    assert_int_equal(press('k'), ACTION_NONE);
}

static void other_pages(void **state)
{
    (void)state;
    press(KEYS_ENTER);
    assert_int_equal(view.page, PAGE_DETAILS);
    press(KEYS_DOWN);
    press(KEYS_PAGE_DOWN);
    assert_int_equal(view.scroll, 20);
    press(KEYS_HOME);
    assert_int_equal(view.scroll, 0);
    press(KEYS_UP);
    assert_int_equal(view.scroll, 0);
    assert_int_equal(press('k'), ACTION_AIM);
    press('n');
    assert_int_equal(press('q'), ACTION_NONE); /* back, not out */
    assert_int_equal(view.page, PAGE_MAIN);
    press('?');
    assert_int_equal(view.page, PAGE_HELP);
    press(KEYS_ESCAPE);
    assert_int_equal(press('q'), ACTION_QUIT);
}

/* Any key at any time, with and without anything to see. */
static void any_key(void **state)
{
    (void)state;
    static const int keys[] = {'/',
                               'k',
                               'd',
                               's',
                               ' ',
                               'y',
                               'r',
                               't',
                               'c',
                               '<',
                               '>',
                               '?',
                               'q',
                               'x',
                               0x1f525,
                               KEYS_UP,
                               KEYS_DOWN,
                               KEYS_LEFT,
                               KEYS_RIGHT,
                               KEYS_PAGE_UP,
                               KEYS_HOME,
                               KEYS_PAGE_DOWN,
                               KEYS_END,
                               KEYS_ENTER,
                               KEYS_ESCAPE,
                               KEYS_TAB,
                               KEYS_BACKSPACE,
                               KEYS_CLEAR,
                               KEYS_FIRST,
                               0};
    struct sample *samples[] = {sample, scene_hostile(), scene_nothing("x"), scene_many(3, 30, 1),
                                NULL};
    unsigned int random = 1;
    for (int i = 0; i < 20000; i++) {
        random = random * 1103515245u + 12345u;
        keys_press(&view,
                   samples[random >> 8 & 3    ? random >> 8 & 3
                           : random >> 16 & 7 ? 0
                                              : 4],
                   (int)(random >> 20) % 12, keys[(random >> 10) % (sizeof keys / sizeof *keys)]);
        assert_true(view.top >= 0 && view.at >= 0 && view.scroll >= 0);
        assert_true(strlen(view.filter) < VIEW_TEXT && strlen(view.input) < VIEW_TEXT);
    }
    for (int s = 1; s < 4; s++)
        sample_destroy(samples[s]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rows_are_ordered), TEST(filter),  TEST(selection),
        TEST(scrolling),        TEST(folding), TEST(sorting),
        TEST(seconds),          TEST(killing), TEST(jobs_are_told_by_their_run),
        TEST(other_pages),      TEST(any_key), TEST(some_cannot_be_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
