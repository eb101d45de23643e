#include "core/compare.h"
