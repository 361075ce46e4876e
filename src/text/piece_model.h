// A SentencePiece model: text to pieces and back. Source: Kudo and Richardson 2018; the library of that name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace situ {

// Move-only. Const members may be called by any number of threads at once.
class PieceModel {
 public:
  // Reads a .spm or .model file of at most 64 MiB. The library trusts its files; this does not. Refused with the file's
  // name: what is no such model; pieces of more than 1,024 bytes, with a NUL character or without a finite score; a
  // table of replaced characters (precompiled_charsmap) that points outside itself, or that makes more than 256 bytes
  // of a character.
  static Result<PieceModel> load(const std::filesystem::path& file);
  PieceModel(PieceModel&&) noexcept;
  PieceModel& operator=(PieceModel&&) noexcept;
  ~PieceModel();

  // A character that no piece has is a piece of its own. Error: the text is not UTF-8.
  Result<std::vector<std::string>> encode(std::string_view text) const;
  Result<std::string> decode(const std::vector<std::string>& pieces) const;
  int64_t size() const;
  std::string piece(int64_t index) const;

 private:
  explicit PieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor);
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

// The checks of load() on the bytes of a file; errors do not name it.
Status check_piece_model(std::string_view bytes);

}  // namespace situ
