// Kernels for RDNA4 (gfx1201), wave32: what a card can do at most, to put beside what generated code does.
//
// Workgroups of 256 threads along x, as many as are wanted. Arguments at their natural alignment; W is the number of workgroups.
//
//   copy_b128      u8* dst, const u8* src            both of W x 16384 bytes. Moves W x 32768 bytes (half read, half written).
//   fill_b32       u32* dst, u32 value               W x 16384 bytes. Writes them all.
//   peak_fma       f32* out, u32 count               out: W x 256 x 16 values. W x 256 x count x 64 floating point operations.
//   peak_fma_dual  the same, two multiply-adds an instruction (VOPD).
//   lds_read_b128  u32* out, u32 count               out: W x 256 words. Reads W x 256 x count x 128 bytes of LDS.
//   wmma_f16       f32* d, const f16* a, const f16* b, u32 count
//   wmma_bf16      the same of bf16                  d: W x 8 tiles of 16 x 16, each count x 4 x (a . b); a: 16 rows of 16; b: 16 columns of
//                  16. W x 8 x count x 32768 floating point operations.
//
// count is at least 1. Sixteen chains of peak_fma start with 0, 1, 2, 4 and zeros; 2 x count times the thread's number modulo 32 is
// added. lds_read_b128 gives 8 x (thread xor 1) + 28000.

        .amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
        .text

        .globl  copy_b128
        .p2align 8
        .type   copy_b128,@function
copy_b128:
        s_load_b128 s[4:7], s[0:1], 0x0                   // s[4:5] dst, s[6:7] src
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 14                     // 16384 bytes a workgroup
        v_lshlrev_b32_e32 v0, 4, v0                       // 16 bytes a thread
        v_or_b32_e32 v1, 0x1000, v0
        v_or_b32_e32 v2, 0x2000, v0
        v_or_b32_e32 v3, 0x3000, v0
        s_wait_kmcnt 0x0
        s_add_co_u32 s4, s4, s2
        s_add_co_ci_u32 s5, s5, s3
        s_add_co_u32 s6, s6, s2
        s_add_co_ci_u32 s7, s7, s3
        global_load_b128 v[4:7], v0, s[6:7]
        global_load_b128 v[8:11], v1, s[6:7]
        global_load_b128 v[12:15], v2, s[6:7]
        global_load_b128 v[16:19], v3, s[6:7]
        s_wait_loadcnt 0x3
        global_store_b128 v0, v[4:7], s[4:5]
        s_wait_loadcnt 0x2
        global_store_b128 v1, v[8:11], s[4:5]
        s_wait_loadcnt 0x1
        global_store_b128 v2, v[12:15], s[4:5]
        s_wait_loadcnt 0x0
        global_store_b128 v3, v[16:19], s[4:5]
        s_endpgm

        .globl  fill_b32
        .p2align 8
        .type   fill_b32,@function
fill_b32:
        s_load_b64 s[4:5], s[0:1], 0x0                    // dst
        s_load_b32 s6, s[0:1], 0x8                        // value
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 14                     // 16384 bytes a workgroup
        v_lshlrev_b32_e32 v0, 4, v0                       // 16 bytes a thread
        v_or_b32_e32 v1, 0x1000, v0
        v_or_b32_e32 v2, 0x2000, v0
        v_or_b32_e32 v3, 0x3000, v0
        s_wait_kmcnt 0x0
        v_mov_b32_e32 v4, s6
        v_mov_b32_e32 v5, s6
        v_mov_b32_e32 v6, s6
        v_mov_b32_e32 v7, s6
        s_add_co_u32 s4, s4, s2
        s_add_co_ci_u32 s5, s5, s3
        global_store_b128 v0, v[4:7], s[4:5]
        global_store_b128 v1, v[4:7], s[4:5]
        global_store_b128 v2, v[4:7], s[4:5]
        global_store_b128 v3, v[4:7], s[4:5]
        s_endpgm

        .globl  peak_fma
        .p2align 8
        .type   peak_fma,@function
peak_fma:
        s_load_b64 s[4:5], s[0:1], 0x0                    // out
        s_load_b32 s6, s[0:1], 0x8                        // count
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 14                     // 256 threads of 64 bytes
        v_lshlrev_b32_e32 v20, 6, v0                      // where its 16 chains are stored
        v_and_b32_e32 v0, 31, v0
        v_cvt_f32_u32_e32 v0, v0                          // what is added: the thread modulo 32
        v_mov_b32_e32 v1, v0
        v_mov_b32_e32 v2, 1.0
        v_mov_b32_e32 v3, 1.0
        v_mov_b32_e32 v4, 0                               // chains start with 0, 1, 2, 4, then zeros
        v_mov_b32_e32 v5, 1.0
        v_mov_b32_e32 v6, 2.0
        v_mov_b32_e32 v7, 4.0
        v_mov_b32_e32 v8, 0
        v_mov_b32_e32 v9, 0
        v_mov_b32_e32 v10, 0
        v_mov_b32_e32 v11, 0
        v_mov_b32_e32 v12, 0
        v_mov_b32_e32 v13, 0
        v_mov_b32_e32 v14, 0
        v_mov_b32_e32 v15, 0
        v_mov_b32_e32 v16, 0
        v_mov_b32_e32 v17, 0
        v_mov_b32_e32 v18, 0
        v_mov_b32_e32 v19, 0
        s_wait_kmcnt 0x0
        s_add_co_u32 s4, s4, s2
        s_add_co_ci_u32 s5, s5, s3
.Lpeak_fma:
        v_fmac_f32_e32 v4, v0, v2
        v_fmac_f32_e32 v5, v0, v2
        v_fmac_f32_e32 v6, v0, v2
        v_fmac_f32_e32 v7, v0, v2
        v_fmac_f32_e32 v8, v0, v2
        v_fmac_f32_e32 v9, v0, v2
        v_fmac_f32_e32 v10, v0, v2
        v_fmac_f32_e32 v11, v0, v2
        v_fmac_f32_e32 v12, v0, v2
        v_fmac_f32_e32 v13, v0, v2
        v_fmac_f32_e32 v14, v0, v2
        v_fmac_f32_e32 v15, v0, v2
        v_fmac_f32_e32 v16, v0, v2
        v_fmac_f32_e32 v17, v0, v2
        v_fmac_f32_e32 v18, v0, v2
        v_fmac_f32_e32 v19, v0, v2
        v_fmac_f32_e32 v4, v0, v2
        v_fmac_f32_e32 v5, v0, v2
        v_fmac_f32_e32 v6, v0, v2
        v_fmac_f32_e32 v7, v0, v2
        v_fmac_f32_e32 v8, v0, v2
        v_fmac_f32_e32 v9, v0, v2
        v_fmac_f32_e32 v10, v0, v2
        v_fmac_f32_e32 v11, v0, v2
        v_fmac_f32_e32 v12, v0, v2
        v_fmac_f32_e32 v13, v0, v2
        v_fmac_f32_e32 v14, v0, v2
        v_fmac_f32_e32 v15, v0, v2
        v_fmac_f32_e32 v16, v0, v2
        v_fmac_f32_e32 v17, v0, v2
        v_fmac_f32_e32 v18, v0, v2
        v_fmac_f32_e32 v19, v0, v2
        s_sub_co_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .Lpeak_fma
        global_store_b128 v20, v[4:7], s[4:5]
        global_store_b128 v20, v[8:11], s[4:5] offset:16
        global_store_b128 v20, v[12:15], s[4:5] offset:32
        global_store_b128 v20, v[16:19], s[4:5] offset:48
        s_endpgm

        .globl  peak_fma_dual
        .p2align 8
        .type   peak_fma_dual,@function
peak_fma_dual:
        s_load_b64 s[4:5], s[0:1], 0x0                    // out
        s_load_b32 s6, s[0:1], 0x8                        // count
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 14                     // 256 threads of 64 bytes
        v_lshlrev_b32_e32 v20, 6, v0                      // where its 16 chains are stored
        v_and_b32_e32 v0, 31, v0
        v_cvt_f32_u32_e32 v0, v0                          // what is added: the thread modulo 32
        v_mov_b32_e32 v1, v0
        v_mov_b32_e32 v2, 1.0
        v_mov_b32_e32 v3, 1.0
        v_mov_b32_e32 v4, 0                               // chains start with 0, 1, 2, 4, then zeros
        v_mov_b32_e32 v5, 1.0
        v_mov_b32_e32 v6, 2.0
        v_mov_b32_e32 v7, 4.0
        v_mov_b32_e32 v8, 0
        v_mov_b32_e32 v9, 0
        v_mov_b32_e32 v10, 0
        v_mov_b32_e32 v11, 0
        v_mov_b32_e32 v12, 0
        v_mov_b32_e32 v13, 0
        v_mov_b32_e32 v14, 0
        v_mov_b32_e32 v15, 0
        v_mov_b32_e32 v16, 0
        v_mov_b32_e32 v17, 0
        v_mov_b32_e32 v18, 0
        v_mov_b32_e32 v19, 0
        s_wait_kmcnt 0x0
        s_add_co_u32 s4, s4, s2
        s_add_co_ci_u32 s5, s5, s3
.Lpeak_fma_dual:
        v_dual_fmac_f32 v4, v0, v2 :: v_dual_fmac_f32 v5, v1, v3
        v_dual_fmac_f32 v6, v0, v2 :: v_dual_fmac_f32 v7, v1, v3
        v_dual_fmac_f32 v8, v0, v2 :: v_dual_fmac_f32 v9, v1, v3
        v_dual_fmac_f32 v10, v0, v2 :: v_dual_fmac_f32 v11, v1, v3
        v_dual_fmac_f32 v12, v0, v2 :: v_dual_fmac_f32 v13, v1, v3
        v_dual_fmac_f32 v14, v0, v2 :: v_dual_fmac_f32 v15, v1, v3
        v_dual_fmac_f32 v16, v0, v2 :: v_dual_fmac_f32 v17, v1, v3
        v_dual_fmac_f32 v18, v0, v2 :: v_dual_fmac_f32 v19, v1, v3
        v_dual_fmac_f32 v4, v0, v2 :: v_dual_fmac_f32 v5, v1, v3
        v_dual_fmac_f32 v6, v0, v2 :: v_dual_fmac_f32 v7, v1, v3
        v_dual_fmac_f32 v8, v0, v2 :: v_dual_fmac_f32 v9, v1, v3
        v_dual_fmac_f32 v10, v0, v2 :: v_dual_fmac_f32 v11, v1, v3
        v_dual_fmac_f32 v12, v0, v2 :: v_dual_fmac_f32 v13, v1, v3
        v_dual_fmac_f32 v14, v0, v2 :: v_dual_fmac_f32 v15, v1, v3
        v_dual_fmac_f32 v16, v0, v2 :: v_dual_fmac_f32 v17, v1, v3
        v_dual_fmac_f32 v18, v0, v2 :: v_dual_fmac_f32 v19, v1, v3
        s_sub_co_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .Lpeak_fma_dual
        global_store_b128 v20, v[4:7], s[4:5]
        global_store_b128 v20, v[8:11], s[4:5] offset:16
        global_store_b128 v20, v[12:15], s[4:5] offset:32
        global_store_b128 v20, v[16:19], s[4:5] offset:48
        s_endpgm

        .globl  lds_read_b128
        .p2align 8
        .type   lds_read_b128,@function
lds_read_b128:
        s_load_b64 s[4:5], s[0:1], 0x0                    // out
        s_load_b32 s6, s[0:1], 0x8                        // count
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 10                     // 256 threads of 4 bytes
        v_lshlrev_b32_e32 v1, 4, v0                       // where it writes in a slab of 4096 bytes
        v_xor_b32_e32 v2, 16, v1                          // its neighbour reads that
        v_lshlrev_b32_e32 v3, 2, v0
        v_mov_b32_e32 v4, v0                              // slab s holds the thread + 1000 s in all words
        v_mov_b32_e32 v5, v4
        v_mov_b32_e32 v6, v4
        v_mov_b32_e32 v7, v4
        ds_store_b128 v1, v[4:7]
        v_add_nc_u32 v8, 0x3e8, v0
        v_mov_b32_e32 v9, v8
        v_mov_b32_e32 v10, v8
        v_mov_b32_e32 v11, v8
        ds_store_b128 v1, v[8:11] offset:4096
        v_add_nc_u32 v12, 0x7d0, v0
        v_mov_b32_e32 v13, v12
        v_mov_b32_e32 v14, v12
        v_mov_b32_e32 v15, v12
        ds_store_b128 v1, v[12:15] offset:8192
        v_add_nc_u32 v16, 0xbb8, v0
        v_mov_b32_e32 v17, v16
        v_mov_b32_e32 v18, v16
        v_mov_b32_e32 v19, v16
        ds_store_b128 v1, v[16:19] offset:12288
        v_add_nc_u32 v20, 0xfa0, v0
        v_mov_b32_e32 v21, v20
        v_mov_b32_e32 v22, v20
        v_mov_b32_e32 v23, v20
        ds_store_b128 v1, v[20:23] offset:16384
        v_add_nc_u32 v24, 0x1388, v0
        v_mov_b32_e32 v25, v24
        v_mov_b32_e32 v26, v24
        v_mov_b32_e32 v27, v24
        ds_store_b128 v1, v[24:27] offset:20480
        v_add_nc_u32 v28, 0x1770, v0
        v_mov_b32_e32 v29, v28
        v_mov_b32_e32 v30, v28
        v_mov_b32_e32 v31, v28
        ds_store_b128 v1, v[28:31] offset:24576
        v_add_nc_u32 v32, 0x1b58, v0
        v_mov_b32_e32 v33, v32
        v_mov_b32_e32 v34, v32
        v_mov_b32_e32 v35, v32
        ds_store_b128 v1, v[32:35] offset:28672
        s_wait_dscnt 0x0
        s_wait_kmcnt 0x0
        s_add_co_u32 s4, s4, s2
        s_add_co_ci_u32 s5, s5, s3
        s_barrier_signal -1
        s_barrier_wait 0xffff
.Llds_read:
        ds_load_b128 v[4:7], v2
        ds_load_b128 v[8:11], v2 offset:4096
        ds_load_b128 v[12:15], v2 offset:8192
        ds_load_b128 v[16:19], v2 offset:12288
        ds_load_b128 v[20:23], v2 offset:16384
        ds_load_b128 v[24:27], v2 offset:20480
        ds_load_b128 v[28:31], v2 offset:24576
        ds_load_b128 v[32:35], v2 offset:28672
        s_wait_dscnt 0x0
        s_sub_co_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .Llds_read
        v_add_nc_u32 v4, v4, v9
        v_add_nc_u32 v4, v4, v14
        v_add_nc_u32 v4, v4, v19
        v_add_nc_u32 v4, v4, v20
        v_add_nc_u32 v4, v4, v25
        v_add_nc_u32 v4, v4, v30
        v_add_nc_u32 v4, v4, v35
        global_store_b32 v3, v4, s[4:5]
        s_endpgm

        .globl  wmma_f16
        .p2align 8
        .type   wmma_f16,@function
wmma_f16:
        s_load_b128 s[8:11], s[0:1], 0x0                  // s[8:9] d, s[10:11] a
        s_load_b64 s[12:13], s[0:1], 0x10                 // b, columns as rows
        s_load_b32 s6, s[0:1], 0x18                       // count
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 13                     // 8 waves of 1024 bytes
        v_and_b32_e32 v1, 31, v0                          // lane
        v_and_b32_e32 v2, 15, v0                          // row of a, column of b
        v_lshrrev_b32_e32 v5, 4, v1                       // which half of the wave
        v_lshlrev_b32_e32 v3, 4, v5                       // eight steps
        v_lshl_add_u32 v3, v2, 5, v3                      // of a row of 32 bytes
        v_lshrrev_b32_e32 v4, 5, v0                       // wave
        v_lshlrev_b32_e32 v4, 10, v4
        v_lshl_add_u32 v4, v5, 9, v4                      // eight rows of d a half
        v_lshl_add_u32 v4, v2, 2, v4
        s_wait_kmcnt 0x0
        s_add_co_u32 s8, s8, s2
        s_add_co_ci_u32 s9, s9, s3
        global_load_b128 v[8:11], v3, s[10:11]
        global_load_b128 v[12:15], v3, s[12:13]
        v_mov_b32_e32 v24, 0                              // four sums
        v_mov_b32_e32 v25, 0
        v_mov_b32_e32 v26, 0
        v_mov_b32_e32 v27, 0
        v_mov_b32_e32 v28, 0
        v_mov_b32_e32 v29, 0
        v_mov_b32_e32 v30, 0
        v_mov_b32_e32 v31, 0
        v_mov_b32_e32 v32, 0
        v_mov_b32_e32 v33, 0
        v_mov_b32_e32 v34, 0
        v_mov_b32_e32 v35, 0
        v_mov_b32_e32 v36, 0
        v_mov_b32_e32 v37, 0
        v_mov_b32_e32 v38, 0
        v_mov_b32_e32 v39, 0
        v_mov_b32_e32 v40, 0
        v_mov_b32_e32 v41, 0
        v_mov_b32_e32 v42, 0
        v_mov_b32_e32 v43, 0
        v_mov_b32_e32 v44, 0
        v_mov_b32_e32 v45, 0
        v_mov_b32_e32 v46, 0
        v_mov_b32_e32 v47, 0
        v_mov_b32_e32 v48, 0
        v_mov_b32_e32 v49, 0
        v_mov_b32_e32 v50, 0
        v_mov_b32_e32 v51, 0
        v_mov_b32_e32 v52, 0
        v_mov_b32_e32 v53, 0
        v_mov_b32_e32 v54, 0
        v_mov_b32_e32 v55, 0
        s_wait_loadcnt 0x0
.Lwmma_f16:
        v_wmma_f32_16x16x16_f16 v[24:31], v[8:11], v[12:15], v[24:31]
        v_wmma_f32_16x16x16_f16 v[32:39], v[8:11], v[12:15], v[32:39]
        v_wmma_f32_16x16x16_f16 v[40:47], v[8:11], v[12:15], v[40:47]
        v_wmma_f32_16x16x16_f16 v[48:55], v[8:11], v[12:15], v[48:55]
        s_sub_co_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .Lwmma_f16
        v_add_f32_e32 v24, v24, v32
        v_add_f32_e32 v40, v40, v48
        v_add_f32_e32 v24, v24, v40
        global_store_b32 v4, v24, s[8:9]
        v_add_f32_e32 v25, v25, v33
        v_add_f32_e32 v41, v41, v49
        v_add_f32_e32 v25, v25, v41
        global_store_b32 v4, v25, s[8:9] offset:64
        v_add_f32_e32 v26, v26, v34
        v_add_f32_e32 v42, v42, v50
        v_add_f32_e32 v26, v26, v42
        global_store_b32 v4, v26, s[8:9] offset:128
        v_add_f32_e32 v27, v27, v35
        v_add_f32_e32 v43, v43, v51
        v_add_f32_e32 v27, v27, v43
        global_store_b32 v4, v27, s[8:9] offset:192
        v_add_f32_e32 v28, v28, v36
        v_add_f32_e32 v44, v44, v52
        v_add_f32_e32 v28, v28, v44
        global_store_b32 v4, v28, s[8:9] offset:256
        v_add_f32_e32 v29, v29, v37
        v_add_f32_e32 v45, v45, v53
        v_add_f32_e32 v29, v29, v45
        global_store_b32 v4, v29, s[8:9] offset:320
        v_add_f32_e32 v30, v30, v38
        v_add_f32_e32 v46, v46, v54
        v_add_f32_e32 v30, v30, v46
        global_store_b32 v4, v30, s[8:9] offset:384
        v_add_f32_e32 v31, v31, v39
        v_add_f32_e32 v47, v47, v55
        v_add_f32_e32 v31, v31, v47
        global_store_b32 v4, v31, s[8:9] offset:448
        s_endpgm

        .globl  wmma_bf16
        .p2align 8
        .type   wmma_bf16,@function
wmma_bf16:
        s_load_b128 s[8:11], s[0:1], 0x0                  // s[8:9] d, s[10:11] a
        s_load_b64 s[12:13], s[0:1], 0x10                 // b, columns as rows
        s_load_b32 s6, s[0:1], 0x18                       // count
        s_mov_b32 s2, ttmp9                               // the workgroup along x
        s_mov_b32 s3, 0
        s_lshl_b64 s[2:3], s[2:3], 13                     // 8 waves of 1024 bytes
        v_and_b32_e32 v1, 31, v0                          // lane
        v_and_b32_e32 v2, 15, v0                          // row of a, column of b
        v_lshrrev_b32_e32 v5, 4, v1                       // which half of the wave
        v_lshlrev_b32_e32 v3, 4, v5                       // eight steps
        v_lshl_add_u32 v3, v2, 5, v3                      // of a row of 32 bytes
        v_lshrrev_b32_e32 v4, 5, v0                       // wave
        v_lshlrev_b32_e32 v4, 10, v4
        v_lshl_add_u32 v4, v5, 9, v4                      // eight rows of d a half
        v_lshl_add_u32 v4, v2, 2, v4
        s_wait_kmcnt 0x0
        s_add_co_u32 s8, s8, s2
        s_add_co_ci_u32 s9, s9, s3
        global_load_b128 v[8:11], v3, s[10:11]
        global_load_b128 v[12:15], v3, s[12:13]
        v_mov_b32_e32 v24, 0                              // four sums
        v_mov_b32_e32 v25, 0
        v_mov_b32_e32 v26, 0
        v_mov_b32_e32 v27, 0
        v_mov_b32_e32 v28, 0
        v_mov_b32_e32 v29, 0
        v_mov_b32_e32 v30, 0
        v_mov_b32_e32 v31, 0
        v_mov_b32_e32 v32, 0
        v_mov_b32_e32 v33, 0
        v_mov_b32_e32 v34, 0
        v_mov_b32_e32 v35, 0
        v_mov_b32_e32 v36, 0
        v_mov_b32_e32 v37, 0
        v_mov_b32_e32 v38, 0
        v_mov_b32_e32 v39, 0
        v_mov_b32_e32 v40, 0
        v_mov_b32_e32 v41, 0
        v_mov_b32_e32 v42, 0
        v_mov_b32_e32 v43, 0
        v_mov_b32_e32 v44, 0
        v_mov_b32_e32 v45, 0
        v_mov_b32_e32 v46, 0
        v_mov_b32_e32 v47, 0
        v_mov_b32_e32 v48, 0
        v_mov_b32_e32 v49, 0
        v_mov_b32_e32 v50, 0
        v_mov_b32_e32 v51, 0
        v_mov_b32_e32 v52, 0
        v_mov_b32_e32 v53, 0
        v_mov_b32_e32 v54, 0
        v_mov_b32_e32 v55, 0
        s_wait_loadcnt 0x0
.Lwmma_bf16:
        v_wmma_f32_16x16x16_bf16 v[24:31], v[8:11], v[12:15], v[24:31]
        v_wmma_f32_16x16x16_bf16 v[32:39], v[8:11], v[12:15], v[32:39]
        v_wmma_f32_16x16x16_bf16 v[40:47], v[8:11], v[12:15], v[40:47]
        v_wmma_f32_16x16x16_bf16 v[48:55], v[8:11], v[12:15], v[48:55]
        s_sub_co_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .Lwmma_bf16
        v_add_f32_e32 v24, v24, v32
        v_add_f32_e32 v40, v40, v48
        v_add_f32_e32 v24, v24, v40
        global_store_b32 v4, v24, s[8:9]
        v_add_f32_e32 v25, v25, v33
        v_add_f32_e32 v41, v41, v49
        v_add_f32_e32 v25, v25, v41
        global_store_b32 v4, v25, s[8:9] offset:64
        v_add_f32_e32 v26, v26, v34
        v_add_f32_e32 v42, v42, v50
        v_add_f32_e32 v26, v26, v42
        global_store_b32 v4, v26, s[8:9] offset:128
        v_add_f32_e32 v27, v27, v35
        v_add_f32_e32 v43, v43, v51
        v_add_f32_e32 v27, v27, v43
        global_store_b32 v4, v27, s[8:9] offset:192
        v_add_f32_e32 v28, v28, v36
        v_add_f32_e32 v44, v44, v52
        v_add_f32_e32 v28, v28, v44
        global_store_b32 v4, v28, s[8:9] offset:256
        v_add_f32_e32 v29, v29, v37
        v_add_f32_e32 v45, v45, v53
        v_add_f32_e32 v29, v29, v45
        global_store_b32 v4, v29, s[8:9] offset:320
        v_add_f32_e32 v30, v30, v38
        v_add_f32_e32 v46, v46, v54
        v_add_f32_e32 v30, v30, v46
        global_store_b32 v4, v30, s[8:9] offset:384
        v_add_f32_e32 v31, v31, v39
        v_add_f32_e32 v47, v47, v55
        v_add_f32_e32 v31, v31, v47
        global_store_b32 v4, v31, s[8:9] offset:448
        s_endpgm

        .section .rodata,"a"

        .p2align 6
        .amdhsa_kernel copy_b128
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 16
          .amdhsa_next_free_vgpr 20
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel fill_b32
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 12
          .amdhsa_next_free_vgpr 8
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel peak_fma
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 12
          .amdhsa_next_free_vgpr 21
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel peak_fma_dual
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 12
          .amdhsa_next_free_vgpr 21
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel lds_read_b128
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 12
          .amdhsa_group_segment_fixed_size 32768
          .amdhsa_next_free_vgpr 36
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel wmma_f16
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 28
          .amdhsa_next_free_vgpr 56
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel

        .p2align 6
        .amdhsa_kernel wmma_bf16
          .amdhsa_user_sgpr_kernarg_segment_ptr 1
          .amdhsa_kernarg_size 28
          .amdhsa_next_free_vgpr 56
          .amdhsa_next_free_sgpr 14
          .amdhsa_float_denorm_mode_32 3
        .end_amdhsa_kernel
