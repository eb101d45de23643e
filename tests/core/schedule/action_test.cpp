#include "core/schedule/action.h"
