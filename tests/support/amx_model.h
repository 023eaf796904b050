/* amx_model: the AMX kernel for products, its tile instructions answered by a model in C. Needs
 * AVX-512. */
#ifndef ZINF_AMX_MODEL_H
#define ZINF_AMX_MODEL_H

#include "kernels/host_gemm.h"

extern const struct host_gemm_kernel host_gemm_amx_model;

/* How often an instruction met what a processor would fault on; threads that hold tiles now. */
int amx_model_faults(void);
int amx_model_holders(void);

#endif
