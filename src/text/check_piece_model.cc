// What the SentencePiece library takes for granted of a model file. Source: sentencepiece_model.proto; the double array
// of darts-clone, which Normalizer walks without looking at its size.
#include <cmath>
#include <protozero/pbf_message.hpp>
#include <string>
#include <vector>

#include "text/piece_model.h"

namespace situ {
namespace {

enum class Model : protozero::pbf_tag_type { kPieces = 1, kNormalizer = 3, kDenormalizer = 5 };
enum class Piece : protozero::pbf_tag_type { kText = 1, kScore = 2, kType = 3 };
enum class Normalizer : protozero::pbf_tag_type { kCharsMap = 2 };

constexpr size_t kMostPieceBytes = 1024;
constexpr size_t kMostReplacementBytes = 256;  // of the characters of NFKC the longest has 33

// A little-endian number of four bytes.
uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return word;
}

// A unit of the double array: offset to its children, whether it has a value, its label, or the value itself.
struct Unit {
  uint32_t bits;
  uint32_t offset() const { return (bits >> 10) << ((bits & (1u << 9)) >> 6); }
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  uint32_t label() const { return bits & ((1u << 31) | 0xFF); }
  uint32_t value() const { return bits & 0x7FFFFFFF; }
};

// Visits every unit that some text can reach, each once: 4 bytes of the file stand behind each.
class TrieCheck {
 public:
  TrieCheck(std::string_view units, std::string_view replacements)
      : units_(units), replacements_(replacements), seen_(units.size() / sizeof(Unit)) {}

  Status run() {
    if (seen_.empty()) return Status::ok();
    std::vector<uint32_t> open{0};
    seen_[0] = true;
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      const uint32_t base = at ^ unit(at).offset();
      // A step looks at base ^ byte, whatever the byte.
      if ((base | 0xFFu) >= seen_.size())
        return Status::error("unit " + std::to_string(at) + " points to unit " + std::to_string(base) + " of " +
                             std::to_string(seen_.size()));
      if (unit(at).has_value()) SITU_RETURN_IF_ERROR(check_value(unit(base).value()));
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const uint32_t next = base ^ byte;
        if (unit(next).label() != byte || seen_[next]) continue;
        seen_[next] = true;
        open.push_back(next);
      }
    }
    return Status::ok();
  }

 private:
  Unit unit(uint32_t at) const { return {word_at(units_, at * sizeof(Unit))}; }
  // `value`: where the replacement begins, which a 0 ends.
  Status check_value(uint32_t value) const {
    if (value >= replacements_.size())
      return Status::error("a replacement begins at byte " + std::to_string(value) + " of " +
                           std::to_string(replacements_.size()));
    const size_t end = replacements_.find('\0', value);
    if (end == std::string_view::npos) return Status::error("the last replacement has no end");
    if (end - value > kMostReplacementBytes)
      return Status::error("a replacement has " + std::to_string(end - value) + " bytes, the limit is " +
                           std::to_string(kMostReplacementBytes));
    return Status::ok();
  }

  std::string_view units_, replacements_;
  std::vector<bool> seen_;
};

// uint32 size of the double array, the array, the replacements.
Status check_chars_map(std::string_view map) {
  if (map.empty()) return Status::ok();
  if (map.size() < sizeof(uint32_t)) return Status::error("precompiled_charsmap: has no size");
  const uint32_t bytes = word_at(map, 0);
  if (bytes > map.size() - sizeof(bytes) || bytes % sizeof(Unit) != 0)
    return Status::error("precompiled_charsmap: a table of " + std::to_string(bytes) + " bytes in " +
                         std::to_string(map.size() - sizeof(bytes)));
  return TrieCheck(map.substr(sizeof(bytes), bytes), map.substr(sizeof(bytes) + bytes))
      .run()
      .with_context("precompiled_charsmap");
}

Status check_piece(protozero::pbf_message<Piece> piece, const std::string& name) {
  size_t bytes = 0;
  while (piece.next()) {
    if (piece.tag() == Piece::kText && piece.wire_type() == protozero::pbf_wire_type::length_delimited) {
      const protozero::data_view text = piece.get_view();
      bytes = text.size();
      // The library's trees end a piece there.
      if (std::string_view(text.data(), bytes).find('\0') != std::string_view::npos)
        return Status::error(name + " holds a NUL character");
    } else if (piece.tag() == Piece::kScore && piece.wire_type() == protozero::pbf_wire_type::fixed32) {
      if (!std::isfinite(piece.get_float())) return Status::error(name + " has no finite score");
    } else {
      piece.skip();
    }
  }
  if (bytes == 0 || bytes > kMostPieceBytes)
    return Status::error(name + " has " + std::to_string(bytes) + " bytes, the limits are 1 and " +
                         std::to_string(kMostPieceBytes));
  return Status::ok();
}

Status check_normalizer(protozero::pbf_message<Normalizer> normalizer) {
  while (normalizer.next()) {
    if (normalizer.tag() == Normalizer::kCharsMap &&
        normalizer.wire_type() == protozero::pbf_wire_type::length_delimited) {
      const protozero::data_view map = normalizer.get_view();
      SITU_RETURN_IF_ERROR(check_chars_map({map.data(), map.size()}));
    } else {
      normalizer.skip();
    }
  }
  return Status::ok();
}

}  // namespace

Status check_piece_model(std::string_view bytes) {
  try {
    protozero::pbf_message<Model> model(bytes.data(), bytes.size());
    int64_t pieces = 0;
    while (model.next()) {
      const bool message = model.wire_type() == protozero::pbf_wire_type::length_delimited;
      if (message && model.tag() == Model::kPieces)
        SITU_RETURN_IF_ERROR(check_piece(model.get_view(), "piece " + std::to_string(pieces++)));
      else if (message && (model.tag() == Model::kNormalizer || model.tag() == Model::kDenormalizer))
        SITU_RETURN_IF_ERROR(check_normalizer(model.get_view()));
      else
        model.skip();
    }
    return pieces > 0 ? Status::ok() : Status::error("is no SentencePiece model: it has no pieces");
  } catch (const protozero::exception& e) {
    return Status::error(std::string("is no SentencePiece model: ") + e.what());
  }
}

}  // namespace situ
