// Options of loading, from load_option_table().
#include <CLI/CLI.hpp>
#include <string_view>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/options.h"

namespace situ::cli {
namespace {

template <typename Number>
CLI::Option* add_field(CLI::App& command, const LoadOption& o, LoadOptions& load, Number LoadOptions::* field) {
  CLI::Option* const option = command.add_option(o.flag, load.*field, o.help);
  return std::string_view(o.value) == "SIZE" ? option->transform(size()) : option->check(whole(o.least, o.most));
}
CLI::Option* add_field(CLI::App& command, const LoadOption& o, LoadOptions& load, bool LoadOptions::* field) {
  const bool other = !(LoadOptions{}.*field);
  return command.add_flag_callback(o.flag, [&load, field, other] { load.*field = other; }, o.help);
}
CLI::Option* add_field(CLI::App& command, const LoadOption& o, LoadOptions& load, std::string LoadOptions::* field) {
  return command.add_option(o.flag, load.*field, o.help);
}
CLI::Option* add_field(CLI::App& command, const LoadOption& o, LoadOptions& load,
                       std::vector<std::string> LoadOptions::* field) {
  return repeated(command.add_option(o.flag, load.*field, o.help), o.value);
}
CLI::Option* add_field(CLI::App& command, const LoadOption& o, LoadOptions& load, KvType LoadOptions::* field) {
  std::vector<std::pair<std::string, KvType>> names;
  for (const char* name : {"auto", "f32", "f16", "bf16", "q8"}) names.emplace_back(name, *kv_type_of(name));
  return choice<KvType>(command, o.flag, names, [&load, field](const KvType& type) { load.*field = type; }, o.help);
}

}  // namespace

void add_model(CLI::App& command, LoadArguments& arguments, const char* help) {
  command.add_option("model", arguments.model, help)->required();
}

void add_load_options(CLI::App& command, LoadArguments& arguments, bool draft) {
  const std::string group = "Loading";
  for (const LoadOption& o : load_option_table()) {
    if (!draft && std::string_view(o.name) == "draft") continue;
    CLI::Option* const option =
        std::visit([&](auto field) { return add_field(command, o, arguments.load, field); }, o.field);
    option->group(o.usual ? group : more(group));
    if (*o.value != 0) option->type_name(o.value)->default_str(o.fallback);
  }
  command.get_option("--sink")->needs(command.get_option("--window"));
  add_offline_option(command, more(group));
}

}  // namespace situ::cli
