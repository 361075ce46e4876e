// Accesses of the calls, and the edges: a call waits for those before it that write what it touches, or that touch what
// it writes.
#include <algorithm>
#include <map>

#include "schedule/stages.h"

namespace situ {
namespace {

// Schedules of more calls have an edge from each call to the next: sets of ancestors would take 8 MiB and more.
constexpr size_t kMostCalls = 8192;

int64_t block_bytes(const Plan& plan, const Home& home) {
  const Root* root = plan.root_of(home);
  return root ? root->bytes : kBlockEnd;
}

// The bytes of a view: exact where nothing depends on the step, else from its first one on, or the whole block.
Access access_of(const Plan& plan, const Home& home, DType type, bool write) {
  Access whole{home.region, home.root, 0, block_bytes(plan, home), write};
  const int64_t element = std::max<int64_t>(1, dtype_bytes(type));
  const SymView& v = home.view;
  if (!v.offset.is_const()) return whole;
  int64_t first = v.offset.value(), last = first;
  for (size_t a = 0; a < v.dims.size(); ++a) {
    if (!v.strides[a].is_const()) return whole;
    const int64_t stride = v.strides[a].value();
    if (v.dims[a].is_const() && v.dims[a].value() <= 0) return {home.region, home.root, 0, 0, write};
    if (v.dims[a].is_const())
      (stride < 0 ? first : last) += (v.dims[a].value() - 1) * stride;
    else if (stride < 0)
      return whole;
    else
      last = kBlockEnd / element - 1;
    if (last >= whole.end / element) last = whole.end / element - 1;
  }
  whole.begin = std::max<int64_t>(0, first * element);
  whole.end = last == whole.end / element - 1 ? whole.end : (last + 1) * element;
  return whole;
}

class OrderFinder {
 public:
  OrderFinder(const Plan& plan, Schedule* schedule)
      : plan_(plan), schedule_(*schedule), words_((schedule->calls.size() + 63) / 64) {}

  void run(const std::vector<std::vector<Access>>& accesses) {
    const int count = static_cast<int>(schedule_.calls.size());
    ancestors_.resize(words_ * schedule_.calls.size());
    for (int i = 0; i < count; ++i) add(i, accesses[static_cast<size_t>(i)]);
  }

 private:
  // An access that later calls may have to wait for; of the arena: bytes from its first one.
  struct Open {
    int64_t begin, end;
    int call;
    bool write;
  };
  using Memory = std::pair<RegionKind, int>;

  Open open(const Access& a, int call) const {
    const int64_t at = a.region == RegionKind::kArena ? plan_.arena[static_cast<size_t>(a.root)].offset : 0;
    return {at + a.begin, at + a.end, call, a.write};
  }
  static Memory memory(const Access& a) { return {a.region, a.region == RegionKind::kArena ? -1 : a.root}; }

  void add(int call, const std::vector<Access>& accesses) {
    std::vector<int> before;
    for (const Access& a : accesses) {
      const Open now = open(a, call);
      for (const Open& o : open_[memory(a)])
        if ((o.write || now.write) && o.begin < now.end && now.begin < o.end) before.push_back(o.call);
    }
    std::sort(before.begin(), before.end(), std::greater<>());
    const size_t first = schedule_.edges.size();
    for (int b : before) {
      if (is_ancestor(b, call)) continue;
      schedule_.edges.push_back({b, call});
      for (size_t w = 0; w < words_; ++w) row(call)[w] |= row(b)[w];
      row(call)[static_cast<size_t>(b) / 64] |= uint64_t{1} << b % 64;
    }
    std::reverse(schedule_.edges.begin() + static_cast<ptrdiff_t>(first), schedule_.edges.end());
    for (const Access& a : accesses) {
      const Open now = open(a, call);
      // What is written over is ordered before this call: who waits for it waits for that too.
      std::vector<Open>& list = open_[memory(a)];
      if (now.write)
        std::erase_if(list, [&](const Open& o) { return o.call != call && now.begin <= o.begin && o.end <= now.end; });
      list.push_back(now);
    }
  }

  uint64_t* row(int call) { return ancestors_.data() + static_cast<size_t>(call) * words_; }
  bool is_ancestor(int a, int call) { return row(call)[static_cast<size_t>(a) / 64] >> a % 64 & 1; }

  const Plan& plan_;
  Schedule& schedule_;
  const size_t words_;
  std::vector<uint64_t> ancestors_;  // [call][words_]
  std::map<Memory, std::vector<Open>> open_;
};

}  // namespace

void find_order(const Plan& plan, const Graph& graph, Schedule* schedule) {
  std::vector<std::vector<Access>> all;
  for (Call& c : schedule->calls) {
    std::vector<Access> own;
    for (const Operand& o : operands_of(plan, c)) {
      if (!o.present() || o.home->region == RegionKind::kNone || o.home->region == RegionKind::kWeights) continue;
      own.push_back(access_of(plan, *o.home, graph.values[o.value].info.type, o.written));
    }
    c.first_access = static_cast<int>(schedule->accesses.size());
    c.accesses = static_cast<int>(own.size());
    schedule->accesses.insert(schedule->accesses.end(), own.begin(), own.end());
    all.push_back(std::move(own));
  }
  if (schedule->calls.size() <= kMostCalls) return OrderFinder(plan, schedule).run(all);
  for (int i = 1; i < static_cast<int>(schedule->calls.size()); ++i) schedule->edges.push_back({i - 1, i});
}

}  // namespace situ
