// What the public Tokenizer hides.
#pragma once

#include <mutex>

#include "pipelines/dialogs.h"
#include "situ/tokenizer.h"
#include "text/tokenizer.h"

namespace situ {

struct Tokenizer::Impl {
  std::optional<FolderTokenizer> loaded;  // none: ids only
  std::string folder;
  std::string missing = {};  // why there is none
  std::vector<int64_t> end_ids = {};

  const FolderTokenizer* text() const { return loaded ? &*loaded : nullptr; }
  // Errors: there is no tokenizer, or none with a chat template.
  Status check() const;
  Status check_template() const;
  // How answers spell calls and reasoning; null: there is no chat template. Found when it is first asked for.
  const ModelForm* form() const;

 private:
  mutable std::once_flag form_once_;
  mutable std::optional<ModelForm> form_;
};

// Reads the tokenizer of a folder. Its end_ids are those of the tokenizer's own files. A folder without one is no
// error: `missing` says why, the beginning of a line.
Result<std::shared_ptr<Tokenizer::Impl>> load_tokenizer(const std::filesystem::path& folder);

}  // namespace situ
