/* lanes_avx2: for those with AVX2 and FMA. */
#define LANES_TABLE ptx_lanes_avx2
#include "lanes.h"
