/* check.h: a check that says where it failed and ends the program, with NDEBUG too. */
#ifndef BINDINGS_CHECK_H
#define BINDINGS_CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
    ((condition)                                                                                   \
         ? (void)0                                                                                 \
         : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), std::exit(1)))

#endif
