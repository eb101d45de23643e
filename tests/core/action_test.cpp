#include "core/action.h"
