// The embeddings of a prompt among whose tokens are rows that encoders made of pictures or sounds, and what a sequence
// knows of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor.h"

namespace situ {

struct MediaRows {
  int64_t base = 0;                // number of the prompt's first token in its sequence
  std::vector<int64_t> ids;        // of the prompt
  int64_t first = 0, count = 0;    // numbers of the tokens whose embeddings are held
  Tensor rows;                     // [count, width]
  std::vector<int64_t> positions;  // [3, ids] of M-RoPE; empty: those of text
  int64_t next_position = 0;       // behind these
  std::vector<int64_t> keys;  // of `ids` for a PrefixCache: below 0 where an encoder made the embedding; empty: `ids`
  int64_t end() const { return base + static_cast<int64_t>(ids.size()); }
  int64_t row_bytes() const { return count > 0 ? rows.bytes() / count : 0; }
};

// Those of a sequence, in order. Tokens that it is fed are the prompt's as long as they have the same ids: what is fed
// in place of a rest of it, after a rewind, is text. Holds no tokens, so that a rewind leaves it alone.
class SequenceMedia {
 public:
  bool empty() const { return parts_.empty(); }
  // Of a prompt that begins at rows->base; those of later tokens go.
  void add(std::shared_ptr<const MediaRows> rows);
  // Before tokens from number `past` on are fed: lets go of what is not of them. Allocates nothing.
  void match(int64_t past, std::span<const int64_t> tokens);
  // Whether the token is one whose embedding is held.
  bool holds(int64_t token) const { return row(token) != nullptr; }
  // Its embedding, and behind it those of the tokens up to border(token); null: it is looked up.
  std::byte* row(int64_t token) const;
  // How many tokens from this one on are of one kind: their embeddings are held or not, their positions are told or
  // not.
  int64_t border(int64_t token) const;
  // Positions [3, `stride`] of the tokens from this one on up to border(token); null: first_position() and on.
  const int64_t* positions(int64_t token, int64_t* stride) const;
  int64_t first_position(int64_t token) const;
  // What a PrefixCache knows the tokens by, the first ones of the sequence: those of pictures by what these show.
  std::vector<int64_t> keys(std::span<const int64_t> tokens) const;

 private:
  struct Part {
    std::shared_ptr<const MediaRows> rows;
    int64_t end = 0;  // of its tokens that the sequence has or may be fed
  };
  std::vector<Part> parts_;
};

}  // namespace situ
