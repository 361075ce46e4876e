// Token ids to text while they are generated, one id at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace situ {

// Every emitted piece is complete UTF-8: a character whose bytes are spread over several tokens comes with the last of
// them. All pieces and finish() together are what FolderTokenizer::decode gives for all ids, up to one case: after a
// valid character that is spelled in byte tokens, a run of byte tokens that ends invalid turns back into U+FFFD as a
// whole in decode, and what was emitted stays emitted here.
//
// Method: the text of a short window of ids is decoded before and after the new id; the difference is new. The window
// starts with ids that were emitted before, since a decoder may join or strip spaces by what stands in front.
// Cost per id: decoding at most kMaxPending + a few ids.
//
// One stream belongs to one sequence and to one thread at a time. The tokenizer must outlive it.
class DecodeStream {
 public:
  explicit DecodeStream(const FolderTokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // The text that became complete by this id; often empty.
  Result<std::string> push(int64_t id);

  // What is left, with U+FFFD for bytes that never became a character. The stream is then as new.
  Result<std::string> finish();

 private:
  // A character has at most four bytes, so text that still has an incomplete end after this many ids is not text.
  static constexpr size_t kMaxPending = 64;

  std::span<const int64_t> pending() const { return std::span(window_).subspan(context_size_); }
  // Makes the pending ids the context of what follows. Everything they say must have been emitted.
  Status settle();

  const FolderTokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::vector<int64_t> window_;  // [context | pending]
  size_t context_size_ = 0;
  std::string emitted_;  // the part of the window's text that was emitted
};

}  // namespace situ
