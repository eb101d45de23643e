#include "exec/optimizer.h"
