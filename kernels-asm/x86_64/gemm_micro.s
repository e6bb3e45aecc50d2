# gemm_micro: C += A * B for one tile that stays in registers, over packed panels; the heart of an f32 matrix product.
#
# void gemm_micro_RxC_*(const u64 args[5], u64 tid)         (the project's kernel ABI, System V)
#   args[0]  const f32* a_panel: k groups of R floats (a column of the tile's A a group)
#   args[1]  const f32* b_panel: k groups of C floats (a row of the tile's B a group)
#   args[2]  f32* c: R rows of C floats, `ldc` floats apart
#   args[3]  u64 k          args[4]  u64 ldc
# tid t does the t-th tile downwards: its A panel starts at a_panel + t*k*R, its C at c + t*R*ldc; B is shared.
# Work: 2*R*C*k floating point operations a tid.
#
# 6x16 (AVX2): 12 accumulators, 2 registers of B, 2 of A. 8x48 and 14x32 (AVX-512): 24 or 28 accumulators, 3 or 2 of B,
# the rest of A. Each group's 8 (6, 14) broadcasts and 3 (2, 2) loads feed 24 (12, 28) FMAs.

        .intel_syntax noprefix
        .text

# Argument registers for a tile of `rows` rows: rax a, rdx b, rcx c, r8 k, r9 bytes from row to row of c.
        .macro  enter name, rows
        .globl  \name
        .type   \name, @function
        .balign 64
\name:
        mov     r8, [rdi + 24]
        mov     r9, [rdi + 32]
        shl     r9, 2
        mov     rax, rsi
        imul    rax, r8
        imul    rax, rax, 4*\rows
        add     rax, [rdi]
        mov     rdx, [rdi + 8]
        mov     rcx, rsi
        imul    rcx, r9
        imul    rcx, rcx, \rows
        add     rcx, [rdi + 16]
        .endm

        .macro  leave_kernel name
        vzeroupper
        ret
        .size   \name, . - \name
        .endm

# ---- 6x16, AVX2: row i accumulates in ymm(4+2i), ymm(5+2i)
        .macro  row6 i, a, lo, hi
        vbroadcastss ymm\a, dword ptr [rax + 4*\i]
        vfmadd231ps ymm\lo, ymm\a, ymm0
        vfmadd231ps ymm\hi, ymm\a, ymm1
        .endm

        .macro  out6 lo, hi
        vaddps  ymm\lo, ymm\lo, [rcx]
        vaddps  ymm\hi, ymm\hi, [rcx + 32]
        vmovups [rcx], ymm\lo
        vmovups [rcx + 32], ymm\hi
        add     rcx, r9
        .endm

        enter   gemm_micro_6x16_avx2, 6
        .irp    acc, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vxorps  ymm\acc, ymm\acc, ymm\acc
        .endr
        test    r8, r8
        jz      2f
        .balign 32
1:
        vmovups ymm0, [rdx]
        vmovups ymm1, [rdx + 32]
        row6    0, 2, 4, 5
        row6    1, 3, 6, 7
        row6    2, 2, 8, 9
        row6    3, 3, 10, 11
        row6    4, 2, 12, 13
        row6    5, 3, 14, 15
        add     rax, 4*6
        add     rdx, 4*16
        dec     r8
        jnz     1b
2:
        out6    4, 5
        out6    6, 7
        out6    8, 9
        out6    10, 11
        out6    12, 13
        out6    14, 15
        leave_kernel gemm_micro_6x16_avx2

# ---- 8x48, AVX-512: row i accumulates in zmm(8+3i) to zmm(10+3i)
        .macro  row8 i, a, x, y, z
        vbroadcastss zmm\a, dword ptr [rax + 4*\i]
        vfmadd231ps zmm\x, zmm\a, zmm0
        vfmadd231ps zmm\y, zmm\a, zmm1
        vfmadd231ps zmm\z, zmm\a, zmm2
        .endm

        .macro  out8 x, y, z
        vaddps  zmm\x, zmm\x, [rcx]
        vaddps  zmm\y, zmm\y, [rcx + 64]
        vaddps  zmm\z, zmm\z, [rcx + 128]
        vmovups [rcx], zmm\x
        vmovups [rcx + 64], zmm\y
        vmovups [rcx + 128], zmm\z
        add     rcx, r9
        .endm

        enter   gemm_micro_8x48_avx512, 8
        .irp    acc, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vpxord  zmm\acc, zmm\acc, zmm\acc
        .endr
        test    r8, r8
        jz      2f
        .balign 32
1:
        vmovups zmm0, [rdx]
        vmovups zmm1, [rdx + 64]
        vmovups zmm2, [rdx + 128]
        row8    0, 3, 8, 9, 10
        row8    1, 4, 11, 12, 13
        row8    2, 5, 14, 15, 16
        row8    3, 6, 17, 18, 19
        row8    4, 7, 20, 21, 22
        row8    5, 3, 23, 24, 25
        row8    6, 4, 26, 27, 28
        row8    7, 5, 29, 30, 31
        add     rax, 4*8
        add     rdx, 4*48
        dec     r8
        jnz     1b
2:
        out8    8, 9, 10
        out8    11, 12, 13
        out8    14, 15, 16
        out8    17, 18, 19
        out8    20, 21, 22
        out8    23, 24, 25
        out8    26, 27, 28
        out8    29, 30, 31
        leave_kernel gemm_micro_8x48_avx512

# ---- 14x32, AVX-512: row i accumulates in zmm(4+2i), zmm(5+2i)
        .macro  row14 i, a, lo, hi
        vbroadcastss zmm\a, dword ptr [rax + 4*\i]
        vfmadd231ps zmm\lo, zmm\a, zmm0
        vfmadd231ps zmm\hi, zmm\a, zmm1
        .endm

        .macro  out14 lo, hi
        vaddps  zmm\lo, zmm\lo, [rcx]
        vaddps  zmm\hi, zmm\hi, [rcx + 64]
        vmovups [rcx], zmm\lo
        vmovups [rcx + 64], zmm\hi
        add     rcx, r9
        .endm

        enter   gemm_micro_14x32_avx512, 14
        .irp    acc, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vpxord  zmm\acc, zmm\acc, zmm\acc
        .endr
        test    r8, r8
        jz      2f
        .balign 32
1:
        vmovups zmm0, [rdx]
        vmovups zmm1, [rdx + 64]
        row14   0, 2, 4, 5
        row14   1, 3, 6, 7
        row14   2, 2, 8, 9
        row14   3, 3, 10, 11
        row14   4, 2, 12, 13
        row14   5, 3, 14, 15
        row14   6, 2, 16, 17
        row14   7, 3, 18, 19
        row14   8, 2, 20, 21
        row14   9, 3, 22, 23
        row14   10, 2, 24, 25
        row14   11, 3, 26, 27
        row14   12, 2, 28, 29
        row14   13, 3, 30, 31
        add     rax, 4*14
        add     rdx, 4*32
        dec     r8
        jnz     1b
2:
        .irp    pair, "4, 5", "6, 7", "8, 9", "10, 11", "12, 13", "14, 15", "16, 17", "18, 19", "20, 21", "22, 23", "24, 25", "26, 27", "28, 29", "30, 31"
        out14   \pair
        .endr
        leave_kernel gemm_micro_14x32_avx512

        .section .note.GNU-stack, "", @progbits
