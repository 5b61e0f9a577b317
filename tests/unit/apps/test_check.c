/* test_check.c: conditions as `ullage ps --check` takes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"

#define GIB (1ull << 30)

static const struct check_facts facts = {
    .held = 3 * GIB + GIB / 2, /* 87.5 % */
    .peak = 4 * GIB,
    .average = GIB,
    .budget = 4 * GIB,
    .total = 16 * GIB,
    .refusals = 2,
    .processes = 1,
};

static void values(void **state)
{
    static const struct {
        const char *text;
        bool holds;
    } cases[] = {
        {"held>90%", false},
        {"held>87%", true},
        {"held>87.5%", false},
        {"held>=87.5%", true},
        {"held<=87.5%", true},
        {"held<87.5%", false},
        {"held=3.5GiB", true},
        {"held==3.5GiB", true},
        {"held!=3.5GiB", false},
        {"held != 3GiB", true},
        {"  peak  >=  100%  ", true},
        {"peak>4GiB", false},
        {"free<1GiB", true},
        {"free>12.5%", false},
        {"free>=12.5%", true},
        {"average>0", true},
        {"average>0%", true},
        {"budget<50%", true}, /* of the card */
        {"budget>25%", false},
        {"budget=25%", true},
        {"refusals>0", true},
        {"refusals>2", false},
        {"refusals=2", true},
        {"processes=1", true},
        {"outside>0", false},
        {"held>90% or refusals>0", true},
        {"held>90% and refusals>0", false},
        {"held>80% and refusals>0", true},
        {"held>80% and refusals>5", false},
        /* "and" binds stronger */
        {"held>80% or held>80% and refusals>5", true},
        {"refusals>5 and held>80% or peak>1GiB", true},
        {"refusals>5 and held>80% or peak>5GiB", false},
        {"held>99% or peak>5GiB or outside=0", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct check check;
        struct ull_error err = {.message = ""};
        if (check_parse(cases[i].text, &check, &err) != ULL_OK)
            fail_msg("'%s' was refused: %s", cases[i].text, err.message);
        if (check_holds(&check, &facts) != cases[i].holds)
            fail_msg("'%s' came out wrong", cases[i].text);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *text, *names; /* what the message must name */
    } cases[] = {
        {"", "the end"},
        {"   ", "the end"},
        {"held", "no operator"},
        {"held>", "no value"},
        {"held>>90%", ">90%"},
        {"held 90%", "'90%'"},
        {"mem>90%", "'mem>90%' is no field"},
        {"helder>90%", "no field"},
        {"HELD>90%", "no field"},
        {"held>9x%", "'9x%'"},
        {"held>101%", "'101%'"},
        {"held>-1", "'-1'"},
        {"held>90%%", "'90%%'"},
        {"refusals>1GiB", "'1GiB'"},
        {"refusals>50%", "'50%'"},
        {"refusals>1.5", "'1.5'"},
        {"refusals>99999999999999999999", "99999999999999999999"},
        {"held>90% refusals>0", "neither"},
        {"held>90% and", "the end"},
        {"held>90% andrefusals>0", "neither"},
        {"held>90% xor refusals>0", "neither"},
        {"held>90% & refusals>0", "neither"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct check check = {.count = 77};
        struct ull_error err = {.message = ""};
        if (check_parse(cases[i].text, &check, &err) != ULL_E_INVALID)
            fail_msg("'%s' was taken", cases[i].text);
        assert_int_equal(check.count, 77);
        if (!strstr(err.message, cases[i].names) || !strstr(err.message, "!="))
            fail_msg("'%s' says: %s", cases[i].text, err.message);
    }
}

static void too_many(void **state)
{
    char text[1024] = "held>0";
    struct check check;
    (void)state;
    for (int i = 1; i < CHECK_CONDITIONS; i++)
        strcat(text, " or held>0");
    assert_int_equal(check_parse(text, &check, NULL), ULL_OK);
    strcat(text, " or held>0");
    assert_int_equal(check_parse(text, &check, NULL), ULL_E_INVALID);
}

static void told(void **state)
{
    struct check check;
    char text[CHECK_TEXT];
    (void)state;
    assert_int_equal(check_parse("held>1 and held<90% or refusals>0 or free<1", &check, NULL),
                     ULL_OK);
    check_tell(&check, &facts, text);
    assert_string_equal(text, "held 3.5 GiB, refusals 2, free 512.0 MiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(refused),
        cmocka_unit_test(too_many),
        cmocka_unit_test(told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
