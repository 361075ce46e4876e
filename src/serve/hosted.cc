#include "serve/hosted.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "pipelines/llm.h"

namespace situ::serve {
namespace {

std::filesystem::path whole_path(const std::string& path) {
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, none);
  return none ? std::filesystem::path(path) : whole;
}

std::string name_of(const std::string& path) {
  std::error_code none;
  std::filesystem::path folder = whole_path(path);
  if (!folder.has_filename()) folder = folder.parent_path();
  if (std::filesystem::is_regular_file(folder, none)) folder = folder.parent_path();
  return folder.filename().string();
}

// Null: it can.
const char* why_not(const Model& model, HostedModels::Use use) {
  if (use == HostedModels::Use::kText && !model.tokenizer().is_there()) return "has no tokenizer";
  const bool answers = use == HostedModels::Use::kChat || use == HostedModels::Use::kGenerate;
  if (answers && !model.generates()) return "gives embeddings or scores, no answers";
  if (use == HostedModels::Use::kEmbed) {
    const EncoderOutput output = text_graph(impl_of(model).files.decoder.graph).kind;
    if (output == EncoderOutput::kNone) return "has no hidden states to make embeddings of";
    if (output == EncoderOutput::kLabels) return "gives scores of texts and pairs, no embeddings";
  }
  if (use == HostedModels::Use::kChat && !model.tokenizer().has_chat_template()) return "has no chat template";
  return nullptr;
}

}  // namespace

ModelKind kind_of(const Model& model) {
  const Model::Impl& m = impl_of(model);
  if (!model.generates())
    return {text_graph(m.files.decoder.graph).kind == EncoderOutput::kLabels ? "rerank" : "embeddings"};
  ModelKind kind{m.is_for_speech() ? "transcription" : model.tokenizer().has_chat_template() ? "chat" : "completion"};
  const FolderTokenizer* text = m.text();
  const ModelForm* const form = m.texts->form();
  kind.tools = form != nullptr;
  kind.reasoning = form && form->form.reasons();
  for (const MediaFile& file : m.folder.media_files) (file.sound ? kind.audio : kind.vision) = true;
  kind.audio = kind.audio || m.is_for_speech();
  kind.structured_output = text != nullptr;
  return kind;
}

Result<HostedModels> HostedModels::of(std::vector<ModelSource> sources, const std::vector<std::string>& aliases,
                                      const LoadOptions& load) {
  const auto wrong = [](const std::string& why) { return Status::error(Code::kInvalidArgument, why); };
  HostedModels hosted;
  const auto at_path = [&](const std::string& path) {
    return std::find_if(hosted.models_.begin(), hosted.models_.end(),
                        [&](const Hosted& h) { return whole_path(h.source.path) == whole_path(path); });
  };
  for (ModelSource& source : sources)
    if (at_path(source.path) == hosted.models_.end()) hosted.models_.push_back({{}, {}, std::move(source), {}, 0});
  for (const std::string& alias : aliases) {
    const size_t sign = alias.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == alias.size())
      return wrong("--alias '" + alias + "' should be NAME=MODEL");
    const std::string path = alias.substr(sign + 1);
    auto model = at_path(path);
    if (model == hosted.models_.end())
      model = std::find_if(hosted.models_.begin(), hosted.models_.end(),
                           [&](const Hosted& h) { return name_of(h.source.path) == path; });
    if (model == hosted.models_.end())
      model = hosted.models_.insert(hosted.models_.end(), Hosted{{}, {}, {path, load}, {}, 0});
    if (const std::string name = alias.substr(0, sign); name == "*") {
      const auto index = static_cast<size_t>(model - hosted.models_.begin());
      if (hosted.other_.value_or(index) != index) return wrong("--alias '*=' names two models");
      hosted.other_ = index;
    } else if (std::find(model->names.begin(), model->names.end(), name) == model->names.end()) {
      model->names.push_back(name);
    }
  }
  if (hosted.models_.empty()) return wrong("no model was given");
  // A folder's own name, where no other has it.
  std::map<std::string, int> own;
  for (const Hosted& h : hosted.models_) ++own[name_of(h.source.path)];
  std::map<std::string, std::string> path_of;
  for (Hosted& h : hosted.models_) {
    const std::string name = name_of(h.source.path);
    const bool is_text = check_utf8(name, "").is_ok();
    if ((own[name] == 1 && is_text) || h.names.empty()) h.names.push_back(name);
    h.name = h.names.front();
    for (const std::string& n : h.names) {
      if (!check_utf8(n, "").is_ok())
        return wrong("a name of " + h.source.path + " is not UTF-8; give it one by --alias NAME=MODEL");
      if (const auto [it, added] = path_of.emplace(n, h.source.path); !added)
        return wrong("two models are called '" + n + "': " + it->second + " and " + h.source.path +
                     "; give one of them a name by --alias NAME=MODEL");
    }
  }
  return hosted;
}

std::string HostedModels::names() const {
  std::string names;
  for (const Hosted& h : models_)
    for (const std::string& n : h.names) names += (names.empty() ? "" : ", ") + n;
  return names;
}

OrRefusal<Hosted*> HostedModels::find(std::string_view name, Use use) {
  if (name.empty()) {
    Hosted* only = nullptr;
    for (Hosted& h : models_) {
      if (why_not(*h.model, use)) continue;
      if (only) return Refusal{Refusal::Kind::kWhichModel, "model", "the model has to be named, one of: " + names()};
      only = &h;
    }
    if (only) return only;
    if (models_.size() > 1)
      return Refusal{Refusal::Kind::kByModel, "model", "no model can do this; there are: " + names()};
    name = models_.front().name;
  }
  const auto has_name = [&](const Hosted& h) {
    return std::find(h.names.begin(), h.names.end(), name) != h.names.end();
  };
  const bool other = other_ && std::none_of(models_.begin(), models_.end(), has_name);
  for (Hosted& h : models_) {
    if (other ? &h != &models_[*other_] : !has_name(h)) continue;
    if (const char* why = why_not(*h.model, use))
      return Refusal{Refusal::Kind::kByModel, "model", "the model '" + h.name + "' " + why};
    return &h;
  }
  return Refusal{Refusal::Kind::kNoModel, "model",
                 "there is no model '" + std::string(name) + "'; there are: " + names()};
}

}  // namespace situ::serve
