#include "exec/stage.h"
