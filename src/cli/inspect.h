// What `situ inspect` says, in parts.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "pipelines/llm.h"

namespace situ::cli {

using Json = nlohmann::ordered_json;

// "45.0 KiB"
std::string size_text(double bytes);
// {graphs, programs, spaces, ports}
Json module_json(const Model::Impl& m);
void print_module(const Json& module);

}  // namespace situ::cli
