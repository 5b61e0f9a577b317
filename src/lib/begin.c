/* begin.c: what a library of ours does as it is loaded: nothing but to note who follows its pools. */
#include "offer.h"

__attribute__((constructor)) static void begin(void)
{
    ull__offer_begin();
}
