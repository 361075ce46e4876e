// Models by name, for `situ serve`: each is called as it was typed, and by its repository's name where that is unique.
#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/hub/name.h"
#include "cli/models.h"
#include "cli/serve.h"

namespace situ::cli {
namespace {

// "REPO" of "ORG/REPO@REV:VARIANT" or of a short name; "": a path.
std::string repository_of(const std::string& typed) {
  std::error_code none;
  if (std::filesystem::exists(typed, none)) return "";
  const Result<std::optional<hub::ModelName>> name = hub::parse_name(typed);
  if (!name.is_ok() || !*name) return "";
  return (*name)->repository.substr((*name)->repository.find('/') + 1);
}

}  // namespace

int find_served(ServeArguments& a) {
  std::map<std::string, std::string> paths;                  // by what was typed
  std::map<std::string, std::vector<std::string>> variants;  // by path
  std::map<std::string, int> repositories;
  const auto find = [&](LoadArguments& model) {
    const std::string typed = model.model;
    if (const int code = find_model(model, "serve"); code != kDone) return code;
    paths[typed] = model.model;
    const auto [other, added] = variants.emplace(model.model, model.load.variants);
    if (!added && other->second != model.load.variants)
      return fail(typed + ": another precision of the same repository is served; one server has one of them");
    return static_cast<int>(kDone);
  };
  for (ServeArguments::Named& named : a.named)
    if (const int code = find(named); code != kDone) return code;
  for (const std::string& typed : a.models) repositories[repository_of(typed)] += 1;
  std::vector<std::string> still;
  for (const std::string& typed : a.models) {
    const std::string repository = repository_of(typed);
    if (repository.empty()) {
      still.push_back(typed);
      continue;
    }
    ServeArguments::Named named;
    static_cast<LoadArguments&>(named) = a;
    named.name = named.model = typed;
    if (const int code = find(named); code != kDone) return code;
    if (repositories[repository] == 1) a.aliases.push_back(repository + "=" + named.model);
    a.named.push_back(std::move(named));
  }
  a.models = std::move(still);
  for (std::string& alias : a.aliases)
    if (const size_t sign = alias.find('='); sign != std::string::npos)
      if (const auto path = paths.find(alias.substr(sign + 1)); path != paths.end())
        alias = alias.substr(0, sign + 1) + path->second;
  return kDone;
}

}  // namespace situ::cli
