#include "tests/support/builders.h"
