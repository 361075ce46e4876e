// `situ list`, `situ rm`, `situ cache prune`: the models in the cache.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/hub/inventory.h"
#include "cli/hub/name.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace situ::cli {
namespace {

std::string joined_variants(const std::vector<std::string>& variants) {
  std::string text;
  for (const std::string& v : variants) text += (text.empty() ? "" : ",") + v;
  return text.empty() ? "-" : text;
}

int list_short_names() {
  for (const hub::ShortName& n : hub::short_names()) std::printf("%-14s  %-45s  %s\n", n.name, n.repository, n.source);
  return kDone;
}

}  // namespace

void add_list_options(CLI::App& command, ListArguments& a) {
  command.add_flag("--json", a.json, "Print one JSON array");
  command.add_flag("--names", a.names, "Print the short names that stand for repositories, and where each is from");
}

int list(const ListArguments& a) {
  if (a.names) return list_short_names();
  const std::vector<hub::CachedModel> models = hub::cached_models();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const hub::CachedModel& m : models)
    all.push_back({{"name", m.name},
                   {"path", m.path.string()},
                   {"bytes", m.bytes},
                   {"variants", m.variants},
                   {"kind", m.kind.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(m.kind)},
                   {"source", m.ours ? "situ" : "other"}});
  if (a.json) {
    std::printf("%s\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return kDone;
  }
  for (const hub::CachedModel& m : models)
    std::printf("%-45s  %10s  %s  %s\n", one_line(m.name).c_str(), size_text(static_cast<double>(m.bytes)).c_str(),
                m.kind.empty() ? "-" : m.kind.c_str(), one_line(joined_variants(m.variants)).c_str());
  return kDone;
}

void add_rm_options(CLI::App& command, RemoveArguments& a) {
  command.add_option("name", a.name, "ORG/REPO, or a short name")->required();
  command.add_flag("--force", a.force, "Remove what another program fetched, too");
}

int remove(const RemoveArguments& a) {
  const Result<std::optional<hub::ModelName>> name = hub::parse_name(a.name);
  if (!name.is_ok()) return fail(name.status().message());
  if (!*name) return fail("'" + a.name + "' is no name of a model: ORG/REPO");
  if (a.name.find_first_of("@:") != std::string::npos)
    return fail("'" + a.name + "': a model is removed as a whole: situ rm " + (*name)->repository);
  const Status removed = hub::remove_model((*name)->repository, a.force);
  if (removed.is_ok()) return kDone;
  return fail(removed.message(), removed.code() == Code::kInternal ? kFailed : kRefused);
}

void add_prune_options(CLI::App& command, PruneArguments& a) {
  command.add_option("--to", a.to, "Then remove models that were not used longest, until the rest takes so much: 20GB")
      ->transform(size())
      ->type_name("SIZE");
  command.add_flag("--force", a.force, "Prune what another program fetched, too");
}

int prune(const PruneArguments& a) {
  const Result<hub::Pruned> pruned = hub::prune_cache(a.to, a.force);
  if (!pruned.is_ok()) return fail(pruned.status().message(), kFailed);
  for (const std::string& name : pruned->models) std::printf("removed %s\n", one_line(name).c_str());
  std::printf("%s freed\n", size_text(static_cast<double>(pruned->bytes)).c_str());
  return kDone;
}

}  // namespace situ::cli
