/*
 * test_layout.c: whole screens against files of golden/, and at every size that nothing leaves its place.
 * With ULLAGE_WRITE_GOLDEN=1 the files are written anew, to be looked at before they are committed.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "keys.h"
#include "layout.h"
#include "scene.h"

static const struct layout_about about = {.host = "node7", .now_ns = 5500000000ull};

static char *screen_text(const struct grid *grid)
{
    size_t room = (size_t)grid->width * 4 + 8, used = 0;
    char *text = malloc(room * (size_t)grid->height + 1);
    assert_non_null(text);
    for (int y = 0; y < grid->height; y++) {
        used += grid_line(grid, y, text + used, room);
        text[used++] = '\n';
    }
    text[used] = 0;
    return text;
}

static void compare(const char *name, const struct grid *grid)
{
    char path[512];
    char *text = screen_text(grid);
    snprintf(path, sizeof path, "%s/%s.txt", GOLDEN, name);
    if (getenv("ULLAGE_WRITE_GOLDEN")) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fputs(text, file) >= 0 && fclose(file) == 0, 1);
    }
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *wanted = calloc(1, strlen(text) + 4096);
    size_t got = fread(wanted, 1, strlen(text) + 4095, file);
    wanted[got] = 0;
    fclose(file);
    assert_string_equal(text, wanted);
    free(wanted);
    free(text);
}

static void golden(const char *name, struct sample *sample, struct view *view, int width,
                   int height, bool ascii)
{
    struct grid grid;
    assert_true(grid_init(&grid, width, height, ascii));
    if (view->page == PAGE_MAIN)
        keys_follow(view, sample, layout_room(sample, view, width, height));
    layout_draw(&grid, sample, view, &about);
    compare(name, &grid);
    grid_finish(&grid);
    sample_destroy(sample);
}

static void screens(void **state)
{
    (void)state;
    struct view view;
    view_init(&view);
    golden("usual_80x24", scene_usual(), &view, 80, 24, false);
    golden("usual_160x20", scene_usual(), &view, 160, 20, false);
    golden("usual_40x10", scene_usual(), &view, 40, 10, false);
    golden("usual_ascii", scene_usual(), &view, 80, 24, true);
    golden("many_80x24", scene_many(40, 3, 8), &view, 80, 24, false);
    view.flat = true;
    view.sort = SORT_NAME;
    golden("flat_by_name", scene_usual(), &view, 100, 24, false);
    view_init(&view);
    view.readonly = true;
    golden("nothing", scene_nothing("cannot find libnvidia-ml.so.1"), &view, 80, 12, false);
    golden("too_small", scene_usual(), &view, 30, 6, false);
}

static void pages(void **state)
{
    (void)state;
    struct view view;
    view_init(&view);
    view.page = PAGE_DETAILS;
    view.selected = (struct row_key){.id = "id2"};
    golden("details_job", scene_usual(), &view, 80, 36, false);
    view.selected = (struct row_key){.id = "id2", .pid = 2004, .start_ticks = 504};
    golden("details_process", scene_usual(), &view, 80, 24, false);
    view.selected = (struct row_key){.id = "id2", .pid = 9999, .start_ticks = 1};
    golden("details_gone", scene_usual(), &view, 80, 8, false);
    view.page = PAGE_HELP;
    golden("help", scene_usual(), &view, 80, 32, false);
}

static void whole(void **state)
{
    (void)state;
    struct grid grid;
    struct view view;
    struct sample *sample = scene_usual();
    view_init(&view);
    assert_true(layout_whole(&grid, sample, &view, 80, false));
    compare("whole", &grid);
    grid_finish(&grid);
    sample_destroy(sample);
}

/* Every cell can be printed, has the width it says, and no wide one is cut in two. */
static void check_cells(const struct grid *grid)
{
    for (int y = 0; y < grid->height; y++) {
        for (int x = 0; x < grid->width; x++) {
            const struct cell *cell = &grid->cells[y * grid->width + x];
            assert_true(cell->look < LOOKS);
            if (cell->columns == 0) {
                assert_true(x > 0 && cell[-1].columns == 2);
                continue;
            }
            assert_int_equal(wcwidth((wchar_t)cell->text), cell->columns);
            assert_true(cell->text >= 0x20 && (cell->text < 0x7f || cell->text >= 0xa0));
            assert_true(!grid->ascii || cell->text < 0x7f);
            assert_true(cell->columns == 1 || (x + 1 < grid->width && cell[1].columns == 0));
        }
    }
}

static void draw_all(struct sample *sample, struct view *view, int width, int height)
{
    for (int ascii = 0; ascii < 2; ascii++) {
        struct grid grid;
        assert_true(grid_init(&grid, width, height, ascii));
        layout_draw(&grid, sample, view, &about);
        check_cells(&grid);
        grid_finish(&grid);
    }
}

static void every_size(void **state)
{
    (void)state;
    struct sample *samples[] = {scene_usual(), scene_hostile(), scene_many(30, 20, 12),
                                scene_nothing("x"), NULL};
    for (int s = 0; s < 5; s++) {
        struct view view;
        view_init(&view);
        for (int width = 1; width <= 300; width += width < 120 ? 1 : 7) {
            int height = 1 + (width * 7 + s) % 60;
            view.page = (enum view_page)(width % 3);
            view.cards = (enum view_cards)(width / 3 % 3);
            view.sort = (enum view_sort)(width % SORTS);
            view.flat = width % 2;
            view.prompt = width % 5 == 0 ? PROMPT_SIGNAL : PROMPT_NONE;
            snprintf(view.target_name, sizeof view.target_name, "%s",
                     samples[1]->jobs[width % 9].name);
            keys_follow(&view, samples[s], layout_room(samples[s], &view, width, height));
            draw_all(samples[s], &view, width, height);
            view.scroll = layout_scroll_end(samples[s], &view, width, height);
            draw_all(samples[s], &view, width, height);
            view.scroll = 0;
        }
    }
    for (int s = 0; s < 5; s++)
        sample_destroy(samples[s]);
}

/* The selected row is always on the screen. */
static void selection_in_sight(void **state)
{
    (void)state;
    struct sample *sample = scene_many(50, 2, 4);
    struct view view;
    view_init(&view);
    for (int i = 0; i < 160; i++) {
        struct grid grid;
        int height = 10 + i % 20, painted = 0;
        keys_press(&view, sample, layout_room(sample, &view, 80, height), KEYS_DOWN);
        assert_true(grid_init(&grid, 80, height, false));
        layout_draw(&grid, sample, &view, &about);
        for (int y = 0; y < height; y++)
            painted += grid.cells[y * 80].look == LOOK_SELECTED;
        assert_int_equal(painted, 1);
        grid_finish(&grid);
    }
    sample_destroy(sample);
}

/* A sample that is late is said to be. */
static void late(void **state)
{
    (void)state;
    struct layout_about later = {.host = "node7", .now_ns = 20000000000ull};
    struct sample *sample = scene_usual();
    struct grid grid;
    struct view view;
    view_init(&view);
    assert_true(grid_init(&grid, 80, 24, false));
    layout_draw(&grid, sample, &view, &later);
    char *text = screen_text(&grid);
    assert_non_null(strstr(text, "no answer for 15 s\n"));
    free(text);
    grid_finish(&grid);
    sample_destroy(sample);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0"},
                 {1, "1B"},
                 {1023, "1023B"},
                 {1024, "1K"},
                 {526ull << 20, "526M"},
                 {(1ull << 30) - 1, "1.0G"},
                 {1ull << 30, "1.0G"},
                 {150754820096ull, "140.4G"},
                 {SAMPLE_UNKNOWN, "-"},
                 {SAMPLE_UNKNOWN - 1, "16.0E"}};
    char text[LAYOUT_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(layout_size(cases[i].bytes, text), cases[i].text);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        fprintf(stderr, "the locale C.UTF-8 is missing\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(screens),    cmocka_unit_test(pages), cmocka_unit_test(whole),
        cmocka_unit_test(every_size), cmocka_unit_test(late),  cmocka_unit_test(selection_in_sight),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
