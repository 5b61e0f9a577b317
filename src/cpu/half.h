/* half.h: moved below, to src/graph; ops/ include it by this name. */
#include "../graph/half.h"
