#include "core/plan.h"
