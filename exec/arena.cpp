#include "exec/arena.h"
