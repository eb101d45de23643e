#include "core/partition.h"
