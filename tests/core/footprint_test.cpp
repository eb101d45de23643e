#include "core/footprint.h"
