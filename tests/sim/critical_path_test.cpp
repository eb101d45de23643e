#include "sim/critical_path.h"
