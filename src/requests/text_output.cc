#include "requests/text_output.h"

#include <algorithm>

namespace situ {

Result<std::string> TextOutput::echo(std::span<const int64_t> prompt) {
  std::string text;
  for (const int64_t id : prompt) {
    if (!stream_) break;
    Result<std::string> piece = stream_->push(id);
    if (!piece.is_ok()) return piece;
    text += *piece;
  }
  return text;
}

Result<std::string> TextOutput::decoded(int64_t id) {
  if (std::find(shown_.begin(), shown_.end(), id) == shown_.end()) return stream_->push(id);
  Result<std::string> before = stream_->finish();
  if (!before.is_ok()) return before;
  return *before + tokenizer_->id_to_token(id).value_or("");
}

Result<std::string> TextOutput::push(int64_t id) {
  if (!stream_) return std::string();
  Result<std::string> piece = decoded(id);
  if (!piece.is_ok()) return piece;
  return stop_.push(*piece);
}

Result<std::string> TextOutput::finish() {
  if (!stream_ || stopped()) return std::string();
  Result<std::string> rest = stream_->finish();
  if (!rest.is_ok()) return rest;
  const std::string certain = stop_.push(*rest);
  return certain + stop_.finish();
}

}  // namespace situ
