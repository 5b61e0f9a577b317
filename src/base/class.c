/* class.c: see class.h. */
#include "class.h"

const char *ull__class_name(enum ull__class class)
{
    static const char *const names[] = {
#define X(name, text) text,
        ULL_CLASS_MAP(X)
#undef X
    };
    return (unsigned int)class < ULL_CLASSES ? names[class] : "unknown";
}
