#include "core/formats/chrome_trace.h"
