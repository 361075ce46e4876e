// Small SentencePiece models for tests.
#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

// What pieces have for a space.
#define SITU_SPACE "\xE2\x96\x81"

namespace situ::testing {

struct Piece {
  std::string text;
  float score;
  int type;
};
inline const std::vector<Piece> kPieces{{"<unk>", 0, 2},
                                        {"<s>", 0, 3},
                                        {"</s>", 0, 3},
                                        {SITU_SPACE, -3, 1},
                                        {SITU_SPACE "the", -1, 1},
                                        {SITU_SPACE "cat", -2, 1},
                                        {"s", -2.5f, 1},
                                        {"a", -3.1f, 1},
                                        {"t", -3.2f, 1},
                                        {"c", -3.3f, 1},
                                        {"h", -3.4f, 1},
                                        {"e", -3.5f, 1},
                                        {SITU_SPACE "s", -2.8f, 1},
                                        {"at", -2.2f, 1},
                                        {",", -4, 1},
                                        {"n", -3.6f, 1}};

// sentencepiece_model.proto: a model without replaced characters, or with these. type: 1 unigram, 2 BPE, 3 words,
// 4 characters.
inline std::string piece_model(const std::vector<Piece>& pieces = kPieces, const std::string& chars_map = "",
                               int type = 1) {
  std::string bytes;
  protozero::pbf_writer model(bytes);
  for (const Piece& p : pieces) {
    protozero::pbf_writer piece(model, 1);
    piece.add_string(1, p.text);
    piece.add_float(2, p.score);
    piece.add_enum(3, p.type);
  }
  {
    protozero::pbf_writer trainer(model, 2);
    trainer.add_enum(3, type);
  }
  protozero::pbf_writer normalizer(model, 3);
  normalizer.add_string(1, "identity");
  if (!chars_map.empty()) normalizer.add_bytes(2, chars_map);
  return bytes;
}

// A double array of 256 units, whose root leads by 'a' to a unit with a value.
inline std::string chars_map(uint32_t root, uint32_t leaf, uint32_t value, const std::string& replacements) {
  std::vector<uint32_t> units(256, 0x80000000);
  units[0] = root;
  units['a'] = leaf;
  units['a' ^ 1] = value | 0x80000000;
  uint32_t bytes = static_cast<uint32_t>(units.size() * 4);
  std::string map(reinterpret_cast<const char*>(&bytes), 4);
  return map.append(reinterpret_cast<const char*>(units.data()), bytes) + replacements;
}

}  // namespace situ::testing
