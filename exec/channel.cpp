#include "exec/channel.h"
