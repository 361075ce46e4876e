// What a model takes and gives, which states it has, where its values live and what could not be placed: for tools.
#pragma once

#include <cstdint>
#include <string>

#include "situ/model.h"

namespace situ {

// One JSON object in UTF-8, as `situ inspect --json` prints it. `memory`: bytes, for the slots that fit them; 0: none
// given. Waits until packed weights are saved. Error: the naive mode has no placement.
Result<std::string> inspect(Model& model, int64_t memory = 0);

// The same of a model that Model::load refuses for `reason`, under "unsupported": what its files say of themselves as
// far as they can be read.
std::string inspect_refused(const std::string& path, const LoadOptions& options, const std::string& reason);

}  // namespace situ
