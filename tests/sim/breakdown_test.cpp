#include "sim/breakdown.h"
