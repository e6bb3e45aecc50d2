# triad: a[i] = b[i] + s * c[i] over f32, the memory bandwidth of one core.
#
# void triad_*(const u64 args[6], u64 tid)          (the project's kernel ABI, System V)
#   args[0]  f32* a          args[1]  const f32* b          args[2]  const f32* c
#   args[3]  s: f32 bits in the low half
#   args[4]  u64 n: elements in all          args[5]  u64 chunk: elements a tid; tid does [tid*chunk, min(n, (tid+1)*chunk))
# triad_*: normal stores (each line of `a` is read before it is written). triad_stream_*: stores that bypass the caches.
# Buffers need the alignment of f32 only. Traffic: 12 bytes an element as counted by convention.

        .intel_syntax noprefix
        .text

# One kernel: its name, the vector register family, bytes of a vector, the store instruction.
        .macro  triad name, v, width, store
        .globl  \name
        .type   \name, @function
        .balign 64
\name:
        mov     rax, [rdi + 40]         # chunk
        mov     r8, [rdi + 32]          # n
        mov     rcx, rsi
        imul    rcx, rax                # first element of this tid
        sub     r8, rcx                 # elements from there to the end
        jbe     9f
        cmp     r8, rax
        cmova   r8, rax                 # r8: elements to do
        shl     rcx, 2
        mov     rdx, [rdi + 8]
        add     rdx, rcx                # rdx: b
        mov     r9, [rdi + 16]
        add     r9, rcx                 # r9: c
        add     rcx, [rdi]              # rcx: a
        vbroadcastss \v\()0, dword ptr [rdi + 24]
1:      # single elements until `a` is aligned for full stores
        test    r8, r8
        jz      8f
        test    rcx, \width - 1
        jz      2f
        vmovss  xmm1, dword ptr [r9]
        vfmadd213ss xmm1, xmm0, dword ptr [rdx]
        vmovss  dword ptr [rcx], xmm1
        add     rcx, 4
        add     rdx, 4
        add     r9, 4
        dec     r8
        jmp     1b
2:      # four vectors a turn
        cmp     r8, \width
        jb      4f
        .balign 32
3:
        .irp    i, 1, 2, 3, 4
        vmovups \v\i, [r9 + (\i - 1)*\width]
        .endr
        .irp    i, 1, 2, 3, 4
        vfmadd213ps \v\i, \v\()0, [rdx + (\i - 1)*\width]
        .endr
        .irp    i, 1, 2, 3, 4
        \store  [rcx + (\i - 1)*\width], \v\i
        .endr
        add     rcx, 4*\width
        add     rdx, 4*\width
        add     r9, 4*\width
        sub     r8, \width              # 4 vectors of width/4 elements
        cmp     r8, \width
        jae     3b
4:      # the rest
        test    r8, r8
        jz      8f
        vmovss  xmm1, dword ptr [r9]
        vfmadd213ss xmm1, xmm0, dword ptr [rdx]
        vmovss  dword ptr [rcx], xmm1
        add     rcx, 4
        add     rdx, 4
        add     r9, 4
        dec     r8
        jmp     4b
8:      sfence                          # streaming stores become visible before the kernel counts as finished
        vzeroupper
9:      ret
        .size   \name, . - \name
        .endm

        triad   triad_avx2, ymm, 32, vmovups
        triad   triad_stream_avx2, ymm, 32, vmovntps
        triad   triad_avx512, zmm, 64, vmovups
        triad   triad_stream_avx512, zmm, 64, vmovntps

        .section .note.GNU-stack, "", @progbits
