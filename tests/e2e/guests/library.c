/*
 * library.c: a library between a program and the driver. LINKED, it is linked with -lcuda and has a
 * run path that leads to the driver; else it opens what GUEST_OPEN names.
 */
#include <dlfcn.h>
#include <stdlib.h>

void *guest_open(void);

#ifdef LINKED
int cuDriverGetVersion(int *version);

void *guest_open(void)
{
    int version = 0;
    return cuDriverGetVersion(&version) == 0 ? dlopen(NULL, RTLD_NOW) : NULL;
}
#else
void *guest_open(void)
{
    return dlopen(getenv("GUEST_OPEN"), RTLD_NOW);
}
#endif
