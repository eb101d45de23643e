#include "core/formats/profile_csv.h"
