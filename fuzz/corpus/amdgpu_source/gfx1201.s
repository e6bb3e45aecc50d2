s_load_b64 s[4:5], s[0:1], 0x0
s_wait_kmcnt 0x0
v_mov_b32 v0, 0
global_load_b32 v1, v0, s[4:5]
s_wait_loadcnt 0x0
v_dual_mul_f32 v2, v1, v1 :: v_dual_mov_b32 v3, v0
s_endpgm
