/* pause.h: a moment of a loop that looks at a word until another thread or process writes it. */
#ifndef ULLAGE_BASE_PAUSE_H
#define ULLAGE_BASE_PAUSE_H

/* Tells the processor that this is such a loop: it leaves the core to its other thread, and does not look too far ahead. */
static inline void ull__pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
