/* check.c: see check.h. */
#include "check.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "size.h"

static const struct {
    const char *name;
    bool bytes;
} fields[CHECK_FIELDS] = {
    [CHECK_HELD] = {"held", true},
    [CHECK_PEAK] = {"peak", true},
    [CHECK_AVERAGE] = {"average", true},
    [CHECK_FREE] = {"free", true},
    [CHECK_BUDGET] = {"budget", true},
    [CHECK_REFUSALS] = {"refusals", false},
    [CHECK_PROCESSES] = {"processes", false},
    [CHECK_OUTSIDE] = {"outside", false},
};

/* Longer ones first: they begin like shorter ones. */
static const char *const operators[CHECK_OPERATORS] = {
    [CHECK_LE] = "<=", [CHECK_GE] = ">=", [CHECK_NE] = "!=",
    [CHECK_EQ] = "=",  [CHECK_LT] = "<",  [CHECK_GT] = ">",
};

#define EXPECTED                                                                                   \
    "expected FIELD OPERATOR VALUE such as 'held>90%%', with 'and' or 'or' between several; "      \
    "FIELD is "                                                                                    \
    "held, peak, average, free, budget (a size or a share), refusals, processes or outside (a "    \
    "number); OPERATOR is <, <=, >, >=, = or !="

static const char *skip_blanks(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* The number of letters of a word that ends there. */
static size_t word_length(const char *at)
{
    size_t length = 0;
    while (isalpha((unsigned char)at[length]))
        length++;
    return length;
}

static ull_status read_field(const char **at, enum check_field *field, struct ull_error *err)
{
    size_t length = word_length(*at);
    for (int f = 0; f < CHECK_FIELDS; f++) {
        if (strlen(fields[f].name) == length && strncmp(fields[f].name, *at, length) == 0) {
            *field = (enum check_field)f;
            *at = skip_blanks(*at + length);
            return ULL_OK;
        }
    }
    return ull__fail(err, ULL_E_INVALID, "--check: '%.40s' is no field: " EXPECTED,
                     **at ? *at : "(the end)");
}

static ull_status read_operator(const char **at, enum check_relation *relation, struct ull_error *err)
{
    for (int o = 0; o < CHECK_OPERATORS; o++) {
        size_t length = strlen(operators[o]);
        if (strncmp(*at, operators[o], length) != 0)
            continue;
        *relation = (enum check_relation)o;
        *at += length;
        if (o == CHECK_EQ && **at == '=')
            (*at)++;
        *at = skip_blanks(*at);
        return ULL_OK;
    }
    return ull__fail(err, ULL_E_INVALID, "--check: '%.40s' is no operator: " EXPECTED,
                     **at ? *at : "(the end)");
}

static ull_status read_value(const char **at, bool bytes, uint64_t *number, double *percent,
                             struct ull_error *err)
{
    char word[64], *end;
    struct ull_error why = {.message = ""};
    struct ull_size size = {0};
    size_t length = strcspn(*at, " \t\n");
    bool fits = length > 0 && length < sizeof word;
    snprintf(word, sizeof word, "%.*s", (int)(fits ? length : 0), *at);
    *at = skip_blanks(*at + length);
    *percent = 0;
    *number = 0;
    if (strcmp(word, "0") == 0 || (bytes && strcmp(word, "0%") == 0))
        return ULL_OK;
    if (bytes && fits && ull__size_or_share_parse(word, &size, &why) == ULL_OK) {
        *number = size.bytes;
        *percent = size.percent;
        return ULL_OK;
    }
    errno = 0;
    unsigned long long count = strtoull(word, &end, 10);
    if (!bytes && fits && isdigit((unsigned char)word[0]) && !*end && !errno) {
        *number = count;
        return ULL_OK;
    }
    return ull__fail(err, ULL_E_INVALID, "--check: '%.40s' is no value here: " EXPECTED,
                     word[0] ? word : "(the end)");
}

ull_status check_parse(const char *text, struct check *check, struct ull_error *err)
{
    struct check parsed = {.count = 0};
    const char *at = skip_blanks(text);
    bool alternative = false;
    for (;;) {
        if (parsed.count == CHECK_CONDITIONS)
            return ull__fail(err, ULL_E_INVALID, "--check takes %d conditions at most",
                             CHECK_CONDITIONS);
        int c = parsed.count++;
        ull_status status = read_field(&at, &parsed.condition[c].field, err);
        if (status == ULL_OK)
            status = read_operator(&at, &parsed.condition[c].relation, err);
        if (status == ULL_OK)
            status = read_value(&at, fields[parsed.condition[c].field].bytes,
                                &parsed.condition[c].number, &parsed.condition[c].percent, err);
        if (status != ULL_OK)
            return status;
        parsed.condition[c].alternative = alternative;
        if (!*at)
            break;
        size_t length = word_length(at);
        bool and = length == 3 && strncmp(at, "and", 3) == 0;
        alternative = length == 2 && strncmp(at, "or", 2) == 0;
        if (!and&&!alternative)
            return ull__fail(err, ULL_E_INVALID,
                             "--check: '%.40s' is neither 'and' nor 'or': " EXPECTED, at);
        at = skip_blanks(at + length);
    }
    *check = parsed;
    return ULL_OK;
}

static uint64_t figure(const struct check_facts *facts, enum check_field field)
{
    switch (field) {
    case CHECK_HELD:
        return facts->held;
    case CHECK_PEAK:
        return facts->peak;
    case CHECK_AVERAGE:
        return facts->average;
    case CHECK_FREE:
        return facts->budget > facts->held ? facts->budget - facts->held : 0;
    case CHECK_BUDGET:
        return facts->budget;
    case CHECK_REFUSALS:
        return facts->refusals;
    case CHECK_PROCESSES:
        return facts->processes;
    case CHECK_OUTSIDE:
        return facts->outside;
    case CHECK_FIELDS:
        break;
    }
    return 0;
}

static bool compare(double left, enum check_relation relation, double right)
{
    switch (relation) {
    case CHECK_LE:
        return left <= right;
    case CHECK_GE:
        return left >= right;
    case CHECK_NE:
        return left < right || left > right;
    case CHECK_EQ:
        return !(left < right || left > right);
    case CHECK_LT:
        return left < right;
    case CHECK_GT:
        return left > right;
    case CHECK_OPERATORS:
        break;
    }
    return false;
}

/* Sizes of memory are exact in a double up to 2^53 bytes. */
bool check_holds(const struct check *check, const struct check_facts *facts)
{
    bool group = true;
    for (int c = 0; c < check->count; c++) {
        enum check_field field = check->condition[c].field;
        uint64_t whole = field == CHECK_BUDGET ? facts->total : facts->budget;
        double right = check->condition[c].percent > 0
                           ? (double)whole * check->condition[c].percent / 100
                           : (double)check->condition[c].number;
        if (check->condition[c].alternative) {
            if (group)
                return true;
            group = true;
        }
        group &= compare((double)figure(facts, field), check->condition[c].relation, right);
    }
    return group && check->count > 0;
}

void check_tell(const struct check *check, const struct check_facts *facts, char text[CHECK_TEXT])
{
    size_t used = 0;
    text[0] = 0;
    for (int c = 0; c < check->count && used < CHECK_TEXT; c++) {
        enum check_field field = check->condition[c].field;
        char size[ULL_SIZE_TEXT], number[32];
        bool again = false;
        for (int k = 0; k < c; k++)
            again |= check->condition[k].field == field;
        if (again)
            continue;
        snprintf(number, sizeof number, "%" PRIu64, figure(facts, field));
        used += (size_t)snprintf(
            text + used, CHECK_TEXT - used, "%s%s %s", used ? ", " : "", fields[field].name,
            fields[field].bytes ? ull__size_text(figure(facts, field), size) : number);
    }
}
