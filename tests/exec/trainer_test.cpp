#include "exec/trainer.h"
