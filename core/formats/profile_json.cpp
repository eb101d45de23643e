#include "core/formats/profile_json.h"
