#include "exec/data/batch.h"
