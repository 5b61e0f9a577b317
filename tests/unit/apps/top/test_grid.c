/* test_grid.c: text of any kind in cells. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grid.h"

/* What a line of 10 columns looks like with text in the first 8. */
static void shows(const char *text, bool ascii, const char *wanted)
{
    struct grid grid;
    char line[64];
    assert_true(grid_init(&grid, 10, 1, ascii));
    grid_text(&grid, 0, 0, 8, LOOK_PLAIN, text);
    grid_text(&grid, 9, 0, 1, LOOK_PLAIN, "|");
    grid_line(&grid, 0, line, sizeof line);
    assert_string_equal(line, wanted);
    grid_finish(&grid);
}

static void text_is_cut(void **state)
{
    (void)state;
    shows("short", false, "short    |");
    shows("12345678", false, "12345678 |");
    shows("123456789", false, "1234567\u2026 |");
    shows("123456789", true, "1234567~ |");
    shows("", false, "         |");
}

static void nothing_escapes(void **state)
{
    (void)state;
    shows("a\033[2Jb", false, "a?[2Jb   |");
    shows("\r\n\t\x7f", false, "????     |");
    shows("\xc2\x9b"
          "5n",
          false, "?5n      |");                                /* C1: CSI in one byte */
    shows("\xff\xc0\xaf", false, "\ufffd\ufffd\ufffd      |"); /* no UTF-8, and overlong */
    shows("\xed\xa0\x80", false, "\ufffd\ufffd\ufffd      |"); /* a surrogate */
    shows("\xe2\x82", false, "\ufffd\ufffd       |");          /* cut off at the end */
    shows("\u202eabc\u2066", false, "abc      |");
    shows("e\u0301\u0301x", false, "ex       |");
    shows("h\u00e9", true, "h?       |");
}

static void wide_characters(void **state)
{
    (void)state;
    shows("\u5b66\u4e60\u8bad\u7ec3", false, "\u5b66\u4e60\u8bad\u7ec3 |");
    shows("\u5b66\u4e60\u8bad\u7ec3\u5b66", false, "\u5b66\u4e60\u8bad\u2026  |");
    shows("1\u5b66\u4e60\u8bad\u7ec3", false, "1\u5b66\u4e60\u8bad\u2026 |");
    shows("\u5b66", true, "?        |");
}

static void halves_go_together(void **state)
{
    (void)state;
    struct grid grid;
    char line[64];
    assert_true(grid_init(&grid, 6, 1, false));
    grid_text(&grid, 0, 0, 6, LOOK_PLAIN, "\u5b66\u4e60\u8bad");
    grid_text(&grid, 1, 0, 1, LOOK_PLAIN, "x");
    grid_line(&grid, 0, line, sizeof line);
    assert_string_equal(line, " x\u4e60\u8bad");
    grid_text(&grid, 4, 0, 1, LOOK_PLAIN, "y");
    grid_line(&grid, 0, line, sizeof line);
    assert_string_equal(line, " x\u4e60y");
    grid_text(&grid, 3, 0, 2, LOOK_PLAIN, "\u5b66");
    grid_line(&grid, 0, line, sizeof line);
    assert_string_equal(line, " x \u5b66");
    grid_finish(&grid);
}

static void edges_clip(void **state)
{
    (void)state;
    struct grid grid;
    char line[64];
    assert_true(grid_init(&grid, 4, 2, false));
    grid_text(&grid, 2, 0, 10, LOOK_PLAIN, "abc");
    grid_text(&grid, -1, 1, 10, LOOK_PLAIN, "abc");
    grid_text(&grid, 0, 2, 10, LOOK_PLAIN, "below");
    grid_text(&grid, 0, -1, 10, LOOK_PLAIN, "above");
    grid_text(&grid, 3, 1, 10, LOOK_PLAIN, "\u5b66");
    grid_paint(&grid, -5, 0, 100, LOOK_BAD);
    grid_glyph(&grid, 4, 0, LOOK_BAD, GLYPH_CUT);
    grid_line(&grid, 0, line, sizeof line);
    assert_string_equal(line, "  ab");
    grid_line(&grid, 1, line, sizeof line);
    assert_string_equal(line, "bc");
    grid_finish(&grid);
}

int main(void)
{
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        fprintf(stderr, "the locale C.UTF-8 is missing\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut),     cmocka_unit_test(nothing_escapes),
        cmocka_unit_test(wide_characters), cmocka_unit_test(halves_go_together),
        cmocka_unit_test(edges_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
