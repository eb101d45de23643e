#include "core/schedules/generators.h"
