// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/action.h"
