#include "runtime/step_table.h"

#include <algorithm>

#include "runtime/program.h"

namespace situ {
namespace {

// Notes for tokens side by side which keys they share.
void find_shared(std::vector<StepSegment>& table) {
  for (size_t i = 1; i < table.size(); ++i) {
    StepSegment& s = table[i];
    const StepSegment& before = table[i - 1];
    const bool tokens = s.rows == 1 && !s.piece && before.rows == 1 && !before.piece;
    const bool runs = s.runs != nullptr && before.runs != nullptr;
    if (tokens && runs && s.keys == before.keys && s.dropped == before.dropped)
      s.shared = shared_keys(before.runs, s.runs, s.keys);
  }
}

}  // namespace

int64_t shared_keys(const Run* a, const Run* b, int64_t keys) {
  int64_t shared = 0, in_a = 0, in_b = 0;  // keys that are gone of the runs *a and *b
  while (shared < keys) {
    while (in_a == a->length) ++a, in_a = 0;
    while (in_b == b->length) ++b, in_b = 0;
    if (a->first_slot + in_a != b->first_slot + in_b) break;
    const int64_t next = std::min({a->length - in_a, b->length - in_b, keys - shared});
    shared += next;
    in_a += next;
    in_b += next;
  }
  return shared;
}

void StepTable::build(std::span<const Segment> segments) {
  tokens_.clear();
  sources_.clear();
  source_runs_.clear();
  source_runs_.reserve(segments.size());
  int64_t row = 0;
  for (const Segment& s : segments) {
    source_runs_.push_back({s.source_slot, std::max<int64_t>(1, s.source_rows)});
    tokens_.push_back({row, s.count, s.prompt, s.runs, s.run_count, s.keys, s.past + s.count - s.keys});
    sources_.push_back({row, s.count, s.prompt, &source_runs_.back(), 1, source_runs_.back().length, 0});
    row += s.count;
  }
  find_shared(tokens_);
  find_shared(sources_);
}

}  // namespace situ
