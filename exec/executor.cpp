#include "exec/executor.h"
