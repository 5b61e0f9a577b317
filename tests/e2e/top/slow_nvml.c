/* slow_nvml.c: a management library that never answers, as a hung driver does. */
#include <unistd.h>

int nvmlInit_v2(void);
__attribute__((visibility("default"))) int nvmlInit_v2(void)
{
    for (;;)
        pause();
}
