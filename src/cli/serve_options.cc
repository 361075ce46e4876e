#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/repeated.h"
#include "cli/serve.h"

namespace situ::cli {
namespace {

// As if the command line had it. Error: no such option, a value that it refuses.
Status give(CLI::App& command, const CLI::ConfigItem& item) {
  const auto wrong = [&](const std::string& why) {
    return Status::error(Code::kInvalidArgument, item.fullname() + ": " + why);
  };
  CLI::Option* option = command.get_option_no_throw("--" + item.name);
  if (!option) option = command.get_option_no_throw(item.name);
  if (!option || item.name == "help" || item.name == "config") return wrong("there is no such option");
  if (option->count() > 0) return Status::ok();  // the command line's
  try {
    for (const std::string& input : item.inputs) {
      if (option->get_expected_max() > 0) option->add_result(input);
      if (option->get_expected_max() == 0 && input == "true") option->add_result(input);
      if (option->get_expected_max() == 0 && input != "true" && input != "false")
        return wrong("should be true or false");
    }
    if (option->count() > 0) option->run_callback();
  } catch (const CLI::Error& e) {
    return wrong(e.what());
  }
  return Status::ok();
}

Status take_limit(ServeArguments& a, const CLI::ConfigItem& item) {
  const std::string value = item.inputs.size() == 1 ? item.inputs[0] : "";
  return serve::set_limit(a.limits, item.name, value);
}

std::filesystem::path path_in(const std::vector<CLI::ConfigItem>& section) {
  std::error_code none;
  for (const CLI::ConfigItem& item : section)
    if (item.name == "path" && item.inputs.size() == 1) return std::filesystem::weakly_canonical(item.inputs[0], none);
  return {};
}

std::map<std::string, std::vector<std::string>> options_in(const std::vector<CLI::ConfigItem>& section) {
  std::map<std::string, std::vector<std::string>> options;
  for (const CLI::ConfigItem& item : section)
    if (item.name != "path") options[item.name] = item.inputs;
  return options;
}

}  // namespace

void add_serve_options(CLI::App& command, ServeArguments& a) {
  many(command.add_option("model", a.models, "Model folders"));
  repeated(
      command.add_option("--alias", a.aliases, "A name of a model, which may be given here alone (may be repeated)"),
      "NAME=MODEL");
  command.add_option("--host", a.host, "Address to listen at; others than this machine's own want keys (127.0.0.1)");
  command.add_option("--port", a.port, "0: a free one (8080, or none beside --unix)")->check(CLI::Range(0, 65535));
  command.add_option("--unix", a.unix_path, "Unix socket to listen at")->type_name("PATH");
  command
      .add_option("--api-key-file", a.api_key_file,
                  "Keys that requests must show, a line each: [NAME:]KEY [priority=N]")
      ->type_name("FILE");
  repeated(command.add_option("--allowed-host", a.allowed_hosts, "A name that Host may have beside addresses; *: any"),
           "NAME");
  repeated(command.add_option("--cors", a.cors, "An origin whose pages may ask; *: any"), "ORIGIN");
  command.add_option("--max-running", a.max_running, "Requests of a model in steps at most (64)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  command.add_option("--queue", a.queue, "Requests that wait at most; beyond it 503 (128)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command.add_option("--media-path", a.media_path, "Folder of images that requests may name by file:")
      ->type_name("DIR");
  command.add_option("--media-memory", a.media_memory, "Bytes of bodies, pixels and samples in flight (1GiB)");
  command.add_option("--drain", a.drain, "Seconds for what runs when the server is told to stop (30)")
      ->check(CLI::Range(0, 86400));
  command.add_option("--config", a.config, "A file with these options, [limits] and [models.NAME]")->type_name("FILE");
  command.add_option("--log", a.log, "A line a request on standard error: text or json")
      ->check(CLI::IsMember({"text", "json"}));
  command.add_flag(
      "--share-prefixes", a.share_prefixes,
      "Calls of different keys share kept beginnings of prompts: they are faster, and can tell what others asked");
  command.add_flag("--insecure", a.insecure, "Listen at any address without keys");
  command.add_option("--draft", a.draft, "A smaller model with the same tokens, which guesses");
  add_load_options(command, a);
  command.get_option("--memory")->description("Budget of all models for weights, arena and state, e.g. 2GiB");
}

Status read_config(CLI::App& command, ServeArguments& a) {
  std::vector<CLI::ConfigItem> items;
  if (std::error_code none; std::filesystem::is_directory(a.config, none))  // which reads like an empty file
    return Status::error(Code::kInvalidArgument, a.config + ": is a folder");
  try {
    items = CLI::ConfigBase().from_file(a.config);
  } catch (const CLI::Error& e) {
    return Status::error(Code::kInvalidArgument, a.config + ": " + e.what());
  }
  std::map<std::string, std::vector<CLI::ConfigItem>> named;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
    Status taken;
    if (item.parents.empty()) {
      taken = give(command, item);
    } else if (item.parents.size() == 1 && item.parents[0] == "limits") {
      taken = take_limit(a, item);
    } else if (item.parents.size() == 2 && item.parents[0] == "models") {
      named[item.parents[1]].push_back(item);
    } else {
      taken = Status::error(Code::kInvalidArgument, item.fullname() + ": there is no such section");
    }
    if (!taken.is_ok()) return taken.with_context(a.config);
  }
  for (const auto& [name, own] : named) {
    ServeArguments::Named& model = a.named.emplace_back();
    static_cast<LoadArguments&>(model) = a;
    model.name = name;
    CLI::App options;
    options.add_option("--path", model.model);
    options.add_option("--draft", model.draft);
    add_load_options(options, model);
    for (const CLI::ConfigItem& item : own)
      if (const Status given = give(options, item); !given.is_ok()) return given.with_context(a.config);
    if (model.model.empty())
      return Status::error(Code::kInvalidArgument, a.config + ": models." + name + ": path: is not given");
    // Names of one model, which is loaded once.
    for (const auto& [other, its] : named) {
      if (other == name) break;
      if (path_in(its) == path_in(own) && options_in(its) != options_in(own))
        return Status::error(Code::kInvalidArgument,
                             a.config + ": models." + other + " and models." + name + ": one path, but other options");
    }
  }
  return Status::ok();
}

}  // namespace situ::cli
