#include "exec/layers.h"
