#include "exec/tensor.h"
