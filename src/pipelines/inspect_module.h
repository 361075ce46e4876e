// The module of a model as JSON: its graphs, the programs made of them, the spaces of their states, and the ports
// between them and the caller.
#pragma once

#include <nlohmann/json.hpp>

#include "pipelines/llm.h"

namespace situ {

// A program as far as it is compiled: an encoder that waits for its arrays has no plan yet.
struct ProgramFacts {
  std::string name;  // "encode", "prompt", "token"; of pictures "lookup", "behind" and the encoders' names
  const Compiled* compiled = nullptr;
  const Plan* plan = nullptr;
  int64_t kernel_calls = 0;
};
// In the order in which they run.
std::vector<ProgramFacts> programs_of(const InPlaceEngine& engine);

// {graphs, programs, spaces, ports}
nlohmann::ordered_json module_json(const Model::Impl& m);

}  // namespace situ
