/* lanes_scalar: for any processor. */
#define LANES_TABLE ptx_lanes_scalar
#include "lanes.h"
