/* type.c: texts and sizes of types and roles. See type.h. */
#include "type.h"

#include <string.h>

static const struct {
    const char *text;
    int bits;
} types[] = {
#define X(name, text, bits, onnx) {text, bits},
    ULL_TYPE_MAP(X)
#undef X
};

static const char *const roles[] = {
#define X(name, text) text,
    ULL_ROLE_MAP(X)
#undef X
};

const char *ull__type_text(enum ull__type type)
{
    return types[type].text;
}

bool ull__type_parse(const char *text, enum ull__type *type)
{
    for (int i = 0; i < ULL_TYPES; ++i) {
        if (strcmp(types[i].text, text) == 0) {
            *type = (enum ull__type)i;
            return true;
        }
    }
    return false;
}

int ull__type_bits(enum ull__type type)
{
    return types[type].bits;
}

bool ull__type_is_float(enum ull__type type)
{
    return type <= ULL_TYPE_F8;
}

bool ull__type_is_half(enum ull__type type)
{
    return type == ULL_TYPE_F16 || type == ULL_TYPE_BF16;
}

const char *ull__role_text(enum ull__role role)
{
    return roles[role];
}
