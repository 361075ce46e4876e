// What takes tokens out of the choice: their scores become -infinity. `scores` [vocabulary]; `ids`: the sequence so
// far.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace situ {

inline constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Ids outside the vocabulary are none.
void ban(std::span<float> scores, std::span<const int64_t> banned);

// Bans all tokens but these, whose scores become 0. Source: ForcedBOSTokenLogitsProcessor and
// ForcedEOSTokenLogitsProcessor of transformers.
void force(std::span<float> scores, std::span<const int64_t> forced);

// Bans every token whose bit (id % 32) of word id / 32 is not set.
void ban_others(std::span<float> scores, std::span<const uint32_t> allowed);

// No n-gram of the sequence, prompt included, comes a second time: bans every token that once followed the last
// `size` - 1 ids. size >= 1; cost: one look at every id. Source: NoRepeatNGramLogitsProcessor of transformers.
void ban_repeated_ngrams(std::span<float> scores, std::span<const int64_t> ids, int64_t size);

// The same for n-grams of another text: bans every token that follows there after the last `size` - 1 ids of the
// sequence. Source: EncoderNoRepeatNGramLogitsProcessor of transformers.
void ban_ngrams_of(std::span<const int64_t> text, std::span<float> scores, std::span<const int64_t> ids, int64_t size);

// Bans the last id of every word (not empty) whose other ids are the end of the sequence; a word of one id always.
// Source: NoBadWordsLogitsProcessor of transformers, which lets a word of n ids pass while the sequence has only n - 1.
void ban_words(std::span<float> scores, std::span<const int64_t> ids, std::span<const std::vector<int64_t>> words);

}  // namespace situ
