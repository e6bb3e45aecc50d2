s_load_dwordx2 s[4:5], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_mov_b32 v0, 0
global_load_dword v1, v0, s[4:5]
s_waitcnt vmcnt(0)
v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]
v_add_u32 v1, v1, v0
s_endpgm
