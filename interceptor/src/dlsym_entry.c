// SPDX-License-Identifier: Apache-2.0
//
// dlsym itself. RTLD_NEXT and RTLD_DEFAULT mean something relative to whoever called, which glibc learns from the return
// address: such a call has to reach the C library by a jump with the caller's frame on top, not by a call from here. No
// compiler promises that in every build, so these few instructions are written out.

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $16, %rsp\n"
        ".cfi_adjust_cfa_offset 16\n"
        "call sluice_dlsym_answer\n"
        "addq $16, %rsp\n"
        ".cfi_adjust_cfa_offset -16\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "testq %rax, %rax\n"
        "je 1f\n"
        "movq %rdx, %rsi\n"
        "jmp *%rax\n"
        "1: movq %rdx, %rax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "hint #34\n" // bti c
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_adjust_cfa_offset 32\n"
        ".cfi_rel_offset x29, 0\n"
        ".cfi_rel_offset x30, 8\n"
        "str x0, [sp, #16]\n"
        "bl sluice_dlsym_answer\n"
        "mov x16, x0\n"
        "ldr x2, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_adjust_cfa_offset -32\n"
        ".cfi_restore x29\n"
        ".cfi_restore x30\n"
        "mov x0, x1\n"
        "cbz x16, 1f\n"
        "mov x0, x2\n"
        "br x16\n"
        "1: ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#error "dlsym has an entry for x86-64 and arm64 only"
#endif
