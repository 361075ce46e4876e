#include "speech/cut_segments.h"

#include <algorithm>

namespace situ {

static constexpr double kStep = 0.02;  // seconds from one timestamp token to the next

CutWindow cut_segments(std::span<const int64_t> ids, double duration, const SpeechTokens& tokens, bool alone) {
  const auto time = [&](int64_t id) {
    return std::min(duration, kStep * static_cast<double>(id - tokens.first_timestamp));
  };
  const auto is_time = [&](size_t i) { return i < ids.size() && tokens.is_timestamp(ids[i]); };
  const size_t n = ids.size();
  const bool ends_alone = n >= 2 && !is_time(n - 2) && is_time(n - 1);
  std::vector<size_t> cuts;  // behind the first of two timestamps
  for (size_t i = 1; i < n; ++i)
    if (is_time(i - 1) && is_time(i)) cuts.push_back(i);
  CutWindow window{{}, duration, ends_alone};
  if (cuts.empty()) {
    double end = duration;
    for (size_t i = n; i-- > 0;) {
      if (!is_time(i)) continue;
      if (ids[i] != tokens.first_timestamp) end = time(ids[i]);
      break;
    }
    window.segments.push_back({0, end, {ids.begin(), ids.end()}});
    return window;
  }
  if (ends_alone) cuts.push_back(n);
  size_t from = 0;
  for (const size_t to : cuts) {
    const std::span<const int64_t> part = ids.subspan(from, to - from);
    const auto at = [&](int64_t id) { return tokens.is_timestamp(id) ? time(id) : 0.0; };
    window.segments.push_back({at(part.front()), at(part.back()), {part.begin(), part.end()}});
    from = to;
  }
  const std::span<const int64_t> rest = ids.subspan(from);
  if (alone && std::any_of(rest.begin(), rest.end(), [&](int64_t id) { return id < tokens.end; })) {
    window.segments.push_back({time(ids[from - 1]), duration, {rest.begin(), rest.end()}});
    return window;
  }
  // What follows the last pair is said again by the next window.
  if (!ends_alone) window.next = time(ids[from - 1]);
  if (!(window.next > 0)) window.next = duration;
  return window;
}

}  // namespace situ
