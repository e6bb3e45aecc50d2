# peak_fma: the most fused multiply-adds that one core can do: independent chains, no memory traffic.
#
# void peak_fma_*(const u64 args[2], u64 tid)       (the project's kernel ABI, System V)
#   args[0]  f32* out: chains x lanes floats a tid; tid writes its own part
#   args[1]  u64 count: steps of every chain
# Every lane starts as its lane number + its chain number and is replaced `count` times by lane * SCALE + STEP.
# Work: count x chains x lanes x 2 floating point operations. Chains: 12 of 8 lanes (AVX2), 24 of 16 lanes (AVX-512):
# two FMA units with a latency of 4 need 8 chains at least.

        .intel_syntax noprefix

        .section .rodata
        .balign 64
lanes:  .float  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
one:    .float  1.0
scale:  .float  0.999
step:   .float  0.001

        .text

        .globl  peak_fma_avx2
        .type   peak_fma_avx2, @function
        .balign 64
peak_fma_avx2:
        mov     rax, [rdi]              # out
        mov     rcx, [rdi + 8]          # count
        imul    rsi, rsi, 12*32
        add     rax, rsi                # this tid's part
        vbroadcastss ymm15, dword ptr one[rip]
        vbroadcastss ymm14, dword ptr step[rip]
        vbroadcastss ymm13, dword ptr scale[rip]
        vmovups ymm12, ymmword ptr lanes[rip]
        .irp    to, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        vmovups ymm\to, ymm12           # the next chain's start
        vaddps  ymm12, ymm12, ymm15
        .endr
        test    rcx, rcx
        jz      2f
        .balign 32
1:
        .irp    chain, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        vfmadd213ps ymm\chain, ymm13, ymm14
        .endr
        dec     rcx
        jnz     1b
2:
        .irp    chain, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        vmovups [rax + 32*\chain], ymm\chain
        .endr
        vzeroupper
        ret
        .size   peak_fma_avx2, . - peak_fma_avx2

        .globl  peak_fma_avx512
        .type   peak_fma_avx512, @function
        .balign 64
peak_fma_avx512:
        mov     rax, [rdi]
        mov     rcx, [rdi + 8]
        imul    rsi, rsi, 24*64
        add     rax, rsi
        vbroadcastss zmm31, dword ptr one[rip]
        vbroadcastss zmm30, dword ptr step[rip]
        vbroadcastss zmm29, dword ptr scale[rip]
        vmovups zmm28, zmmword ptr lanes[rip]
        .irp    to, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
        vmovups zmm\to, zmm28
        vaddps  zmm28, zmm28, zmm31
        .endr
        test    rcx, rcx
        jz      2f
        .balign 32
1:
        .irp    chain, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
        vfmadd213ps zmm\chain, zmm29, zmm30
        .endr
        dec     rcx
        jnz     1b
2:
        .irp    chain, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
        vmovups [rax + 64*\chain], zmm\chain
        .endr
        vzeroupper
        ret
        .size   peak_fma_avx512, . - peak_fma_avx512

        .section .note.GNU-stack, "", @progbits
