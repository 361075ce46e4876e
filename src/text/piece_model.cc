#include "text/piece_model.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <fstream>
#include <sstream>

#include "base/lfs_pointer.h"
#include "base/one_line.h"
#include "text/tokenizer.h"

// Exported by the library, declared in a header that Debian does not install.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

namespace situ {
namespace {

constexpr uintmax_t kMostFileBytes = uintmax_t{64} << 20;  // those of 250,000 pieces have 5 MB

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code failure;
  const bool regular = std::filesystem::is_regular_file(path, failure);
  const uintmax_t size = regular ? std::filesystem::file_size(path, failure) : 0;
  if (failure) return Status::error(failure.message());
  if (!regular) return Status::error("not a regular file");
  if (size > kMostFileBytes)
    return Status::error(std::to_string(size) + " bytes, the limit is " + std::to_string(kMostFileBytes));
  std::ostringstream text;
  std::ifstream file(path, std::ios::binary);
  if (size > 0 && !(text << file.rdbuf())) return Status::error("cannot be read");
  return std::move(text).str();
}

// What the library says, or throws: its trees do for what they cannot hold.
template <typename Call>
Status status_of(Call call) {
  try {
    const auto done = call();
    return done.ok() ? Status::ok() : one_line(Status::error(done.message()));
  } catch (const std::exception& e) {
    return one_line(Status::error(std::string("the SentencePiece library failed: ") + e.what()));
  }
}

}  // namespace

PieceModel::PieceModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
    : processor_(std::move(processor)) {}
PieceModel::PieceModel(PieceModel&&) noexcept = default;
PieceModel& PieceModel::operator=(PieceModel&&) noexcept = default;
PieceModel::~PieceModel() = default;

Result<PieceModel> PieceModel::load(const std::filesystem::path& file) {
  constexpr int kFatal = 3;
  sentencepiece::logging::SetMinLogLevel(kFatal);  // errors come back as values
  Result<std::string> bytes = read_file(file);
  if (!bytes.is_ok()) return bytes.status().with_context(file.string());
  if (is_lfs_pointer(*bytes)) return lfs_pointer_error(file);
  SITU_RETURN_IF_ERROR(check_piece_model(*bytes).with_context(file.string()));
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const Status loaded = status_of([&] { return processor->LoadFromSerializedProto(*bytes); });
  SITU_RETURN_IF_ERROR(loaded.with_context(file.string()));
  return PieceModel(std::move(processor));
}

Result<std::vector<std::string>> PieceModel::encode(std::string_view text) const {
  SITU_RETURN_IF_ERROR(check_utf8(text, "the text to encode"));
  std::vector<std::string> pieces;
  SITU_RETURN_IF_ERROR(status_of([&] { return processor_->Encode(text, &pieces); }));
  return pieces;
}

Result<std::string> PieceModel::decode(const std::vector<std::string>& pieces) const {
  std::string text;
  SITU_RETURN_IF_ERROR(status_of([&] { return processor_->Decode(pieces, &text); }));
  return text;
}

int64_t PieceModel::size() const { return processor_->GetPieceSize(); }
std::string PieceModel::piece(int64_t index) const { return processor_->IdToPiece(static_cast<int>(index)); }

}  // namespace situ
