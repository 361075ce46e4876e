#include "generate/bans.h"

#include <algorithm>

namespace situ {
namespace {

bool ends_with(std::span<const int64_t> ids, std::span<const int64_t> end) {
  return ids.size() >= end.size() &&
         std::equal(end.begin(), end.end(), ids.end() - static_cast<std::ptrdiff_t>(end.size()));
}

}  // namespace

void ban(std::span<float> scores, std::span<const int64_t> banned) {
  for (const int64_t id : banned)
    if (id >= 0 && id < static_cast<int64_t>(scores.size())) scores[static_cast<size_t>(id)] = kBanned;
}

void force(std::span<float> scores, std::span<const int64_t> forced) {
  std::fill(scores.begin(), scores.end(), kBanned);
  for (const int64_t id : forced) scores[static_cast<size_t>(id)] = 0;
}

void ban_others(std::span<float> scores, std::span<const uint32_t> allowed) {
  for (size_t word = 0; word * 32 < scores.size(); ++word) {
    const uint32_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == UINT32_MAX) continue;
    const size_t last = std::min<size_t>(32, scores.size() - word * 32);
    for (size_t i = 0; i < last; ++i)
      if ((bits >> i & 1) == 0) scores[word * 32 + i] = kBanned;
  }
}

void ban_ngrams_of(std::span<const int64_t> text, std::span<float> scores, std::span<const int64_t> ids, int64_t size) {
  const size_t before = static_cast<size_t>(size) - 1;  // ids of an n-gram in front of its last
  if (ids.size() < before) return;
  const std::span<const int64_t> end = ids.last(before);
  for (size_t next = before; next < text.size(); ++next)
    if (ends_with(text.first(next), end)) ban(scores, text.subspan(next, 1));
}

void ban_repeated_ngrams(std::span<float> scores, std::span<const int64_t> ids, int64_t size) {
  ban_ngrams_of(ids, scores, ids, size);
}

void ban_words(std::span<float> scores, std::span<const int64_t> ids, std::span<const std::vector<int64_t>> words) {
  for (const std::vector<int64_t>& word : words)
    if (ends_with(ids, std::span(word).first(word.size() - 1))) scores[static_cast<size_t>(word.back())] = kBanned;
}

}  // namespace situ
