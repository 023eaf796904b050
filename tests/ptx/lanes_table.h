/* lanes_table: opcodes and the widths of their registers, as LANES_TABLE; part of lanes.h. */
#ifndef LANES_TABLE
#error "define LANES_TABLE"
#endif

#define ROWS_OF_INTEGERS(n, bytes)                                                                 \
    {"add.b" #n, add_##n, bytes, bytes, bytes, 0, 0},                                              \
        {"sub.b" #n, sub_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"mul.lo.b" #n, mul_lo_##n, bytes, bytes, bytes, 0, 0},                                    \
        {"mul.hi.u" #n, mul_hi_u##n, bytes, bytes, bytes, 0, 0},                                   \
        {"mul.hi.s" #n, mul_hi_s##n, bytes, bytes, bytes, 0, 0},                                   \
        {"mad.lo.b" #n, mad_lo_##n, bytes, bytes, bytes, bytes, 0},                                \
        {"div.u" #n, div_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"rem.u" #n, rem_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"div.s" #n, div_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"rem.s" #n, rem_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"min.u" #n, min_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.u" #n, max_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"min.s" #n, min_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.s" #n, max_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"and.b" #n, and_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"or.b" #n, or_##n, bytes, bytes, bytes, 0, 0},                                            \
        {"xor.b" #n, xor_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"not.b" #n, not_##n, bytes, bytes, 0, 0, 0},                                              \
        {"neg.b" #n, neg_##n, bytes, bytes, 0, 0, 0},                                              \
        {"abs.s" #n, abs_s##n, bytes, bytes, 0, 0, 0},                                             \
        {"mov.b" #n, mov_##n, bytes, bytes, 0, 0, 0},                                              \
        {"shl.b" #n, shl_##n, bytes, bytes, 4, 0, 0},                                              \
        {"shr.u" #n, shr_u##n, bytes, bytes, 4, 0, 0},                                             \
        {"shr.s" #n, shr_s##n, bytes, bytes, 4, 0, 0},                                             \
    {                                                                                              \
        "selp.b" #n, selp_##n, bytes, bytes, bytes, 1, 0                                           \
    }
#define ROWS_OF_FLOATS(n, bytes)                                                                   \
    {"add.f" #n, add_f##n, bytes, bytes, bytes, 0, 0},                                             \
        {"sub.f" #n, sub_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"mul.f" #n, mul_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"div.rn.f" #n, div_f##n, bytes, bytes, bytes, 0, 0},                                      \
        {"fma.rn.f" #n, fma_f##n, bytes, bytes, bytes, bytes, 0},                                  \
        {"rcp.rn.f" #n, rcp_f##n, bytes, bytes, 0, 0, 0},                                          \
        {"sqrt.rn.f" #n, sqrt_f##n, bytes, bytes, 0, 0, 0},                                        \
        {"neg.f" #n, neg_f##n, bytes, bytes, 0, 0, 0},                                             \
        {"abs.f" #n, abs_f##n, bytes, bytes, 0, 0, 0},                                             \
        {"min.f" #n, min_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.f" #n, max_f##n, bytes, bytes, bytes, 0, 0},                                         \
    {                                                                                              \
        "copysign.f" #n, copysign_f##n, bytes, bytes, bytes, 0, 0                                  \
    }
#define ROWS_OF_COMPARISONS(suffix, bytes)                                                         \
    {"setp.eq." #suffix, eq_##suffix, 1, bytes, bytes, 0, 0},                                      \
        {"setp.ne." #suffix, ne_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.lt." #suffix, lt_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.le." #suffix, le_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.gt." #suffix, gt_##suffix, 1, bytes, bytes, 0, 0},                                  \
    {                                                                                              \
        "setp.ge." #suffix, ge_##suffix, 1, bytes, bytes, 0, 0                                     \
    }
#define ROWS_OF_UNORDERED(suffix, bytes)                                                           \
    {"setp.equ." #suffix, equ_##suffix, 1, bytes, bytes, 0, 0},                                    \
        {"setp.neu." #suffix, neu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.ltu." #suffix, ltu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.leu." #suffix, leu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.gtu." #suffix, gtu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.geu." #suffix, geu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.num." #suffix, num_##suffix, 1, bytes, bytes, 0, 0},                                \
    {                                                                                              \
        "setp.nan." #suffix, nan_##suffix, 1, bytes, bytes, 0, 0                                   \
    }

const struct ptx_lane_op LANES_TABLE[] = {
    ROWS_OF_INTEGERS(16, 2),
    ROWS_OF_INTEGERS(32, 4),
    ROWS_OF_INTEGERS(64, 8),
    ROWS_OF_FLOATS(32, 4),
    ROWS_OF_FLOATS(64, 8),
    ROWS_OF_COMPARISONS(u16, 2),
    ROWS_OF_COMPARISONS(s16, 2),
    ROWS_OF_COMPARISONS(u32, 4),
    ROWS_OF_COMPARISONS(s32, 4),
    ROWS_OF_COMPARISONS(u64, 8),
    ROWS_OF_COMPARISONS(s64, 8),
    ROWS_OF_COMPARISONS(f32, 4),
    ROWS_OF_COMPARISONS(f64, 8),
    ROWS_OF_UNORDERED(f32, 4),
    ROWS_OF_UNORDERED(f64, 8),
    {"mul.wide.u16", mul_wide_u16, 4, 2, 2, 0, 0},
    {"mul.wide.s16", mul_wide_s16, 4, 2, 2, 0, 0},
    {"mul.wide.u32", mul_wide_u32, 8, 4, 4, 0, 0},
    {"mul.wide.s32", mul_wide_s32, 8, 4, 4, 0, 0},
    {"mad.wide.u32", mad_wide_u32, 8, 4, 4, 8, 0},
    {"mad.wide.s32", mad_wide_s32, 8, 4, 4, 8, 0},
    {"popc.b32", popc_32, 4, 4, 0, 0, 0},
    {"popc.b64", popc_64, 4, 8, 0, 0, 0},
    {"clz.b32", clz_32, 4, 4, 0, 0, 0},
    {"clz.b64", clz_64, 4, 8, 0, 0, 0},
    {"prmt.b32", prmt_32, 4, 4, 4, 4, 0},
    {"bfi.b32", bfi_32, 4, 4, 4, 4, 4},
    {"bfi.b64", bfi_64, 8, 8, 8, 4, 4},
    {"bfe.u32", bfe_u32, 4, 4, 4, 4, 0},
    {"bfe.s32", bfe_s32, 4, 4, 4, 4, 0},
    {"bfe.u64", bfe_u64, 8, 8, 4, 4, 0},
    {"shf.l.wrap.b32", shf_l_wrap, 4, 4, 4, 4, 0},
    {"shf.r.wrap.b32", shf_r_wrap, 4, 4, 4, 4, 0},
    {"shf.l.clamp.b32", shf_l_clamp, 4, 4, 4, 4, 0},
    {"shf.r.clamp.b32", shf_r_clamp, 4, 4, 4, 4, 0},
    {"lop3.b32", lop3_32, 4, 4, 4, 4, 4},
    {"fma.rm.f32", fma_rm_f32, 4, 4, 4, 4, 0},
    {"ex2.approx.ftz.f32", ex2_ftz, 4, 4, 0, 0, 0},
    {"ex2.approx.f32", ex2, 4, 4, 0, 0, 0},
    {"lg2.approx.f32", lg2, 4, 4, 0, 0, 0},
    {"lg2.approx.ftz.f32", lg2_ftz, 4, 4, 0, 0, 0},
    {"rcp.approx.f32", rcp_near, 4, 4, 0, 0, 0},
    {"rcp.approx.ftz.f32", rcp_near_ftz, 4, 4, 0, 0, 0},
    {"div.approx.f32", div_near, 4, 4, 4, 0, 0},
    {"div.full.f32", div_near, 4, 4, 4, 0, 0},
    {"sqrt.approx.f32", sqrt_near, 4, 4, 0, 0, 0},
    {"rsqrt.approx.f32", rsqrt_near, 4, 4, 0, 0, 0},
    {"sin.approx.f32", sin_near, 4, 4, 0, 0, 0},
    {"cos.approx.f32", cos_near, 4, 4, 0, 0, 0},
    {"tanh.approx.f32", tanh_near, 4, 4, 0, 0, 0},
    {"and.pred", and_pred, 1, 1, 1, 0, 0},
    {"or.pred", or_pred, 1, 1, 1, 0, 0},
    {"xor.pred", xor_pred, 1, 1, 1, 0, 0},
    {"not.pred", not_pred, 1, 1, 0, 0, 0},
    {"mov.pred", mov_pred, 1, 1, 0, 0, 0},
    {"cvt.s64.s32", cvt_s64_s32, 8, 4, 0, 0, 0},
    {"cvt.u64.u32", cvt_u64_u32, 8, 4, 0, 0, 0},
    {"cvt.u32.u64", cvt_u32_u64, 4, 8, 0, 0, 0},
    {"cvt.u16.u32", cvt_u16_u32, 2, 4, 0, 0, 0},
    {"cvt.u32.u16", cvt_u32_u16, 4, 2, 0, 0, 0},
    {"cvt.rn.f32.s32", cvt_f32_s32, 4, 4, 0, 0, 0},
    {"cvt.f64.f32", cvt_f64_f32, 8, 4, 0, 0, 0},
    {"cvt.sat.f32.f32", cvt_sat_f32, 4, 4, 0, 0, 0},
    {"cvt.rzi.f32.f32", cvt_rzi_f32, 4, 4, 0, 0, 0},
    {"cvt.rni.f32.f32", cvt_rni_f32, 4, 4, 0, 0, 0},
    {"cvt.rmi.f32.f32", cvt_rmi_f32, 4, 4, 0, 0, 0},
    {"cvt.rpi.f32.f32", cvt_rpi_f32, 4, 4, 0, 0, 0},
    {NULL, NULL, 0, 0, 0, 0, 0},
};
