#include "core/schedule.h"
