// Texts that an encoder without a state computes, for embeddings and scores: pieces of steps that all callers share.
#pragma once

#include <utility>

#include "requests/decoding.h"
#include "runtime/text_encoder.h"

namespace situ {

class TextDecoding : public Errand {
 public:
  // What `texts` refer to must live until its end. `each`: takes the rows of a text, on the scheduler's thread; an
  // error of it ends the request.
  TextDecoding(Served& served, std::span<const TextTokens> texts, TextEncoder::RowsOf each)
      : Errand(served), texts_(texts), each_(std::move(each)) {
    if (texts_.empty()) end_with(Status::ok());
  }

  int64_t tokens_to_feed() const override { return 0; }
  Result<bool> begin(Clock::time_point, Figures&) override { return true; }
  void release() override {}
  TextDecoding* of_texts() override { return this; }

  std::span<const TextTokens> texts_left() const { return texts_.subspan(next_); }
  // Of the first that is left.
  void take_rows(std::span<const float> rows) {
    if (ended()) return;
    if (Status done = each_(next_, rows); !done.is_ok()) return end_with(std::move(done));
    if (++next_ == texts_.size()) end_with(Status::ok());
  }

 private:
  const std::span<const TextTokens> texts_;
  const TextEncoder::RowsOf each_;
  size_t next_ = 0;
};

}  // namespace situ
