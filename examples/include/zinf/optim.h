/* In the source tree only: stands for the header that is installed as <zinf/aio.h>. */
#include "cpu_optim/optim.h"
