#include "requests/draft.h"

#include <algorithm>
#include <limits>

#include "text/tokenizer.h"

namespace situ {

void Draft::begin(const Sampler& sampler, int64_t most) {
  guess_.clear();
  const std::span<const int64_t> text = sampler.ids();
  if (std::any_of(text.begin(), text.end(), [&](int64_t id) { return id >= served_->vocabulary; })) return;
  const int64_t room = served_->context_length - static_cast<int64_t>(text.size()) + 1;
  // The first needs no guess to be fed. Its own tokens may be computed anew at another length than the model's.
  most = std::min({most - 1, served_->most_guesses(static_cast<int64_t>(text.size()) - 1), room - 1}) + 1;
  if (most < 1) return;
  wanted_ = static_cast<size_t>(most);
  // The last token is fed in any case: its logits are wanted.
  fed_.resize(static_cast<size_t>(strand_.length()));
  const auto same = std::mismatch(fed_.begin(), fed_.end(), text.begin(), text.end() - 1).first - fed_.begin();
  if (same < strand_.length()) {
    if (!served_->in_place->can_rewind(*strand_.sequence, same).is_ok()) return;
    strand_.rewind(same);
  }
  fed_.assign(text.begin(), text.end());
  sampler_.emplace(sampler);
}

Want Draft::want(size_t branch) {
  Want want = next_of(strand_, fed_, fed_.size(), branch);
  want.prompt = want.tokens.size() > 1;
  return want;
}

void Draft::take(Rows rows) {
  if (strand_.length() < static_cast<int64_t>(fed_.size())) return;  // a piece of the text
  std::span<const float> logits = rows.back();
  const size_t width = static_cast<size_t>(vocabulary_);
  if (logits.size() < width) {
    widened_.assign(width, -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < logits.size(); ++i) widened_[i] = logits[i];
    logits = widened_;
  }
  const Result<int64_t> id = sampler_->choose(logits.first(width));
  if (!id.is_ok()) return stop();  // bans leave nothing, which the model will say if it is so there
  guess_.push_back(*id);
  if (guess_.size() >= wanted_ || *id >= served_->vocabulary) return stop();
  sampler_->append(*id);
  fed_.push_back(*id);
}

Status check_draft(const Served& model, const Served& draft) {
  const std::string names = draft.where + " cannot guess for " + model.where + ": ";
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
