#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/options.h"
#include "cli/serve.h"
#include "serve/text_file.h"

namespace situ::cli {
namespace {

// A key of the file with its value: a list has several.
struct Entry {
  std::string name, path;  // path: with the tables that it is in
  size_t line;
  std::vector<std::string> values;
};

Status wrong(const Entry& entry, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "line " + std::to_string(entry.line) + ": " + entry.path + ": " + why);
}

// As if the command line had it. Error: no such option, a value that it refuses.
Status give(CLI::App& command, const Entry& entry) {
  CLI::Option* option = command.get_option_no_throw("--" + entry.name);
  if (!option) option = command.get_option_no_throw(entry.name);
  if (!option || entry.name == "help" || entry.name == "config") return wrong(entry, "there is no such option");
  if (option->count() > 0) return Status::ok();  // the command line's
  try {
    for (const std::string& value : entry.values) {
      if (option->get_expected_max() > 0) option->add_result(value);
      if (option->get_expected_max() == 0 && value == "true") option->add_result(value);
      if (option->get_expected_max() == 0 && value != "true" && value != "false")
        return wrong(entry, "should be true or false");
    }
    if (option->count() > 0) option->run_callback();
  } catch (const CLI::Error& e) {
    return wrong(entry, e.what());
  }
  return Status::ok();
}

// A number, truth value or text, as the command line would have it; none: it is something else.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  if (const auto number = node.value_exact<double>()) {
    char digits[40];
    return std::string(digits, std::to_chars(digits, digits + sizeof(digits), *number).ptr);
  }
  return std::nullopt;
}

Result<Entry> entry_of(const std::string& tables, const toml::key& key, const toml::node& node) {
  Entry entry{std::string(key.str()), tables + std::string(key.str()), key.source().begin.line, {}};
  const auto* list = node.as_array();
  const auto take = [&](const toml::node& value) {
    const std::optional<std::string> text = text_of(value);
    if (text) entry.values.push_back(*text);
    return text.has_value();
  };
  const bool taken = list ? std::all_of(list->begin(), list->end(), take) : take(node);
  if (!taken) return wrong(entry, "should be a text, a number, true, false, or a list of these");
  return entry;
}

Result<std::vector<Entry>> entries_of(const std::string& tables, const toml::table& table) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) {
    Result<Entry> entry = entry_of(tables, key, node);
    if (!entry.is_ok()) return entry.status();
    entries.push_back(std::move(*entry));
  }
  return entries;
}

std::filesystem::path path_in(const std::vector<Entry>& section) {
  std::error_code none;
  for (const Entry& entry : section)
    if (entry.name == "path" && entry.values.size() == 1)
      return std::filesystem::weakly_canonical(entry.values[0], none);
  return {};
}

std::map<std::string, std::vector<std::string>> options_in(const std::vector<Entry>& section) {
  std::map<std::string, std::vector<std::string>> options;
  for (const Entry& entry : section)
    if (entry.name != "path") options[entry.name] = entry.values;
  return options;
}

Status take_limits(ServeArguments& a, const toml::table& table) {
  const Result<std::vector<Entry>> entries = entries_of("limits.", table);
  if (!entries.is_ok()) return entries.status();
  for (const Entry& entry : *entries) {
    const std::string value = entry.values.size() == 1 ? entry.values[0] : "";
    if (const Status set = serve::set_limit(a.limits, entry.name, value); !set.is_ok())
      return wrong(entry, set.message());
  }
  return Status::ok();
}

// [models.NAME]: a folder with options of its own.
Status take_model(ServeArguments& a, const std::string& name, const std::vector<Entry>& entries) {
  ServeArguments::Named& model = a.named.emplace_back();
  static_cast<LoadArguments&>(model) = a;
  model.name = name;
  CLI::App options;
  options.add_option("--path", model.model);
  add_load_options(options, model, true);
  for (const Entry& entry : entries) SITU_RETURN_IF_ERROR(give(options, entry));
  if (!model.model.empty()) return Status::ok();
  return Status::error(Code::kInvalidArgument, "models." + name + ": path: is not given");
}

Status take_models(ServeArguments& a, const toml::table& table) {
  std::map<std::string, std::vector<Entry>> named;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto* own = node.as_table();
    if (!own)
      return wrong({name, "models." + name, key.source().begin.line, {}}, "should be a table, [models." + name + "]");
    Result<std::vector<Entry>> entries = entries_of("models." + name + ".", *own);
    if (!entries.is_ok()) return entries.status();
    SITU_RETURN_IF_ERROR(take_model(a, name, *entries));
    // Names of one model, which is loaded once.
    for (const auto& [other, its] : named)
      if (path_in(its) == path_in(*entries) && options_in(its) != options_in(*entries))
        return Status::error(Code::kInvalidArgument,
                             "models." + other + " and models." + name + ": one path, but other options");
    named[name] = std::move(*entries);
  }
  return Status::ok();
}

Status take_config(CLI::App& command, ServeArguments& a, const toml::table& root) {
  // Options of the process first: models begin with them.
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const auto* table = node.as_table();
    if (!table) {
      const Result<Entry> entry = entry_of("", key, node);
      if (!entry.is_ok()) return entry.status();
      SITU_RETURN_IF_ERROR(give(command, *entry));
    } else if (name == "limits") {
      SITU_RETURN_IF_ERROR(take_limits(a, *table));
    } else if (name != "models") {
      const std::string inside = table->empty() ? name : name + "." + std::string(table->begin()->first.str());
      return wrong({name, inside, key.source().begin.line, {}}, "there is no such section");
    }
  }
  const auto* models = root["models"].as_table();
  return models ? take_models(a, *models) : Status::ok();
}

}  // namespace

void add_serve_options(CLI::App& command, ServeArguments& a) {
  a.command = &command;
  many(command.add_option("model", a.models, "Folders or names of models"));
  const std::string listen = "Address", access = "Access", requests = "Requests", other = more("Requests");
  command.add_option("--port", a.port, "Port to listen at; 0 is a free one")
      ->check(whole(0, 65535))
      ->default_str("8080, or none beside --unix")
      ->group(listen);
  command.add_option("--host", a.host, "Address to listen at; others than this machine's own want keys")
      ->type_name("ADDRESS")
      ->default_str("127.0.0.1 and ::1")
      ->group(listen);
  command.add_option("--unix", a.unix_path, "Unix socket to listen at")->type_name("PATH")->group(listen);
  repeated(
      command.add_option("--alias", a.aliases, "Another name of a model; * for any name that none has (repeatable)"),
      "NAME=MODEL")
      ->group(listen);
  command.add_option("--config", a.config, "TOML file with these options, [limits] and [models.NAME]")
      ->type_name("FILE")
      ->group(listen);
  command.add_option("--check", a.check, "Only ask whether the server at URL is ready: exit code 0, else 1")
      ->type_name("URL")
      ->group(listen);
  command.add_option("--api-key-file", a.api_key_file, "Keys, a line each: [NAME:]KEY [priority=N]")
      ->type_name("FILE")
      ->group(access);
  repeated(command.add_option("--allowed-host", a.allowed_hosts, "Name that Host may have (repeatable); * is any"),
           "NAME")
      ->group(access);
  repeated(command.add_option("--cors", a.cors, "Origin whose pages may ask (repeatable); * is any"), "ORIGIN")
      ->group(access);
  command.add_flag("--insecure", a.insecure, "Listen at any address without keys")->group(access);
  command.add_flag("--share-prefixes", a.share_prefixes, "Share kept prompts between keys, who can then tell")
      ->group(access);
  command.add_option("--max-running", a.max_running, "Most requests of a model that run at once")
      ->check(whole(1, int64_t{1} << 16))
      ->default_str(std::to_string(a.max_running))
      ->group(requests);
  command.add_option("--queue", a.queue, "Most requests that wait; more get 429")
      ->check(whole(1, int64_t{1} << 20))
      ->default_str(std::to_string(a.queue))
      ->group(requests);
  command.add_option("--drain", a.drain, "Seconds for running requests when the server is told to stop")
      ->check(whole(0, 86400))
      ->default_str(std::to_string(a.drain))
      ->group(requests);
  choice<std::string>(
      command, "--log", {{"text", "text"}, {"json", "json"}}, [&a](const std::string& form) { a.log = form; },
      "Form of the line for each request on standard error")
      ->default_str(a.log)
      ->group(requests);
  command.add_flag("--strict", a.strict, "Refuse names that no body knows; else they are ignored")->group(requests);
  command.add_option("--media-path", a.media_path, "Folder of images that requests may name by file:")
      ->type_name("DIR")
      ->group(other);
  command.add_option("--media-memory", a.media_memory, "Memory for bodies, pixels and samples in flight")
      ->transform(size())
      ->type_name("SIZE")
      ->default_str("1GiB")
      ->group(other);
  add_prefix_cache_option(command, a.reuse, other);
  add_load_options(command, a, true);
  command.get_option("--memory")->description("Budget of all models for weights, activations and KV cache: 2GiB");
}

Status read_config(CLI::App& command, ServeArguments& a) {
  const Result<std::string> text = serve::text_of_file(a.config);
  if (!text.is_ok()) return text.status();
  const toml::parse_result parsed = toml::parse(*text);
  if (parsed) return take_config(command, a, parsed.table()).with_context(a.config);
  const toml::parse_error& error = parsed.error();
  return Status::error(Code::kInvalidArgument, a.config + ": line " + std::to_string(error.source().begin.line) +
                                                   " is no TOML: " + std::string(error.description()));
}

}  // namespace situ::cli
