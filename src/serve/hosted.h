// The models of a server and their names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/refusal.h"
#include "situ/model.h"

namespace situ::serve {

struct ModelSource {
  std::string path;
  LoadOptions load;
};

struct Hosted {
  std::string name;                // the first of `names`
  std::vector<std::string> names;  // all of them
  ModelSource source;
  std::unique_ptr<Model> model;  // null: not yet loaded
  int64_t created = 0;           // when it was loaded, seconds since 1970
};

// What a loaded model is for, by the calls that it answers.
struct ModelKind {
  const char* name;  // "chat", "completion", "embeddings", "rerank", "transcription"
  bool tools = false, reasoning = false, vision = false, audio = false, structured_output = false;
};
ModelKind kind_of(const Model& model);

// Fixed but for the models, which are loaded one after the other before anybody asks for one.
class HostedModels {
 public:
  // `aliases`: NAME=MODEL, where MODEL is one of the sources, by its path or its name, or a path of one more, which is
  // loaded with `load`. NAME `*`: any name that no model has. Errors: a name that two models have; an alias that is
  // none.
  static Result<HostedModels> of(std::vector<ModelSource> sources, const std::vector<std::string>& aliases,
                                 const LoadOptions& load);

  // What a call asks of its model.
  enum class Use { kAny, kText, kGenerate, kChat, kEmbed };
  // "": the only one that can do it. Refusal: there is none of that name, or it cannot.
  OrRefusal<Hosted*> find(std::string_view name, Use use);
  std::vector<Hosted>& all() { return models_; }

 private:
  std::string names() const;
  std::vector<Hosted> models_;
  std::optional<size_t> other_;  // index of the model that has all other names
};

}  // namespace situ::serve
