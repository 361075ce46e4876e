// What finding the states says to others.
#pragma once

#include "base/status.h"

namespace situ {

// The error of a decoder without a past, with what to do about it.
Status no_past();

}  // namespace situ
