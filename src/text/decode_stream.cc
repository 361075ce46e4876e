#include "text/decode_stream.h"

#include <string_view>
#include <utility>

namespace situ {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// `text` without the replacement characters at its end: bytes that the next token may still complete.
std::string_view without_incomplete_end(std::string_view text) {
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text;
}

}  // namespace

Status DecodeStream::settle() {
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(context_size_));
  context_size_ = window_.size();
  Result<std::string> text = tokenizer_->decode(window_, skip_special_tokens_);
  if (!text.is_ok()) return text.status();
  emitted_ = std::move(text).value();
  return Status::ok();
}

Result<std::string> DecodeStream::push(int64_t id) {
  // Such an id has no text; kept, a run of them would fill the window.
  if (skip_special_tokens_ && tokenizer_->is_left_out(id)) return std::string();
  window_.push_back(id);
  Result<std::string> decoded = tokenizer_->decode(window_, skip_special_tokens_);
  if (!decoded.is_ok()) {
    window_.pop_back();
    return decoded.status();
  }
  const std::string& text = decoded.value();
  const std::string_view complete = without_incomplete_end(text);
  const bool overdue = window_.size() - context_size_ > kMaxPending;

  if (!std::string_view(text).starts_with(emitted_)) {
    // The decoder changed its mind about text that is already out. Wait while the end is open, then go on without it.
    if (complete.size() != text.size() && !overdue) return std::string();
    Result<std::string> rest = tokenizer_->decode(pending(), skip_special_tokens_);
    if (!rest.is_ok()) return rest.status();
    SITU_RETURN_IF_ERROR(settle());
    return rest;
  }
  const std::string_view upto = overdue ? std::string_view(text) : complete;
  std::string piece(upto.size() > emitted_.size() ? upto.substr(emitted_.size()) : std::string_view());
  emitted_ += piece;
  const bool nothing_open = complete.size() == text.size() && !piece.empty();
  if (nothing_open || overdue) SITU_RETURN_IF_ERROR(settle());
  return piece;
}

Result<std::string> DecodeStream::finish() {
  Result<std::string> text = tokenizer_->decode(window_, skip_special_tokens_);
  if (text.is_ok() && text.value().starts_with(emitted_)) {
    text = text.value().substr(emitted_.size());
  } else if (text.is_ok()) {
    text = tokenizer_->decode(pending(), skip_special_tokens_);
  }
  window_.clear();
  context_size_ = 0;
  emitted_.clear();
  return text;
}

}  // namespace situ
