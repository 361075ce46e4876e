// A text that the Rust library wrote, freed at the end of the scope.
#pragma once

#include <string>

#include "base/one_line.h"
#include "base/status.h"
#include "text/situ_text.h"

namespace situ {

class OwnedText {
 public:
  OwnedText() = default;
  OwnedText(const OwnedText&) = delete;
  OwnedText& operator=(const OwnedText&) = delete;
  ~OwnedText() { situ_text_free_text(&text_); }

  // Where the library writes; once only.
  situ_text_string* get() { return &text_; }
  std::string str() const { return text_.size == 0 ? std::string() : std::string(text_.data, text_.size); }
  // As an error, which may quote a template or a file.
  Status status() const { return one_line(Status::error(str())); }

 private:
  situ_text_string text_{};
};

}  // namespace situ
