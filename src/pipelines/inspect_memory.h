// What a model takes, in bytes, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "pipelines/llm.h"

namespace situ {

// The object "memory" of `situ inspect --json` (docs/placement.md, "What inspect says of memory"). `budget`: bytes; 0:
// none.
nlohmann::ordered_json memory_json(const Model::Impl& m, int64_t budget);

}  // namespace situ
