#include "exec/profiler.h"
