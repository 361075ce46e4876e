#include "runtime/media_rows.h"

#include <algorithm>

namespace situ {

void SequenceMedia::add(std::shared_ptr<const MediaRows> rows) {
  const int64_t base = rows->base;
  std::erase_if(parts_, [&](const Part& p) { return p.rows->base >= base; });
  const int64_t end = rows->end();
  parts_.push_back({std::move(rows), end});
}

void SequenceMedia::match(int64_t past, std::span<const int64_t> tokens) {
  const int64_t fed = past + static_cast<int64_t>(tokens.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& p = parts_[i];
    const MediaRows& m = *p.rows;
    int64_t t = std::max(past, m.base);
    const int64_t end = std::min(fed, p.end);
    while (t < end && tokens[static_cast<size_t>(t - past)] == m.ids[static_cast<size_t>(t - m.base)]) ++t;
    if (t >= end) continue;
    p.end = t;
    parts_.resize(t > m.base ? i + 1 : i);
    return;
  }
}

std::byte* SequenceMedia::row(int64_t token) const {
  for (const Part& p : parts_)
    if (const MediaRows& m = *p.rows; token >= m.first && token < m.first + m.count && token < p.end)
      return m.rows.view().data + (token - m.first) * m.row_bytes();
  return nullptr;
}

int64_t SequenceMedia::border(int64_t token) const {
  int64_t nearest = INT64_MAX;
  for (const Part& p : parts_)
    for (const int64_t at : {p.rows->base, p.rows->first, p.rows->first + p.rows->count, p.end})
      if (at > token) nearest = std::min(nearest, at);
  return nearest == INT64_MAX ? INT64_MAX : nearest - token;
}

const int64_t* SequenceMedia::positions(int64_t token, int64_t* stride) const {
  for (const Part& p : parts_)
    if (const MediaRows& m = *p.rows; !m.positions.empty() && token >= m.base && token < p.end) {
      *stride = static_cast<int64_t>(m.ids.size());
      return m.positions.data() + (token - m.base);
    }
  return nullptr;
}

int64_t SequenceMedia::first_position(int64_t token) const {
  for (size_t i = parts_.size(); i-- > 0;) {
    const Part& p = parts_[i];
    const MediaRows& m = *p.rows;
    if (m.base >= token || m.positions.empty()) continue;
    const int64_t end = std::min(p.end, token);
    if (end == m.end()) return m.next_position + token - end;
    int64_t last = -1;
    for (size_t row = 0; row < 3; ++row)
      for (int64_t t = m.base; t < end; ++t)
        last = std::max(last, m.positions[row * m.ids.size() + static_cast<size_t>(t - m.base)]);
    return last + 1 + token - end;
  }
  return token;
}

std::vector<int64_t> SequenceMedia::keys(std::span<const int64_t> tokens) const {
  std::vector<int64_t> keys(tokens.begin(), tokens.end());
  for (const Part& p : parts_) {
    if (p.rows->keys.empty()) continue;
    const int64_t base = p.rows->base, end = std::min(p.end, static_cast<int64_t>(keys.size()));
    for (int64_t t = base; t < end; ++t) keys[static_cast<size_t>(t)] = p.rows->keys[static_cast<size_t>(t - base)];
  }
  return keys;
}

}  // namespace situ
