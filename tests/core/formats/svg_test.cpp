#include "core/formats/svg.h"
