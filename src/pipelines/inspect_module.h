// The module of a model as JSON: its graphs, the programs made of them, the spaces of their states, and the ports
// between them and the caller.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipelines/llm.h"

namespace situ {

// A program as far as it is compiled: an encoder that waits for its arrays has no plan yet.
struct ProgramFacts {
  // "encode", "prompt", "token"; where pictures or sounds stand among the tokens also "lookup", "behind", and the names
  // of the encoders' files.
  std::string name;
  const Compiled* compiled = nullptr;
  const Plan* plan = nullptr;
  int64_t kernel_calls = 0;
  std::shared_ptr<const EncoderProgram> held = nullptr;  // so that an encoder's stays, whatever is built meanwhile
};
// In the order in which they run. Between steps.
std::vector<ProgramFacts> programs_of(const InPlaceEngine& engine);

// [{past, present, rule, type, shape, axis, bytes ...}]
nlohmann::ordered_json states_json(const InPlaceEngine& engine);
// [{kind, where, what}]
nlohmann::ordered_json found_json(const Compiled& compiled);
// One of the programs of module_json, of a graph of its own.
nlohmann::ordered_json program_json(const ProgramFacts& program);

// {graphs, programs, spaces, ports}
nlohmann::ordered_json module_json(const Model::Impl& m);

}  // namespace situ
