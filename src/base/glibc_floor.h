/*
 * glibc_floor.h: keeps what is linked into the shared libraries loadable by old C libraries.
 *
 * Since glibc 2.34 libpthread and libdl are part of libc, and their symbols have a second, newer
 * version that a link on a current system would ask for. This asks for the old versions, which every
 * glibc since 2.17 has. Included in front of every file of src/ by the build. Sanitizers look for the
 * newest versions and are no product, so they build without it. A test reads the libraries with objdump.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__x86_64__)
#define ULL_OLD(name, version) __asm__(".symver " #name ", " #name "@" version);
#define ULL_FIRST "GLIBC_2.2.5"
#define ULL_SINCE_2_12 "GLIBC_2.12"
#define ULL_SINCE_2_3_3 "GLIBC_2.3.3"
#define ULL_SINCE_2_3_4 "GLIBC_2.3.4"
#elif defined(__aarch64__)
#define ULL_OLD(name, version) __asm__(".symver " #name ", " #name "@" version);
#define ULL_FIRST "GLIBC_2.17"
#define ULL_SINCE_2_12 "GLIBC_2.17"
#define ULL_SINCE_2_3_3 "GLIBC_2.17"
#define ULL_SINCE_2_3_4 "GLIBC_2.17"
#endif
#endif

#ifdef ULL_OLD
ULL_OLD(dlopen, ULL_FIRST)
ULL_OLD(dlsym, ULL_FIRST)
ULL_OLD(dladdr, ULL_FIRST)
ULL_OLD(dlerror, ULL_FIRST)
ULL_OLD(dlclose, ULL_FIRST)
ULL_OLD(dlmopen, ULL_SINCE_2_3_4)
ULL_OLD(pthread_create, ULL_FIRST)
ULL_OLD(pthread_detach, ULL_FIRST)
ULL_OLD(pthread_join, ULL_FIRST)
ULL_OLD(pthread_once, ULL_FIRST)
ULL_OLD(pthread_attr_setstacksize, ULL_FIRST)
ULL_OLD(pthread_mutex_trylock, ULL_FIRST)
ULL_OLD(pthread_mutex_timedlock, ULL_FIRST)
ULL_OLD(pthread_mutexattr_init, ULL_FIRST)
ULL_OLD(pthread_mutexattr_destroy, ULL_FIRST)
ULL_OLD(pthread_mutexattr_setpshared, ULL_FIRST)
ULL_OLD(pthread_mutexattr_setrobust, ULL_SINCE_2_12)
ULL_OLD(pthread_mutex_consistent, ULL_SINCE_2_12)
ULL_OLD(pthread_condattr_setclock, ULL_SINCE_2_3_3)
ULL_OLD(pthread_key_create, ULL_FIRST)
ULL_OLD(pthread_key_delete, ULL_FIRST)
ULL_OLD(pthread_getspecific, ULL_FIRST)
ULL_OLD(pthread_setspecific, ULL_FIRST)
ULL_OLD(pthread_rwlockattr_init, ULL_FIRST)
ULL_OLD(pthread_rwlockattr_destroy, ULL_FIRST)
ULL_OLD(pthread_rwlockattr_setkind_np, ULL_FIRST)
ULL_OLD(pthread_rwlock_init, ULL_FIRST)
ULL_OLD(pthread_rwlock_destroy, ULL_FIRST)
ULL_OLD(pthread_rwlock_rdlock, ULL_FIRST)
ULL_OLD(pthread_rwlock_wrlock, ULL_FIRST)
ULL_OLD(pthread_rwlock_unlock, ULL_FIRST)
#endif
