// Trace (situ/tools.h), for the layers below the public API.
#pragma once

#include "situ/tools.h"  // IWYU pragma: export
