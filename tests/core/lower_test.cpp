#include "core/lower.h"
