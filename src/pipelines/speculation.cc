#include "pipelines/speculation.h"

#include "generate/prompt_lookup.h"

namespace situ {

Result<Speculation> Speculation::create(Model::Impl& model, const GenerateOptions& options) {
  const bool by_draft = options.draft_tokens > 0;
  const int64_t most = by_draft ? options.draft_tokens : options.prompt_lookup;
  Speculation s(most);
  if (most == 0) return s;
  if (most >= model.batch()) {
    const std::string why = !model.in_place                          ? " in naive mode"
                            : model.in_place->one_sequence().empty() ? ""
                                                                     : ", since " + model.in_place->one_sequence();
    return Status::error(Code::kInvalidArgument,
                         model.folder.model_file.string() + ": " + (by_draft ? "draft_tokens " : "prompt_lookup ") +
                             std::to_string(most) + " wants the logits of as many tokens and one more; a step gives " +
                             std::to_string(model.batch()) + why);
  }
  if (!by_draft) return s;
  if (!model.draft)
    return Status::error(Code::kInvalidArgument,
                         "draft_tokens " + std::to_string(most) + ": no draft model was loaded (LoadOptions::draft)");
  Result<Draft> draft = Draft::create(impl_of(*model.draft), model.vocabulary);
  if (!draft.is_ok()) return draft.status();
  s.draft_ = std::make_unique<Draft>(std::move(*draft));
  return s;
}

Result<std::span<const int64_t>> Speculation::guess(const Sampler& sampler, int64_t most) {
  most = std::min(most, count_.now());
  if (most < 1) return std::span<const int64_t>();
  return draft_ ? draft_->guess(sampler, most) : lookup_prompt(sampler.ids(), most);
}

void Speculation::learn(int64_t tried, int64_t right) {
  count_.learn(tried, right);
  guessed_ += tried;
  accepted_ += right;
}

}  // namespace situ
