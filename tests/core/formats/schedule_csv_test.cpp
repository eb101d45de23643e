#include "core/formats/schedule_csv.h"
