// Passes that ask what the host knows of values.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status find_switches(PassContext&);   // tables that follow the length of the whole: a long rope's factors
Status settle_choices(PassContext&);  // choices of the host that are the same at every step

}  // namespace situ
