#include "pipelines/draft.h"

#include <algorithm>
#include <limits>

namespace situ {

Result<Draft> Draft::create(Model::Impl& model, int64_t vocabulary) {
  Result<Session> session = model.new_session();
  if (!session.is_ok()) return session.status();
  return Draft(model, std::move(*session), vocabulary);
}

Result<std::span<const int64_t>> Draft::guess(Sampler sampler, int64_t most) {
  guess_.clear();
  const std::span<const int64_t> text = sampler.ids();
  // The last token is fed in any case: its logits are wanted.
  const auto [differs, unused] = std::mismatch(fed_.begin(), fed_.end(), text.begin(), text.end() - 1);
  fed_.erase(differs, fed_.end());
  SITU_RETURN_IF_ERROR(
      session_.rewind(static_cast<int64_t>(fed_.size())).with_context(model_->folder.model_file.string()));
  std::vector<int64_t> next(text.begin() + static_cast<long>(fed_.size()), text.end());
  const int64_t room = model_->context_length - static_cast<int64_t>(text.size()) + 1;
  // The first needs no guess to be fed. Its own tokens may be computed anew at another length than the model's.
  most = std::min(most - 1, model_->most_guesses(static_cast<int64_t>(text.size()) - 1)) + 1;
  const size_t wanted = static_cast<size_t>(std::max<int64_t>(0, std::min(room, most)));
  if (std::any_of(next.begin(), next.end(), [&](int64_t id) { return id >= model_->vocabulary; }))
    return std::span<const int64_t>();
  while (guess_.size() < wanted) {
    const Result<std::span<const float>> logits = feed(next);
    if (!logits.is_ok()) break;  // its state is full
    const Result<int64_t> id = sampler.choose(*logits);
    if (!id.is_ok()) break;  // bans leave nothing, which the model will say if it is so there
    guess_.push_back(*id);
    sampler.append(*id);
    next.assign(1, *id);
  }
  return std::span<const int64_t>(guess_);
}

Result<std::span<const float>> Draft::feed(std::span<const int64_t> tokens) {
  const size_t width = static_cast<size_t>(vocabulary_), own = static_cast<size_t>(model_->vocabulary);
  if (own < width) widened_.resize(width, -std::numeric_limits<float>::infinity());
  const Result<std::span<const float>> logits =
      session_.step(tokens, own < width ? std::span(widened_).first(own) : std::span<float>());
  if (!logits.is_ok()) return logits;
  fed_.insert(fed_.end(), tokens.begin(), tokens.end());
  return own < width ? std::span<const float>(widened_) : logits->first(width);
}

Status check_draft(const Model::Impl& model, const Model::Impl& draft) {
  const std::string names = draft.folder.folder.string() + " cannot guess for " + model.folder.folder.string() + ": ";
  if (draft.in_place->has_replaced_states())
    return Status::error(Code::kInvalidArgument, names + "it has a recurrent state, which cannot be rewound");
  const auto differ = [&](const char* what, int64_t there, int64_t here) {
    return Status::error(Code::kInvalidArgument, names + what + " of " + std::to_string(there) + " tokens there and " +
                                                     std::to_string(here) + " here");
  };
  // Without tokenizers nothing else tells that tokens are the same. With them, a file may have more logits than tokens,
  // rounded up.
  if (!model.tokenizer || !draft.tokenizer)
    return draft.vocabulary == model.vocabulary ? Status::ok()
                                                : differ("a vocabulary", draft.vocabulary, model.vocabulary);
  const int64_t count = model.tokenizer->vocab_size();
  if (draft.tokenizer->vocab_size() != count) return differ("a tokenizer", draft.tokenizer->vocab_size(), count);
  for (int64_t id = 0; id < count; ++id) {
    const std::optional<std::string> here = model.tokenizer->id_to_token(id), there = draft.tokenizer->id_to_token(id);
    if (here.value_or("") != there.value_or(""))
      return Status::error(Code::kInvalidArgument, names + "token " + std::to_string(id) + " is '" +
                                                       there.value_or("") + "' there and '" + here.value_or("") +
                                                       "' here");
  }
  return Status::ok();
}

}  // namespace situ
