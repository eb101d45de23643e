#include "core/scenario.h"
