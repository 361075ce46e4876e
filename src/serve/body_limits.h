// How much a body may hold, looked at before anything is made of it.
#pragma once

#include <optional>

#include "serve/json_body.h"
#include "serve/limits.h"

namespace situ::serve {

// Names the field and the limit. None: it holds no more than it may. Of fields that are no field's kind nothing is
// said: their reader does.
std::optional<Refusal> beyond_limits(const Json& body, const Limits& limits);

}  // namespace situ::serve
