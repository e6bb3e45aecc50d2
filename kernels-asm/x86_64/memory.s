# Rates and latencies of one core's memory, and its clock.
#
# The project's kernel ABI: void kernel(const u64 *args, u64 tid), System V.
#
# read_*    args: const u32* src, u32* out, u64 bytes, u64 chunk. tid reads [tid*chunk, min(bytes, (tid+1)*chunk)) and stores 16
#           partial sums of the words (modulo 2^32) at out + tid*64. bytes and chunk are multiples of 64.
# copy_*    args: const u8* src, u8* dst, u64 bytes, u64 chunk. The same part, with stores that bypass the caches; dst is aligned to 64.
# fill_*    args: u8* dst, u64 value, u64 bytes, u64 chunk. Fills the same part with the low 32 bits of value, likewise.
# chase     args: u64* out, u64 start, u64 count. Follows addresses from start count times, and stores where it ends.
# clock     args: u64* out, u64 count. count (a multiple of 16) additions, each of the one before: a clock each.
# atomic    args: u32* dst, u64 words (a power of two), u64 rounds. tid adds 1 to word tid modulo words, rounds times.

        .intel_syntax noprefix
        .text

        .macro  enter name
        .globl  \name
        .type   \name, @function
        .balign 64
\name:
        .endm

        .macro  leave_kernel name
        ret
        .size   \name, . - \name
        .endm

# rcx: where the part begins, r8: its bytes, rax and rdx: the first two arguments; ends at 9 without work.
        .macro  part
        mov     rax, [rdi]
        mov     rdx, [rdi + 8]
        mov     r8, [rdi + 16]
        mov     r9, [rdi + 24]
        mov     rcx, rsi
        imul    rcx, r9
        sub     r8, rcx
        jbe     9f
        cmp     r8, r9
        cmova   r8, r9
        .endm

        enter   read_avx2
        vpxor   xmm0, xmm0, xmm0
        vmovdqa ymm1, ymm0
        vmovdqa ymm2, ymm0
        vmovdqa ymm3, ymm0
        mov     r10, [rdi + 8]
        shl     rsi, 6
        add     r10, rsi
        shr     rsi, 6
        vmovdqu [r10], ymm0
        vmovdqu [r10 + 32], ymm0
        part
        add     rax, rcx
2:      cmp     r8, 256
        jb      3f
        .irp    at, 0, 128
        vpaddd  ymm0, ymm0, [rax + \at]
        vpaddd  ymm1, ymm1, [rax + \at + 32]
        vpaddd  ymm2, ymm2, [rax + \at + 64]
        vpaddd  ymm3, ymm3, [rax + \at + 96]
        .endr
        add     rax, 256
        sub     r8, 256
        jmp     2b
3:      test    r8, r8
        jz      4f
        vpaddd  ymm0, ymm0, [rax]
        vpaddd  ymm1, ymm1, [rax + 32]
        add     rax, 64
        sub     r8, 64
        jmp     3b
4:      vpaddd  ymm0, ymm0, ymm2
        vpaddd  ymm1, ymm1, ymm3
        vmovdqu [r10], ymm0
        vmovdqu [r10 + 32], ymm1
9:      vzeroupper
        leave_kernel read_avx2

        enter   read_avx512
        vpxorq  zmm0, zmm0, zmm0
        vmovdqa64 zmm1, zmm0
        vmovdqa64 zmm2, zmm0
        vmovdqa64 zmm3, zmm0
        mov     r10, [rdi + 8]
        shl     rsi, 6
        add     r10, rsi
        shr     rsi, 6
        vmovdqu64 [r10], zmm0
        part
        add     rax, rcx
2:      cmp     r8, 512
        jb      3f
        .irp    at, 0, 256
        vpaddd  zmm0, zmm0, [rax + \at]
        vpaddd  zmm1, zmm1, [rax + \at + 64]
        vpaddd  zmm2, zmm2, [rax + \at + 128]
        vpaddd  zmm3, zmm3, [rax + \at + 192]
        .endr
        add     rax, 512
        sub     r8, 512
        jmp     2b
3:      test    r8, r8
        jz      4f
        vpaddd  zmm0, zmm0, [rax]
        add     rax, 64
        sub     r8, 64
        jmp     3b
4:      vpaddd  zmm0, zmm0, zmm1
        vpaddd  zmm2, zmm2, zmm3
        vpaddd  zmm0, zmm0, zmm2
        vmovdqu64 [r10], zmm0
9:      vzeroupper
        leave_kernel read_avx512

        enter   copy_avx2
        part
        add     rax, rcx
        add     rdx, rcx
2:      vmovdqu ymm0, [rax]
        vmovdqu ymm1, [rax + 32]
        vmovntdq [rdx], ymm0
        vmovntdq [rdx + 32], ymm1
        add     rax, 64
        add     rdx, 64
        sub     r8, 64
        ja      2b
9:      sfence
        vzeroupper
        leave_kernel copy_avx2

        enter   copy_avx512
        part
        add     rax, rcx
        add     rdx, rcx
2:      vmovdqu64 zmm0, [rax]
        vmovntdq [rdx], zmm0
        add     rax, 64
        add     rdx, 64
        sub     r8, 64
        ja      2b
9:      sfence
        vzeroupper
        leave_kernel copy_avx512

        enter   fill_avx2
        part
        add     rax, rcx
        vmovd   xmm0, edx
        vpbroadcastd ymm0, xmm0
2:      vmovntdq [rax], ymm0
        vmovntdq [rax + 32], ymm0
        add     rax, 64
        sub     r8, 64
        ja      2b
9:      sfence
        vzeroupper
        leave_kernel fill_avx2

        enter   fill_avx512
        part
        add     rax, rcx
        vpbroadcastd zmm0, edx
2:      vmovntdq [rax], zmm0
        add     rax, 64
        sub     r8, 64
        ja      2b
9:      sfence
        vzeroupper
        leave_kernel fill_avx512

        enter   chase
        mov     rax, [rdi]
        mov     rdx, [rdi + 8]
        mov     rcx, [rdi + 16]
2:      mov     rdx, [rdx]
        dec     rcx
        jnz     2b
        mov     [rax], rdx
        leave_kernel chase

        enter   clock
        mov     rax, [rdi]
        mov     rcx, [rdi + 8]
        shr     rcx, 4
        mov     edx, 1
        .balign 32
2:
        .rept   16
        add     rdx, rcx
        .endr
        dec     rcx
        jnz     2b
        mov     [rax], rdx
        leave_kernel clock

        enter   atomic
        mov     rax, [rdi]
        mov     rdx, [rdi + 8]
        mov     rcx, [rdi + 16]
        dec     rdx
        and     rdx, rsi
2:      lock add dword ptr [rax + 4*rdx], 1
        dec     rcx
        jnz     2b
        leave_kernel atomic

        .section .note.GNU-stack, "", @progbits
