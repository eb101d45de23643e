#include "core/formats/plan_json.h"
