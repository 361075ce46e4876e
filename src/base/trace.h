// Trace (situ/trace.h), for the layers below the public API.
#pragma once

#include "situ/trace.h"  // IWYU pragma: export
