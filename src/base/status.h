// The public Status and Result, under the path that the library's own files use.
#pragma once

#include "situ/status.h"
