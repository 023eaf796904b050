/* nvToolsExt: ranges, which the stand-in only counts: they must end where they began. */
#ifndef STANDIN_NVTX_H
#define STANDIN_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);
#ifdef __cplusplus
}
#endif
#endif
