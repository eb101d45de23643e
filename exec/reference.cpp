#include "exec/reference.h"
