#include "core/render_text.h"
