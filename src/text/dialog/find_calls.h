// The form of calls, from renderings of answers with and without calls.
#pragma once

#include <optional>

#include "text/dialog/renderings.h"

namespace situ::probe {

// None: calls are not shown, or cannot be read back.
std::optional<CallForm> find_calls(const Renderer& render, const CallStyle& style);

}  // namespace situ::probe
