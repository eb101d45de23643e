#include "core/formats/json_text.h"
