/*
 * jump.S: every entry point of the driver, exported as a jump through a table.
 *
 * A hooked entry leads to its hook. Any other leads, the first time, to ull__jump_resolve, which finds
 * the driver's own function and puts it into the table; from then on it costs one indirect jump. All
 * argument registers are kept, so no signature is needed. Also here: dlopen and dlmopen, which look at
 * the path and then tail-jump, so that the linker still sees the program as its caller.
 */
#if defined(__x86_64__)

        .set    index, 0
        .macro  entry name, target
        .text
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:  endbr64
        jmp     *(ull__jump_table + 8 * index)(%rip)
        .size   \name, . - \name
        .data
        .quad   \target
        .set    index, index + 1
        .endm

        .macro  passed name
        .text
        .p2align 4
first_\name:
        push    $index
        jmp     resolve_and_jump
        entry   \name, first_\name
        .endm

        .macro  keep_arguments
        push    %rdi
        push    %rsi
        push    %rdx
        push    %rcx
        push    %r8
        push    %r9
        push    %rax
        sub     $128, %rsp
        movups  %xmm0, 0(%rsp)
        movups  %xmm1, 16(%rsp)
        movups  %xmm2, 32(%rsp)
        movups  %xmm3, 48(%rsp)
        movups  %xmm4, 64(%rsp)
        movups  %xmm5, 80(%rsp)
        movups  %xmm6, 96(%rsp)
        movups  %xmm7, 112(%rsp)
        .endm

        .macro  restore_arguments
        movups  0(%rsp), %xmm0
        movups  16(%rsp), %xmm1
        movups  32(%rsp), %xmm2
        movups  48(%rsp), %xmm3
        movups  64(%rsp), %xmm4
        movups  80(%rsp), %xmm5
        movups  96(%rsp), %xmm6
        movups  112(%rsp), %xmm7
        add     $128, %rsp
        pop     %rax
        pop     %r9
        pop     %r8
        pop     %rcx
        pop     %rdx
        pop     %rsi
        pop     %rdi
        .endm

        .data
        .p2align 4
        .globl  ull__jump_table
        .hidden ull__jump_table
ull__jump_table:

        .text
/* On entry the index has been pushed above the caller's return address; the stack is 16-aligned. */
resolve_and_jump:
        keep_arguments
        sub     $8, %rsp
        mov     192(%rsp), %rdi
        call    ull__jump_resolve
        mov     %rax, %r11
        add     $8, %rsp
        restore_arguments
        add     $8, %rsp
        jmp     *%r11

#ifndef ULL_NVML_STAND_IN
/* void *dlopen(const char *path, int flags) */
        .globl  dlopen
        .type   dlopen, @function
        .p2align 4
dlopen: endbr64
        push    %rdi
        push    %rsi
        sub     $8, %rsp
        call    ull__open_route
        add     $8, %rsp
        pop     %rsi
        pop     %rdi
        mov     %rax, %rdi
        jmp     *ull__linker_dlopen(%rip)
        .size   dlopen, . - dlopen

/* void *dlmopen(Lmid_t namespace, const char *path, int flags) */
        .globl  dlmopen
        .type   dlmopen, @function
        .p2align 4
dlmopen:
        endbr64
        push    %rdi
        push    %rsi
        push    %rdx
        call    ull__open_route_in
        pop     %rdx
        pop     %rsi
        pop     %rdi
        mov     %rax, %rsi
        jmp     *ull__linker_dlmopen(%rip)
        .size   dlmopen, . - dlmopen
#endif

#elif defined(__aarch64__)

        .set    index, 0
        .macro  entry name, target
        .text
        .globl  \name
        .type   \name, %function
        .p2align 2
\name:  adrp    x16, ull__jump_table + 8 * index
        ldr     x16, [x16, #:lo12:(ull__jump_table + 8 * index)]
        br      x16
        .size   \name, . - \name
        .data
        .quad   \target
        .set    index, index + 1
        .endm

        .macro  passed name
        .text
        .p2align 2
first_\name:
        mov     w17, #index
        b       resolve_and_jump
        entry   \name, first_\name
        .endm

        .data
        .p2align 4
        .globl  ull__jump_table
        .hidden ull__jump_table
ull__jump_table:

        .text
resolve_and_jump:
        stp     x29, x30, [sp, #-224]!
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      ull__jump_resolve
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldr     x8, [sp, #80]
        ldp     q0, q1, [sp, #96]
        ldp     q2, q3, [sp, #128]
        ldp     q4, q5, [sp, #160]
        ldp     q6, q7, [sp, #192]
        ldp     x29, x30, [sp], #224
        br      x16

#ifndef ULL_NVML_STAND_IN
        .globl  dlopen
        .type   dlopen, %function
        .p2align 2
dlopen: stp     x29, x30, [sp, #-32]!
        str     x1, [sp, #16]
        bl      ull__open_route
        ldr     x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        adrp    x16, ull__linker_dlopen
        ldr     x16, [x16, #:lo12:ull__linker_dlopen]
        br      x16
        .size   dlopen, . - dlopen

        .globl  dlmopen
        .type   dlmopen, %function
        .p2align 2
dlmopen:
        stp     x29, x30, [sp, #-32]!
        stp     x0, x2, [sp, #16]
        bl      ull__open_route_in
        mov     x1, x0
        ldp     x0, x2, [sp, #16]
        ldp     x29, x30, [sp], #32
        adrp    x16, ull__linker_dlmopen
        ldr     x16, [x16, #:lo12:ull__linker_dlmopen]
        br      x16
        .size   dlmopen, . - dlmopen
#endif

#else
#error "jump.S knows x86-64 and aarch64"
#endif

#ifdef ULL_NVML_STAND_IN
#define NVML_HOOK(symbol, params, args) entry symbol, ull__hook_##symbol
#define NVML_CALL(symbol, params) passed symbol
#define NVML_PASS(symbol) passed symbol
#include "nvml_api.def"
#else
#define CU_HOOK(symbol, base, since, since_pt, params, args) entry symbol, ull__hook_##symbol
#define CU_CALL(symbol, base, since, since_pt, exempt, params) passed symbol
#define CU_PASS(symbol, base, since, since_pt, exempt) passed symbol
#include "cuda_api.def"
#endif

/* By this note src/device/find.c knows a stand-in from a driver, whatever its file is called. */
        .section .note.ullage, "a", %note
        .balign 4
        .long   7, 0, 1
        .asciz  "ullage"
        .balign 4

        .section .note.GNU-stack, "", %progbits
