// The module of a model as JSON: its graphs, the programs made of them, the spaces of their states, and the ports
// between them and the caller.
#pragma once

#include <nlohmann/json.hpp>

#include "pipelines/llm.h"

namespace situ {

// {graphs, programs, spaces, ports}
nlohmann::ordered_json module_json(const Model::Impl& m);

}  // namespace situ
