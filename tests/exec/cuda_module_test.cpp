#include "exec/cuda_module.h"
