#include "core/timeline.h"
